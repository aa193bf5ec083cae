"""The fast path of record values against the general path: same state, same refusals."""

import random
from dataclasses import replace

import pytest

from protocol.ids import BrokerId, LeaderEpoch
from protocol.primitives import Uuid
from storage.tiered.catalog.lineage import Lineage
from storage.tiered.catalog.materialized_metadata import MaterializedMetadata
from storage.tiered.catalog.metadata_folding import MetadataFolding
from storage.tiered.catalog.metadata_records import UndecodableEvent, decode_event, encode_event
from storage.tiered.catalog.metadata_snapshot import SnapshotPosition, pack_snapshot
from storage.tiered.catalog.remote_log_layout import RemoteLogLayout
from storage.tiered.errors import InvalidSegmentTransition
from storage.tiered.segment_metadata import (
    PartitionDelete,
    PartitionDeleteState,
    RemoteSegment,
    RemoteSegmentId,
    SegmentEpoch,
    SegmentState,
    SegmentUpdate,
    TopicIdPartition,
)

TOPIC_ID = Uuid(b"t" * 16)
PARTITIONS = [
    *(TopicIdPartition(TOPIC_ID, "topic", number) for number in range(3)),
    TopicIdPartition(TOPIC_ID, "n" * 126, 0),
    TopicIdPartition(TOPIC_ID, "n" * 127, 0),
    TopicIdPartition(TOPIC_ID, "n" * 249, 0),
    TopicIdPartition(TOPIC_ID, "n" * 249, 1),
]
POSITION = SnapshotPosition(TOPIC_ID, 0, 1, LeaderEpoch(0))


def segment(rng: random.Random) -> RemoteSegment:
    start = rng.randrange(100)
    made = RemoteSegment(
        id=RemoteSegmentId(rng.choice(PARTITIONS), Uuid(rng.randbytes(16))),
        start_offset=start,
        end_offset=start + rng.randrange(20),
        max_timestamp_ms=rng.choice([-1, 5]),
        broker_id=BrokerId(rng.randrange(3)),
        event_timestamp_ms=rng.randrange(100),
        size_bytes=rng.randrange(2**31),
        leader_epochs=(SegmentEpoch(LeaderEpoch(rng.randrange(3)), start),),
        txn_index_empty=rng.random() < 0.5,
    )
    if rng.random() < 0.7:
        return made
    return replace(
        made,
        custom_metadata=rng.choice([None, b"", b"custom"]),
        compacted_to=rng.choice([None, 7]),
        leader_epochs=rng.choice([made.leader_epochs, (*made.leader_epochs, SegmentEpoch(LeaderEpoch(4), start))]),
        state=rng.choice([SegmentState.COPY_STARTED, SegmentState.COPY_FINISHED]),
    )


def value(rng: random.Random, made: list[RemoteSegment]) -> bytes | None:
    choice = rng.random()
    if choice < 0.4 or not made:
        made.append(segment(rng))
        return encode_event(made[-1])
    if choice < 0.45:
        return encode_event(rng.choice(made))
    if choice < 0.46:
        states = list(PartitionDeleteState)
        return encode_event(PartitionDelete(rng.choice(PARTITIONS), rng.choice(states), 1, BrokerId(1)))
    if choice < 0.48:
        return damaged(rng, encode_event(rng.choice(made)))
    if choice < 0.49:
        return rng.choice([None, b"", b"\x01"])
    state = rng.choice([SegmentState.COPY_FINISHED] * 3 + list(SegmentState))
    return encode_event(SegmentUpdate(rng.choice(made[-20:]).id, state, 9, BrokerId(2), rng.choice([None, None, b"c"])))


def damaged(rng: random.Random, whole: bytes) -> bytes:
    at = rng.randrange(len(whole))
    return rng.choice([whole[:at], whole + b"\x00", whole[:at] + bytes([rng.randrange(256)]) + whole[at + 1 :]])


def outcome(apply: object, *arguments: object) -> type[Exception] | None:
    assert callable(apply)
    try:
        apply(*arguments)
    except (UndecodableEvent, InvalidSegmentTransition) as error:
        return type(error)
    return None


def general(metadata: MaterializedMetadata, one: bytes | None) -> None:
    metadata.apply(decode_event(one))


@pytest.mark.parametrize("seed", range(12))
def test_fast_path_agrees_with_general_path(seed: int) -> None:
    rng = random.Random(seed)
    folded, known, made = MaterializedMetadata(), MaterializedMetadata(), list[RemoteSegment]()
    folding = MetadataFolding(folded)
    for step in range(600):
        one = value(rng, made)
        assert outcome(folding.apply, one) is outcome(general, known, one), one
        if step % 50 == 49:
            assert pack_snapshot(POSITION, folded) == pack_snapshot(POSITION, known)
    assert folded.segment_count > 10


def test_observer_is_called_for_finished_segments() -> None:
    metadata, rng = MaterializedMetadata(), random.Random(1)
    folding, first = MetadataFolding(metadata), replace(segment(rng), state=SegmentState.COPY_STARTED)
    folding.apply(encode_event(first))
    chain = RemoteLogLayout(metadata.cache(first.id.partition), Lineage([(first.leader_epochs[0].epoch, 0)], 1_000), 0)
    while not chain.settle(10):
        pass
    folding.apply(encode_event(SegmentUpdate(first.id, SegmentState.COPY_FINISHED, 9, BrokerId(2))))
    assert chain.finished_bytes == first.size_bytes
