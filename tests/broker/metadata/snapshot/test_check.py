"""SnapshotCheck accepts exactly the snapshots that a node can load."""

from collections.abc import Iterable
from random import Random

import pytest

from broker.metadata.image.metadata_version import METADATA_VERSION
from broker.metadata.image.records import MetadataRecord, VersionedRecord, encode_record
from broker.metadata.snapshot.check import SnapshotCheck
from broker.metadata.snapshot.codec import MAX_OPENED_BYTES, InvalidSnapshot, image_batches, snapshot_batches
from protocol.ids import LeaderEpoch
from protocol.messages.metadata_records import (
    ConfigRecord,
    FeatureLevelRecord,
    PartitionChangeRecord,
    PartitionRecord,
    RemoveTopicRecord,
    TopicRecord,
)
from protocol.records.batch import iter_headers
from protocol.records.builder import build_value_batch
from protocol.records.compression import Codec
from tests.broker.metadata.histories import History, folded
from tests.broker.metadata.images import uuid


def check(content: bytes, epoch: int, piece_bytes: int = 1_000) -> SnapshotCheck:
    made = SnapshotCheck(LeaderEpoch(epoch))
    for start in range(0, len(content), piece_bytes):
        made.feed(content[start : start + piece_bytes])
    made.end()
    return made


def written(records: Iterable[MetadataRecord]) -> bytes:
    versioned = [VersionedRecord(record, 0) for record in records]
    return b"".join(snapshot_batches(versioned, epoch=LeaderEpoch(3), last_timestamp_ms=5, batch_timestamp_ms=5))


@pytest.mark.parametrize("seed", range(6))
def test_written_snapshot_passes_in_pieces_of_any_size(seed: int) -> None:
    image = folded(History(seed).batches)
    content = b"".join(image_batches(image, None))
    made = check(content, image.epoch, 100 + 977 * seed)
    assert made.records > 0
    assert made.last_timestamp_ms == image.provenance.timestamp_ms


@pytest.mark.parametrize("seed", range(40))
def test_changed_byte_is_detected(seed: int) -> None:
    image = folded(History(1).batches)
    content = bytearray(b"".join(image_batches(image, None)))
    epochs = {position + at for position, _ in iter_headers(content) for at in range(12, 16)}  # no checksum covers them
    content[Random(seed).choice([at for at in range(len(content)) if at not in epochs])] ^= 1 << seed % 8
    with pytest.raises(InvalidSnapshot):
        check(bytes(content), image.epoch)


def test_epoch_must_match_the_name() -> None:
    with pytest.raises(InvalidSnapshot, match="epoch 3, the name has 4"):
        check(written([]), 4)


def test_snapshot_must_end_with_its_footer() -> None:
    content = written([TopicRecord(name="t", topic_id=uuid(1))])
    for end in (0, 1, len(content) - 70, len(content) - 1):
        with pytest.raises(InvalidSnapshot):
            check(content[:end], 3)


@pytest.mark.parametrize(
    ("records", "word"),
    [
        ([PartitionRecord(topic_id=uuid(1))], "does not contain"),
        ([PartitionRecord(topic_id=uuid(1), replicas=[1], isr=[1], adding_replicas=[2])], "does not contain"),
        ([TopicRecord(name="t", topic_id=uuid(1)), TopicRecord(name="t", topic_id=uuid(2))], "twice"),
        ([TopicRecord(name="t", topic_id=uuid(1)), TopicRecord(name="u", topic_id=uuid(1))], "twice"),
        (
            [TopicRecord(name="t", topic_id=uuid(1)), PartitionRecord(topic_id=uuid(1), leader_recovery_state=7)],
            "invalid partition: 7",
        ),
        ([RemoveTopicRecord(topic_id=uuid(1))], "no place"),
        ([PartitionChangeRecord(topic_id=uuid(1))], "no place"),
        ([FeatureLevelRecord(name=METADATA_VERSION, feature_level=9_999)], "does not know"),
        ([FeatureLevelRecord(name="no.such.feature", feature_level=1)], "does not know"),
    ],
)
def test_unloadable_records_are_refused(records: list[MetadataRecord], word: str) -> None:
    with pytest.raises(InvalidSnapshot, match=word):
        check(written(records), 3)


@pytest.mark.parametrize("record", [PartitionRecord(topic_id=uuid(1)), TopicRecord(name="t"), ConfigRecord()])
def test_later_version_of_a_record_is_refused(record: MetadataRecord) -> None:
    """The version is refused although the bytes fit a supported version."""
    frame = encode_record(record, record.MAX_VERSION)
    later = bytes((*frame[:2], record.MAX_VERSION + 1, *frame[3:]))
    with pytest.raises(InvalidSnapshot, match=f"version {record.MAX_VERSION + 1} of"):
        check(with_frames([encode_record(TopicRecord(name="other", topic_id=uuid(1)), 0), later]), 3)


def test_unknown_record_type_is_refused() -> None:
    with pytest.raises(InvalidSnapshot, match="key 99 is unknown"):
        check(with_frames([b"\x01\x63\x00"]), 3)


def test_batch_with_excessive_decompressed_size_is_refused() -> None:
    """A few compressed kilobytes may claim half a gigabyte of memory."""
    content = with_frames([encode_record(TopicRecord(name="t"), 0) + bytes(MAX_OPENED_BYTES)], Codec.GZIP)
    assert len(content) < 100_000
    with pytest.raises(InvalidSnapshot, match="does not parse"):
        check(content, 3)


def with_frames(frames: list[bytes], codec: Codec = Codec.NONE) -> bytes:
    """Return a snapshot of these frames."""
    whole = written([FeatureLevelRecord(name=METADATA_VERSION, feature_level=25)] * len(frames))
    opening, data, footer = (position for position, _ in iter_headers(whole))
    assert opening == 0
    batch = build_value_batch(frames, 5, base_offset=1, leader_epoch=LeaderEpoch(3), codec=codec)
    return whole[:data] + batch + whole[footer:]
