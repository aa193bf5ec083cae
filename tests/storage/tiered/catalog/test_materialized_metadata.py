"""The metadata cache of a partition is one object, from before its first event to after its last."""

import gc
import weakref
from dataclasses import replace

from protocol.ids import BrokerId
from storage.tiered.catalog.materialized_metadata import MaterializedMetadata
from storage.tiered.segment_metadata import (
    PartitionDelete,
    PartitionDeleteState,
    RemoteSegment,
    SegmentState,
    SegmentUpdate,
)
from tests.storage.tiered.sample_segments import PARTITION, segment


class ChangeRecorder:
    """A SegmentObserver."""

    def __init__(self) -> None:
        self.changes: list[str] = []

    def on_available(self, row: int, segment: RemoteSegment) -> None:
        self.changes.append(f"+{segment.start_offset}")

    def on_unavailable(self, row: int, segment: RemoteSegment) -> None:
        self.changes.append(f"-{segment.start_offset}")


def events(first: RemoteSegment, *states: SegmentState) -> list[SegmentUpdate]:
    return [SegmentUpdate(first.id, state, 1, BrokerId(2)) for state in states]


def test_empty_cache_is_stable_while_referenced() -> None:
    metadata = MaterializedMetadata()
    held = metadata.cache(PARTITION)
    gc.collect()
    assert metadata.cache(PARTITION) is held
    assert list(metadata) == []
    reference = weakref.ref(held)
    del held
    gc.collect()
    assert reference() is None, "lookups of an absent partition leave no cache behind"


def test_observer_of_held_cache_sees_all_changes() -> None:
    metadata, observer, first = MaterializedMetadata(), ChangeRecorder(), segment(100)
    held = metadata.cache(PARTITION)
    held.observer = observer
    metadata.apply(first)
    assert metadata.cache(PARTITION) is held
    for event in events(first, SegmentState.COPY_FINISHED, SegmentState.DELETE_STARTED, SegmentState.DELETE_FINISHED):
        metadata.apply(event)
    assert list(metadata) == []
    assert metadata.cache(PARTITION) is held
    second = replace(segment(100, number=2, start_offset=5000), leader_epochs=first.leader_epochs)
    metadata.apply(second)
    metadata.apply(*events(second, SegmentState.COPY_FINISHED))
    assert observer.changes == ["+1000", "-1000", "+5000"]
    assert list(metadata) == [held]


def test_partition_with_running_removal_is_listed() -> None:
    metadata = MaterializedMetadata()
    metadata.apply(PartitionDelete(PARTITION, PartitionDeleteState.MARKED, 1, BrokerId(2)))
    gc.collect()
    deletion = metadata.cache(PARTITION).deletion
    assert deletion is not None
    assert deletion.state is PartitionDeleteState.MARKED
