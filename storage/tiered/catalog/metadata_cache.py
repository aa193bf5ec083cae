"""Remote segments of one partition: changed by events, queried in O(log n), about 100 bytes per segment.

Segments compacted in remote storage are looked up first, other segments only where there are none. So a late copy, or a
segment that a compacted one replaced, never hides the compacted one, however far it reaches, and a record removed by
compaction does not come back (`remote_compaction.py`).

Pure. The tables in `segment_state.py` say which events are valid; `epoch_intervals.py` finds finished segments by epoch
and offset, `segment_table.py` finds all segments by id. This class does not know whether it is up to date.
"""

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from protocol.ids import LeaderEpoch
from protocol.primitives import Uuid
from storage.tiered.catalog.epoch_intervals import EpochIntervals, IntervalColumns
from storage.tiered.catalog.segment_state import UnknownSegment, check_deletion, check_segment, check_update
from storage.tiered.catalog.segment_table import PlainFacts, SegmentTable, TableColumns
from storage.tiered.remote_metadata import SegmentObserver, SegmentPage
from storage.tiered.segment_metadata import (
    PartitionDelete,
    PartitionDeleteState,
    RemoteSegment,
    SegmentState,
    SegmentUpdate,
    TopicIdPartition,
)


class CacheColumns(NamedTuple):
    """All columns of a `RemoteLogMetadataCache`, for a snapshot; not a copy."""

    table: TableColumns
    unfinished: set[int]
    epochs: dict[LeaderEpoch, IntervalColumns]
    compacted: dict[LeaderEpoch, IntervalColumns]


