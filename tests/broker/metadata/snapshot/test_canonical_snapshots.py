"""Canonical snapshots: the bytes depend on the SnapshotId alone, not on how, where or in what steps records were
folded.
"""

import os
import random
import subprocess
import sys
from pathlib import Path

import pytest

from broker.metadata.image.metadata_image import EMPTY_IMAGE, MetadataImage, Provenance
from broker.metadata.image.metadata_version import METADATA_VERSION
from broker.metadata.image.records import MetadataRecord
from broker.metadata.snapshot.codec import (
    FRAME_BYTES_PER_BATCH,
    MAX_BATCH_BYTES,
    RECORDS_PER_BATCH,
    SnapshotReading,
    image_batches,
    read_snapshot,
)
from broker.metadata.snapshot.fold import SnapshotFold
from protocol.ids import LeaderEpoch
from protocol.messages.common_records import Endpoint, KRaftVersionFeature, VotersRecord, VotersRecordVoter
from protocol.messages.metadata_records import ConfigRecord, FeatureLevelRecord, PartitionRecord, TopicRecord
from protocol.primitives import Uuid
from protocol.records.batch import BatchHeader, iter_headers
from protocol.records.compression import Codec
from protocol.records.quorum_control import ControlState
from tests.broker.metadata.histories import History, digest, folded
from tests.broker.metadata.images import image_of, image_with

ROOT = Path(__file__).parents[4]


def loaded(data: bytes, base: MetadataImage = EMPTY_IMAGE, piece_bytes: int = 1_000) -> MetadataImage:
    """Return the image of a snapshot read in pieces, at the provenance of its id and header."""
    reading, fold = SnapshotReading(), SnapshotFold(base)
    for start in range(0, len(data), piece_bytes):
        for frames in reading.feed(data[start : start + piece_bytes]):
            fold.add(frames)
    reading.end()
    return fold.finish(Provenance(7, reading.epoch, reading.last_timestamp_ms))


def written(image: MetadataImage, control: ControlState | None = None, codec: Codec = Codec.NONE) -> bytes:
    return b"".join(image_batches(image, control, codec=codec))


def headers(data: bytes) -> list[BatchHeader]:
    return [header for _, header in iter_headers(data)]


@pytest.mark.parametrize("seed", range(12))
def test_snapshot_bytes_do_not_depend_on_how_records_are_folded(seed: int) -> None:
    batches = History(seed).batches
    expected = digest(folded(batches))
    assert digest(folded(batches, at_once=len(batches))) == expected
    assert digest(folded(batches, at_once=7)) == expected
    for cut in random.Random(seed).sample(range(1, len(batches)), 5):
        halfway = folded(batches[:cut])
        restored = loaded(written(halfway))._replace(provenance=halfway.provenance)
        assert digest(restored) == digest(halfway)
        assert digest(folded(batches[cut:], restored, at_once=3)) == expected


def test_snapshot_bytes_do_not_depend_on_hash_seeds() -> None:
    expected = digest(folded(History(3).batches))
    for hash_seed in ("1", "2"):
        environment = os.environ | {"PYTHONHASHSEED": hash_seed}
        command = [sys.executable, "-m", "tests.broker.metadata.histories", "3"]
        ran = subprocess.run(command, env=environment, cwd=ROOT, capture_output=True, text=True, check=True)
        assert ran.stdout.strip() == expected


@pytest.mark.parametrize("level", [7, 14, 17, 20, 23, 29])
@pytest.mark.parametrize("seed", range(3))
def test_snapshot_records_are_the_images_in_order(seed: int, level: int) -> None:
    """The packed partition frames equal the frames of the record encoder."""
    image = folded(History(seed).batches)
    image = image._replace(features=image.features._replace(metadata_level=level))
    assert read_snapshot(written(image)).records == [record.message for record in image.write()]


def test_snapshot_replays_to_an_equal_image() -> None:
    image = folded(History(5).batches)
    assert list(loaded(written(image)).write()) == list(image.write())


@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD])
def test_compression_applies_to_data_batches_only(codec: Codec) -> None:
    image = folded(History(1).batches)
    plain, compressed = written(image), written(image, codec=codec)
    assert read_snapshot(compressed) == read_snapshot(plain)
    assert len(compressed) < len(plain)
    assert [header.codec for header in headers(compressed)] == [
        Codec.NONE if header.is_control else codec for header in headers(compressed)
    ]
    assert digest(image, codec) == digest(image, codec)


