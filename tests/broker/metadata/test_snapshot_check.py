"""Whether a snapshot could be loaded, without loading it: what a node would load passes, and nothing else does."""

from collections.abc import Iterable
from random import Random

import pytest

from broker.metadata.metadata_version import METADATA_VERSION
from broker.metadata.records import MetadataRecord, VersionedRecord
from broker.metadata.snapshot_check import SnapshotCheck
from broker.metadata.snapshot_codec import InvalidSnapshot, image_batches, snapshot_batches
from protocol.messages.metadata_records import (
    FeatureLevelRecord,
    PartitionChangeRecord,
    PartitionRecord,
    RemoveTopicRecord,
    TopicRecord,
)
from tests.broker.metadata.histories import History, folded
from tests.broker.metadata.images import uuid


def check(content: bytes, epoch: int, piece_bytes: int = 1_000) -> SnapshotCheck:
    made = SnapshotCheck(epoch)
    for start in range(0, len(content), piece_bytes):
        made.feed(content[start : start + piece_bytes])
    made.end()
    return made


def written(records: Iterable[MetadataRecord]) -> bytes:
    versioned = [VersionedRecord(record, 0) for record in records]
    return b"".join(snapshot_batches(versioned, epoch=3, last_timestamp_ms=5, batch_timestamp_ms=5))


@pytest.mark.parametrize("seed", range(6))
def test_what_a_node_writes_passes_in_pieces_of_any_size(seed: int) -> None:
    image = folded(History(seed).batches)
    content = b"".join(image_batches(image, None))
    made = check(content, image.epoch, 100 + 977 * seed)
    assert made.records > 0
    assert made.last_timestamp_ms == image.provenance.timestamp_ms


@pytest.mark.parametrize("seed", range(40))
def test_a_changed_byte_is_found(seed: int) -> None:
    image = folded(History(1).batches)
    content = bytearray(b"".join(image_batches(image, None)))
    content[Random(seed).randrange(len(content))] ^= 1 << seed % 8
    with pytest.raises(InvalidSnapshot):
        check(bytes(content), image.epoch)


def test_the_epoch_is_that_of_the_name() -> None:
    with pytest.raises(InvalidSnapshot, match="epoch 3, its name says 4"):
        check(written([]), 4)


def test_a_snapshot_ends_with_its_footer() -> None:
    content = written([TopicRecord(name="t", topic_id=uuid(1))])
    for end in (0, 1, len(content) - 70, len(content) - 1):
        with pytest.raises(InvalidSnapshot):
            check(content[:end], 3)


@pytest.mark.parametrize(
    ("records", "word"),
    [
        ([PartitionRecord(topic_id=uuid(1))], "does not hold"),
        ([PartitionRecord(topic_id=uuid(1), replicas=[1], isr=[1], adding_replicas=[2])], "does not hold"),
        ([TopicRecord(name="t", topic_id=uuid(1)), TopicRecord(name="t", topic_id=uuid(2))], "twice"),
        ([TopicRecord(name="t", topic_id=uuid(1)), TopicRecord(name="u", topic_id=uuid(1))], "twice"),
        ([RemoveTopicRecord(topic_id=uuid(1))], "no place"),
        ([PartitionChangeRecord(topic_id=uuid(1))], "no place"),
        ([FeatureLevelRecord(name=METADATA_VERSION, feature_level=9_999)], "does not know"),
        ([FeatureLevelRecord(name="no.such.feature", feature_level=1)], "does not know"),
    ],
)
def test_records_that_a_node_could_not_load_are_found(records: list[MetadataRecord], word: str) -> None:
    with pytest.raises(InvalidSnapshot, match=word):
        check(written(records), 3)