class RemoteLogMetadataCache:
    """Segments of one partition that are not deleted yet.

    `deletion` is the last event in the removal of the whole partition; after the final one the cache is empty.
    `observer` is called when a segment becomes readable or unreadable; an observer that finds itself replaced has
    missed events.
    """

    __slots__ = (
        "__weakref__",
        "_compacted",
        "_epochs",
        "_table",
        "_unfinished",
        "deletion",
        "observer",
        "partition",
    )

    def __init__(self, partition: TopicIdPartition) -> None:
        self.partition = partition
        self.deletion: PartitionDelete | None = None
        self.observer: SegmentObserver | None = None
        self._table = SegmentTable(partition)
        self._epochs: dict[LeaderEpoch, EpochIntervals] = {}
        self._compacted: dict[LeaderEpoch, EpochIntervals] = {}
        self._unfinished: set[int] = set()  # rows of unreadable segments: not copied yet, or being deleted

    @classmethod
    def of_columns(
        cls, partition: TopicIdPartition, deletion: PartitionDelete | None, columns: CacheColumns
    ) -> "RemoteLogMetadataCache":
        """Restore a cache from its columns. Raises ValueError for invalid columns."""
        cache = cls(partition)
        cache.deletion = deletion
        cache._table = SegmentTable(partition, columns.table)
        cache._unfinished = columns.unfinished
        for layer, kept in ((cache._epochs, columns.epochs), (cache._compacted, columns.compacted)):
            layer.update((epoch, EpochIntervals(intervals)) for epoch, intervals in kept.items())
        return cache

    def columns(self) -> CacheColumns:
        copied, compacted = (
            {epoch: intervals.columns() for epoch, intervals in layer.items()}
            for layer in (self._epochs, self._compacted)
        )
        return CacheColumns(self._table.columns(), self._unfinished, copied, compacted)

    def __len__(self) -> int:
        return len(self._table)

    @property
    def is_empty(self) -> bool:
        """Whether nothing is known, so that this object may be dropped."""
        return not len(self._table) and self.deletion is None

    # ---- events

    def add(self, segment: RemoteSegment) -> None:
        """Add a new segment. Raises InvalidSegmentTransition, also for any state but COPY_STARTED."""
        row = self._table.find(segment.id.id)
        check_segment(segment.id, None if row is None else self._table.state(row), segment.state)
        if row is None:
            self._unfinished.add(self._table.add(segment))
        elif segment.state is SegmentState.COPY_STARTED:
            self._table.replace(row, segment)

    def update(self, update: SegmentUpdate) -> None:
        """Apply an update. Raises InvalidSegmentTransition, UnknownSegment."""
        row = self._table.find(update.id.id)
        if row is None:
            raise UnknownSegment(f"{update.id} is not known and cannot become {update.state.name}")
        present = self._table.state(row)
        check_update(present, update)
        if present is SegmentState.COPY_FINISHED and update.state is not present:
            self._withdraw(row)
        if update.state is SegmentState.DELETE_FINISHED:
            self._unfinished.discard(row)
            self._table.remove(row)
            return
        before = self.finished_at(row)
        self._table.update(row, update)
        if update.state is SegmentState.COPY_FINISHED and update.state is not present:
            self._offer(row)
        elif before is not None and self.observer is not None:
            self.observer.on_unavailable(row, before)
            self.observer.on_available(row, self._table.segment(row))

    def add_plain(self, segment_id: bytes, facts: PlainFacts) -> bool:
        """Add a segment as `SegmentTable.add_plain`; False, without effect, if `add` must decide."""
        row = self._table.add_plain(segment_id, *facts)
        if row is None:
            return False
        self._unfinished.add(row)
        return True

    def finish_plain(self, segment_id: bytes, event_timestamp_ms: int, broker_id: int) -> bool:
        """Finish a copy as `SegmentTable.finish_plain`; False, without effect, if `update` must decide."""
        if self.observer is not None:
            return False
        finished = self._table.finish_plain(segment_id, event_timestamp_ms, broker_id)
        if finished is None:
            return False
        row, epoch, start, end, has_aborted = finished
        self._unfinished.discard(row)
        intervals = self._epochs.get(epoch)
        if intervals is None:
            intervals = self._epochs[epoch] = EpochIntervals()
        intervals.add(start, end, row, has_aborted)
        return True

    def delete_partition(self, event: PartitionDelete) -> None:
        """Apply an event in the removal of the partition. Raises InvalidSegmentTransition."""
        check_deletion(self.partition, None if self.deletion is None else self.deletion.state, event.state)
        if event.state is PartitionDeleteState.FINISHED:
            self.deletion = None
            self._table = SegmentTable(self.partition)
            self._epochs, self._compacted = {}, {}
            self._unfinished = set()
            self.observer = None
        else:
            self.deletion = event

    def _offer(self, row: int) -> None:
        """Make a segment readable."""
        self._unfinished.discard(row)
        has_aborted = self._table.has_txn_index(row)
        layer = self._layer(row)
        for epoch, first, last in self._ranges(row):
            intervals = layer.get(epoch)
            if intervals is None:
                intervals = layer[epoch] = EpochIntervals()
            intervals.add(first, last, row, has_aborted)
        if self.observer is not None:
            self.observer.on_available(row, self._table.segment(row))

    def _withdraw(self, row: int) -> None:
        """Make a segment unreadable."""
        if self.observer is not None:
            self.observer.on_unavailable(row, self._table.segment(row))
        self._unfinished.add(row)
        layer = self._layer(row)
        for epoch, first, last in self._ranges(row):
            intervals = layer[epoch]
            intervals.remove(first, last, row)
            if not intervals:
                del layer[epoch]

    def _layer(self, row: int) -> dict[LeaderEpoch, EpochIntervals]:
        return self._compacted if self._table.is_compacted(row) else self._epochs

    def _layers(self, epoch: LeaderEpoch) -> list[EpochIntervals]:
        """Return the layers of an epoch in look-up order."""
        found = (self._compacted.get(epoch), self._epochs.get(epoch))
        return [intervals for intervals in found if intervals is not None]

    # ---- queries

    def get(self, segment_id: Uuid) -> RemoteSegment | None:
        """Return a segment in any state."""
        row = self._table.find(segment_id)
        return None if row is None else self._table.segment(row)

    def page(self, first_row: int, count: int) -> SegmentPage:
        """Return segments of `count` rows from `first_row` on, in any state, in arbitrary order."""
        bound = min(first_row + count, self._table.row_count)
        found = [(row, self._table.segment(row)) for row in range(first_row, bound) if self._table.has(row)]
        return SegmentPage(found, bound if bound < self._table.row_count else None)

    def finished_at(self, row: int) -> RemoteSegment | None:
        """Return the segment of a row if it is readable."""
        return self._table.segment(row) if self.is_finished(row) else None

    def is_finished(self, row: int) -> bool:
        """Whether a row stands for a readable segment."""
        return self._table.has(row) and row not in self._unfinished

    def offsets(self, row: int) -> tuple[int, int]:
        """Return the first and last offset of a row that stands for a segment."""
        return self._table.offsets(row)

    def max_timestamp_ms(self, row: int) -> int:
        """Return the highest timestamp of a row that stands for a segment."""
        return self._table.max_timestamp_ms(row)

    def compacted_to(self, row: int) -> int | None:
        """Return `RemoteSegment.compacted_to` of a row that stands for a segment."""
        return self._table.compacted_to(row)

    def unfinished(self) -> list[RemoteSegment]:
        """Return the unreadable segments by start and end offset: not copied yet, or being deleted."""
        return self._in_order(self._unfinished)

    def segment_for(self, epoch: LeaderEpoch, offset: int) -> RemoteSegment | None:
        """Return the finished segment that holds `offset` of `epoch`: a compacted one if possible, and of several the
        one that reaches furthest in that epoch.
        """
        rows = (intervals.find(offset) for intervals in self._layers(epoch))
        row = next((row for row in rows if row is not None), None)
        return None if row is None else self._table.segment(row)

    def copies_of(self, epoch: LeaderEpoch, offset: int) -> list[RemoteSegment]:
        """Return all finished segments that hold `offset` of `epoch`; none if a compacted one does."""
        compacted, copied = self._compacted.get(epoch), self._epochs.get(epoch)
        if copied is None or (compacted is not None and compacted.find(offset) is not None):
            return []
        return [self._table.segment(row) for row in copied.holding(offset)]

    def given_up_to(self, epoch: LeaderEpoch, offset: int) -> int | None:
        """Return the last offset of a given-up range of `epoch` that includes `offset`; None if there is none.

        The method examines the unreadable segments, which are few.
        """
        ends = (
            last
            for row in self._unfinished
            if self._table.segment(row).is_given_up_mark
            for each, first, last in self._ranges(row)
            if each == epoch and first <= offset <= last
        )
        return max(ends, default=None)

    def next_offset(self, epoch: LeaderEpoch, offset: int) -> int | None:
        """Return the next offset above `offset` at which a finished segment, or its part of `epoch`, begins."""
        found = (intervals.next_first(offset) for intervals in self._layers(epoch))
        return min((first for first in found if first is not None), default=None)

    def highest_offset(self, epoch: LeaderEpoch) -> int | None:
        """Return the last offset of `epoch` in any finished segment."""
        highest = (intervals.highest for intervals in self._layers(epoch))
        return max((offset for offset in highest if offset is not None), default=None)

    def first_within(self, epoch: LeaderEpoch, first: int, last: int) -> int | None:
        """Return the first offset of `epoch` in the finished segments with offsets of it in [first, last]."""
        found = (intervals.first_within(first, last) for intervals in self._layers(epoch))
        return min((offset for offset in found if offset is not None), default=None)

    def newest(self) -> list[RemoteSegment]:
        """Return the finished segments of the latest leader epoch that end last."""
        epoch = max((*self._epochs, *self._compacted), default=None)
        end = None if epoch is None else self.highest_offset(epoch)
        if epoch is None or end is None:
            return []
        rows = {row for intervals in self._layers(epoch) for row in intervals.ending_within(end, end)}
        return self._in_order(rows)

    def ending_within(self, first: int, last: int) -> list[RemoteSegment]:
        """Return the finished segments whose last offset is in [first, last], by start and end offset."""
        layers = (*self._epochs.values(), *self._compacted.values())
        rows = {row for intervals in layers for row in intervals.ending_within(first, last)}
        return self._in_order(row for row in rows if first <= self._table.offsets(row)[1] <= last)

    def next_with_aborted(self, epoch: LeaderEpoch, offset: int) -> RemoteSegment | None:
        """Return the first finished segment with a transaction index, from `offset` of `epoch` on, within the epoch."""
        rows = (intervals.next_aborted(offset) for intervals in self._layers(epoch))
        found = [row for row in rows if row is not None]
        return self._table.segment(min(found, key=self._table.offsets)) if found else None

    def segments(self, epoch: LeaderEpoch | None = None) -> list[RemoteSegment]:
        """Return segments in any state by start and end offset, optionally only those with records of `epoch`."""
        rows = self._table.rows() if epoch is None else self._rows_of(epoch)
        return self._in_order(rows)

    def _in_order(self, rows: Iterable[int]) -> list[RemoteSegment]:
        return [self._table.segment(row) for _, row in sorted((self._table.offsets(row), row) for row in rows)]

    def _rows_of(self, epoch: LeaderEpoch) -> Iterable[int]:
        rows = [row for intervals in self._layers(epoch) for row in intervals.rows()]
        rows += (row for row in self._unfinished if any(one == epoch for one, _, _ in self._ranges(row)))
        return rows

    def _ranges(self, row: int) -> Iterator[tuple[LeaderEpoch, int, int]]:
        """Iterate over (epoch, first offset, last offset) of the epochs with records in a segment."""
        start, end = self._table.offsets(row)
        epochs = self._table.epochs(row)
        for number, (epoch, offset) in enumerate(epochs, 1):
            first = max(offset, start)
            last = epochs[number].start_offset - 1 if number < len(epochs) else end
            if first <= last:
                yield epoch, first, last
