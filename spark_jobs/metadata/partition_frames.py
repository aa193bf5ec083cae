"""A section's state as record batches, with the bytes that the node's own `topic_frames` and `data_batch` write."""

from collections.abc import Iterator

import pyarrow as pa

from broker.metadata.metadata_version import MetadataVersion
from broker.metadata.snapshot_codec import FRAME_BYTES_PER_BATCH, RECORDS_PER_BATCH
from broker.metadata.topic_frames import topic_frames
from protocol.records.builder import build_value_batch
from protocol.records.compression import Codec


def section_batches(state: pa.Table, version: MetadataVersion, epoch: int, timestamp_ms: int, codec: Codec) -> bytes:
    """Whole batches, base offsets from 0."""
    from spark_jobs.metadata.sections import _topics

    frames = []
    topics = _topics(state)
    for id in sorted(topics.ids()):
        topic = topics.by_id(id)
        assert topic is not None
        frames += list(topic_frames(topic, version))
    batches, offset = [], 0
    for batch in _gathered(frames):
        batches.append(build_value_batch(batch, timestamp_ms, base_offset=offset, leader_epoch=epoch, codec=codec))
        offset += len(batch)
    return b"".join(batches)


def _gathered(frames: list[bytes]) -> Iterator[list[bytes]]:
    batch: list[bytes] = []
    size = 0
    for frame in frames:
        size += len(frame)
        if len(batch) == RECORDS_PER_BATCH or (size > FRAME_BYTES_PER_BATCH and batch):
            yield batch
            batch, size = [], len(frame)
        batch.append(frame)
    if batch:
        yield batch