def test_batch_headers_have_the_logs_epoch_and_timestamp() -> None:
    image = image_with(topics={"a": 3})._replace(provenance=Provenance(41, LeaderEpoch(9), 123_456))
    for header in headers(written(image)):
        assert (header.leader_epoch, header.base_timestamp, header.max_timestamp) == (9, 123_456, 123_456)
        assert (header.producer_id, header.producer_epoch, header.base_sequence) == (-1, -1, -1)
    assert read_snapshot(written(image)).last_timestamp_ms == 123_456


def test_every_section_starts_a_new_batch() -> None:
    ids = [Uuid(bytes([first]) + bytes(15)) for first in (0x07, 0x08, 0x0F, 0xF8)]
    records: list[MetadataRecord] = [FeatureLevelRecord(METADATA_VERSION, 29)]
    for number, topic_id in enumerate(ids):
        records.append(TopicRecord(name=f"t{number}", topic_id=topic_id))
    image = image_of(records)
    counts = [header.record_count for header in headers(written(image))]
    assert counts == [1, 1, 1, 2, 1, 1]  # header, features, three buckets, footer


def test_section_batches_hold_1024_records() -> None:
    image = image_with(topics={"t": 2 * RECORDS_PER_BATCH})
    counts = [header.record_count for header in headers(written(image))]
    assert counts == [1, 6, 1, RECORDS_PER_BATCH, RECORDS_PER_BATCH, 1, 1]


def test_section_batch_may_end_within_a_topic() -> None:
    image = image_with(topics={"a": 700, "b": 700})
    assert [header.record_count for header in headers(written(image))] == [
        1,
        6,
        1,
        RECORDS_PER_BATCH,
        2 * 701 - 1024,
        1,
    ]
    assert read_snapshot(written(image)).records == [record.message for record in image.write()]


def test_batches_stay_below_8_mib() -> None:
    value = "v" * 32_000
    records = [
        ConfigRecord(resource_type=2, resource_name=f"t{number}", name="k", value=value) for number in range(600)
    ]
    data = written(image_of(records))
    sizes = [header.size for header in headers(data)]
    assert max(sizes) <= MAX_BATCH_BYTES
    assert [header.record_count for header in headers(data)] == [1, 249, 249, 102, 1]
    assert 249 * (32_000 + 30) < FRAME_BYTES_PER_BATCH < 250 * (32_000 + 10)


def test_opening_batch_has_voters_by_id() -> None:
    voters = [
        VotersRecordVoter(id, Uuid(bytes([id]) * 16), [Endpoint("C", "h", 1)], KRaftVersionFeature(0, 1))
        for id in (3, 1, 2)
    ]
    data = written(image_with(), ControlState(1, VotersRecord(voters=voters)))
    control = read_snapshot(data).control
    assert control is not None
    assert control.voters is not None
    assert [voter.voter_id for voter in control.voters.voters] == [1, 2, 3]
    assert headers(data)[0].record_count == 3
    assert headers(written(image_with(), ControlState(1, None)))[0].record_count == 2
    assert headers(written(image_with(), ControlState(0, None)))[0].record_count == 1


def test_partitions_separated_from_their_topic_are_folded() -> None:
    first, second = Uuid(b"a" * 16), Uuid(b"b" * 16)
    fold = SnapshotFold(EMPTY_IMAGE)
    image = image_of(
        [
            FeatureLevelRecord(METADATA_VERSION, 29),
            TopicRecord(name="a", topic_id=first),
            TopicRecord(name="b", topic_id=second),
            PartitionRecord(partition_id=0, topic_id=second, replicas=[1], isr=[1], leader=1, directories=[first]),
            PartitionRecord(partition_id=0, topic_id=first, replicas=[1], isr=[1], leader=1, directories=[first]),
        ]
    )
    frames = [frame for batch in SnapshotReading().feed(written(image)) for frame in batch]
    fold.add([frames[0], frames[1], frames[3], frames[4], frames[2]])
    assert list(fold.finish(Provenance()).write()) == list(image.write())
