"""Snapshots of the metadata topic: complete after a crash, or ignored."""

import random
from dataclasses import replace

import pytest

from protocol.ids import BrokerId, LeaderEpoch
from protocol.primitives import ONE_UUID
from storage.files import read_file, write_file
from storage.tiered.catalog.materialized_metadata import MaterializedMetadata
from storage.tiered.catalog.metadata_cache import RemoteLogMetadataCache
from storage.tiered.catalog.metadata_snapshot import (
    CorruptSnapshot,
    SnapshotPosition,
    pack_snapshot,
    read_snapshot,
    snapshot_path,
    write_snapshot,
)
from storage.tiered.errors import InvalidSegmentTransition
from storage.tiered.segment_metadata import (
    NO_TIMESTAMP,
    TOOL_BROKER_ID,
    PartitionDelete,
    PartitionDeleteState,
    RemoteSegment,
    SegmentState,
    SegmentUpdate,
)
from tests.storage.tiered.catalog.reference_metadata import ReferenceMetadata
from tests.storage.tiered.catalog.test_metadata_cache import assert_agrees, copied, random_event, segment
from tests.storage.tiered.sample_segments import OTHER_PARTITION, PARTITION
from tests.support.fakes.memory_files import MemoryFileSystem

DIRECTORY = "data/remote-log-metadata"
PATH = snapshot_path(DIRECTORY, 7)
POSITION = SnapshotPosition(ONE_UUID, 7, 1234, LeaderEpoch(5))


def filled(seed: int) -> tuple[MaterializedMetadata, ReferenceMetadata]:
    """Return metadata after random events, and a reference model."""
    rng = random.Random(seed)
    metadata, reference = MaterializedMetadata(), ReferenceMetadata()
    made: list[RemoteSegment] = []
    for _ in range(300):
        event = random_event(rng, made)
        reference.apply(event)
        try:
            metadata.apply(event)
        except InvalidSegmentTransition:
            continue
    return metadata, reference


def file_system() -> MemoryFileSystem:
    fs = MemoryFileSystem()
    fs.make_directory(DIRECTORY)
    return fs


@pytest.mark.parametrize("seed", range(6))
def test_snapshot_restores_state_and_accepts_events(seed: int) -> None:
    fs = file_system()
    metadata, reference = filled(seed)
    metadata.apply(PartitionDelete(OTHER_PARTITION, PartitionDeleteState.STARTED, 8, BrokerId(9)))
    write_snapshot(fs, PATH, pack_snapshot(POSITION, metadata))
    position, restored = read_snapshot(fs, PATH)
    assert position == POSITION
    assert_agrees(restored.cache(PARTITION), reference)
    assert restored.cache(OTHER_PARTITION).deletion == metadata.cache(OTHER_PARTITION).deletion
    rng, made = random.Random(seed), list(reference.known.values())
    for number in range(300):
        event = random_event(rng, made)
        reference.apply(event)
        try:
            restored.apply(event)
        except InvalidSegmentTransition:
            continue
        if number % 50 == 0:
            assert_agrees(restored.cache(PARTITION), reference)


def test_packed_snapshot_is_a_copy() -> None:
    fs = file_system()
    cache = RemoteLogMetadataCache(PARTITION)
    known = copied(cache, segment(1, 0, 9, [(0, 0)]))
    packed = pack_snapshot(POSITION, MaterializedMetadata([cache]))
    copied(cache, segment(2, 10, 19, [(0, 10)]))
    write_snapshot(fs, PATH, packed)
    assert read_snapshot(fs, PATH)[1].cache(PARTITION).segments() == [known]


def test_corrupt_snapshot_is_refused() -> None:
    fs = file_system()
    with pytest.raises(FileNotFoundError):
        read_snapshot(fs, PATH)
    metadata, _ = filled(1)
    write_snapshot(fs, PATH, pack_snapshot(POSITION, metadata))
    whole = read_file(fs, PATH)
    for position in (0, 22, 26, 30, 40, len(whole) // 2, len(whole) - 1):
        broken = bytearray(whole)
        broken[position] ^= 1
        write_file(fs, PATH, broken, sync=False)
        with pytest.raises(CorruptSnapshot):
            read_snapshot(fs, PATH)
    for size in (0, 10, 40, len(whole) - 1):
        write_file(fs, PATH, whole[:size], sync=False)
        with pytest.raises(CorruptSnapshot):
            read_snapshot(fs, PATH)


def test_repeated_events_restore_state_and_are_idempotent() -> None:
    metadata, reference = filled(3)
    metadata.apply(PartitionDelete(PARTITION, PartitionDeleteState.MARKED, 8, BrokerId(9)))
    reference.apply(PartitionDelete(PARTITION, PartitionDeleteState.MARKED, 8, BrokerId(9)))
    (partition,) = metadata.partitions()
    events, next_row = metadata.current_events(partition, 0, 1_000_000)
    assert next_row is None
    assert len(events) <= metadata.records_needed
    assert {event.state for event in events if isinstance(event, RemoteSegment)} == {SegmentState.COPY_STARTED}
    reborn = MaterializedMetadata()
    for event in events:
        reborn.apply(event)
    assert_agrees(reborn.cache(PARTITION), reference)
    for event in events:
        try:
            metadata.apply(event)
        except InvalidSegmentTransition:
            continue
    assert_agrees(metadata.cache(PARTITION), reference)
    assert metadata.segment_count == reborn.segment_count


def test_given_up_offsets_survive_snapshots_and_pruning() -> None:
    """Restarted brokers read a snapshot, and replicas with an empty disk a rewritten topic."""
    fs = file_system()
    metadata = MaterializedMetadata()
    mark = replace(
        segment(1, 10, 19, [(LeaderEpoch(0), 10)]),
        size_bytes=0,
        max_timestamp_ms=NO_TIMESTAMP,
        broker_id=TOOL_BROKER_ID,
    )
    metadata.apply(mark)
    metadata.apply(SegmentUpdate(mark.id, SegmentState.DELETE_STARTED, 9, TOOL_BROKER_ID))
    write_snapshot(fs, PATH, pack_snapshot(POSITION, metadata))
    _, restarted = read_snapshot(fs, PATH)
    rewritten = MaterializedMetadata()
    for event in metadata.current_events(PARTITION, 0, 10)[0]:
        rewritten.apply(event)
    for known in (restarted.cache(PARTITION), rewritten.cache(PARTITION)):
        given_up = [known.given_up_to(mark.leader_epochs[0].epoch, offset) is not None for offset in (9, 10, 19, 20)]
        assert given_up == [False, True, True, False]


def test_files_are_named_by_partition() -> None:
    assert snapshot_path("there", 7) == "there/00007.snapshot"
