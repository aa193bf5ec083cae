"""The remote segments that hold given offsets of a hosted partition.

The same offset may be in several segments with different histories (KIP-405, scenarios 3 to 5). The leader epochs of
this replica's log decide; a segment counts as far as it agrees with them.

A hole is a remote offset that no known segment holds. Its metadata may be late, or `ottla remote recover` may bring the
segment back, so readers wait. If a leader that has read all metadata has not found a segment for
`ottla.remote.log.hole.patience.ms`, the next segment is returned instead: the records between are lost, and consumers
skip them as they skip compacted ones. (Kafka returns OFFSET_OUT_OF_RANGE at once. A consumer then resets its position,
either back to records that it has read, and to the same hole again, or past all records.) A hole that ends at the local
log start offset is not skipped before later segments are remote only: the metadata of the newest segments is late most
often. Offsets that an operator gave up (`ottla remote give-up`) are skipped at once, to the local log start offset as
well: a mark in the remote metadata says so until the log starts above them.
"""

from collections.abc import Callable, Collection
from typing import Final, NamedTuple

from cachetools import LRUCache

from broker.clock import Clock
from broker.logs import EventLog
from broker.runtime.partitions.partition import Partition
from protocol.ids import LeaderEpoch
from protocol.primitives import Uuid
from storage.tiered.catalog.lineage import NO_OFFSET, Lineage, claimed_remote_offset
from storage.tiered.errors import RemoteStorageError
from storage.tiered.remote_metadata import RemoteLogMetadataManager
from storage.tiered.segment_metadata import RemoteSegment, TopicIdPartition

HOLES_MAX: Final = 1_000
"""Number of holes that are remembered; the wait for a forgotten one begins anew."""
NEVER: Final = -1

_log = EventLog("broker.remote_reads")


class SegmentMissing(RemoteStorageError):
    """No known segment holds an offset that should be remote; its metadata may not have been read yet."""


class Located(NamedTuple):
    """A segment that holds an offset, and the last offset up to which it agrees with the log's leader epochs."""

    segment: RemoteSegment
    last_offset: int


class Holes:
    """The holes that this process has met, with the times when it first met them."""

    def __init__(self, clock: Clock, patience_ms: Callable[[], int]) -> None:
        self._clock = clock
        self._patience_ms = patience_ms
        self._since_ms: dict[tuple[TopicIdPartition, int, int], float] = {}
        self._skipped: LRUCache[tuple[TopicIdPartition, int, int], bool] = LRUCache(HOLES_MAX)
        self.skipped = 0
        """Number of holes that readers skipped, each counted where a reader met it first."""

    def note_skipped(self, partition: TopicIdPartition, epoch: LeaderEpoch, offset: int) -> bool:
        """Count a skipped hole; return whether it was not counted before."""
        hole = (partition, epoch, offset)
        if hole in self._skipped:
            return False
        self._skipped[hole] = True
        self.skipped += 1
        return True

    def may_be_skipped(self, partition: TopicIdPartition, epoch: LeaderEpoch, offset: int) -> bool:
        """Whether the hole at `offset` of `epoch` has been known for long enough."""
        patience_ms, now_ms = self._patience_ms(), self._clock.monotonic_ms()
        if patience_ms == NEVER:
            return False
        since_ms = self._since_ms.setdefault((partition, epoch, offset), now_ms)
        while len(self._since_ms) > HOLES_MAX:
            del self._since_ms[next(iter(self._since_ms))]
        return now_ms - since_ms >= patience_ms


class RemoteLocations:
    """Look-ups of remote offsets; all raise RemoteMetadataNotReady. Without `holes`, no hole is skipped."""

    def __init__(self, metadata: RemoteLogMetadataManager, holes: Holes | None = None) -> None:
        self._metadata = metadata
        self._holes = holes

    def locate(self, partition: Partition, offset: int) -> Located:
        """Return the segment that holds `offset`, or the one behind a hole. Raises SegmentMissing."""
        lineage = _lineage(partition)
        epoch = lineage.epoch_for(offset)
        located = None if epoch is None else self._located(partition, lineage, epoch, offset)
        if located is None and epoch is not None and self._may_skip(partition, epoch, offset):
            located = self._behind_hole(partition, lineage, epoch, offset)
        if located is None:
            raise SegmentMissing(f"no known remote segment of {partition} holds offset {offset} of epoch {epoch}")
        return located

    def _located(self, partition: Partition, lineage: Lineage, epoch: LeaderEpoch, offset: int) -> Located | None:
        segment = self._metadata.segment_for(_identity(partition), epoch, offset)
        last_offset = NO_OFFSET if segment is None else lineage.agreed_end(segment)
        return None if segment is None or last_offset < offset else Located(segment, last_offset)

    def _may_skip(self, partition: Partition, epoch: LeaderEpoch, offset: int) -> bool:
        """Whether to skip a hole; only a leader may, since it knows the log start offset."""
        if self._holes is None or not partition.is_leader:
            return False
        identity = _identity(partition)
        is_given_up = self._metadata.known(identity).given_up_to(epoch, offset) is not None
        return is_given_up or self._holes.may_be_skipped(identity, epoch, offset)

    def _behind_hole(self, partition: Partition, lineage: Lineage, epoch: LeaderEpoch, offset: int) -> Located | None:
        """Return the first remote segment above `offset` that agrees with the log and begins below its local part."""
        found = self._next_held(partition, lineage, offset)
        if found is None:
            return None
        at, located = found
        self._note_skipped(partition, epoch, offset, at)
        return located

    def _note_skipped(self, partition: Partition, epoch: LeaderEpoch, offset: int, next_offset: int) -> None:
        if self._holes is not None and self._holes.note_skipped(_identity(partition), epoch, offset):
            _log.error(
                "records are lost: no segment holds them, and consumers skip them",
                partition=partition,
                first=offset,
                next=next_offset,
            )

    def local_start_behind_hole(self, partition: Partition, offset: int) -> int | None:
        """Return the local log start offset if all offsets from `offset` to it are given up; otherwise None."""
        if not partition.is_leader:
            return None
        lineage, known = _lineage(partition), self._metadata.known(_identity(partition))
        at, start = offset, partition.log.local_log_start_offset
        while at < start:
            epoch = lineage.epoch_for(at)
            last_offset = None if epoch is None else known.given_up_to(epoch, at)
            if last_offset is None:
                return None
            at = last_offset + 1
        first_epoch = lineage.epoch_for(offset)
        if first_epoch is not None:
            self._note_skipped(partition, first_epoch, offset, start)
        return start

    def next_held(self, partition: Partition, offset: int) -> tuple[int, Located] | None:
        """Return the first offset from `offset` on that a segment holds, below the local log, with the segment."""
        return self._next_held(partition, _lineage(partition), offset)

    def _next_held(self, partition: Partition, lineage: Lineage, offset: int) -> tuple[int, Located] | None:
        known = self._metadata.known(_identity(partition))
        bound = partition.log.local_log_start_offset
        ends = [*(entry.start_offset for entry in lineage.entries[1:]), bound]
        for entry, end in zip(lineage.entries, ends, strict=False):
            at: int | None = max(offset, entry.start_offset)
            while at is not None and at < min(end, bound):
                located = self._located(partition, lineage, entry.epoch, at)
                if located is not None:
                    return at, located
                at = known.next_offset(entry.epoch, at)
        return None

    def is_held(self, partition: Partition, offset: int) -> bool:
        """Whether a known segment holds `offset`."""
        found = self.next_held(partition, offset)
        return found is not None and found[0] == offset

    def may_skip_hole(self, partition: Partition, offset: int) -> bool:
        """Whether the hole at `offset` has been known for long enough; a hole without a leader epoch never is."""
        epoch = _lineage(partition).epoch_for(offset)
        return epoch is not None and self._may_skip(partition, epoch, offset)

    def other_copy(self, partition: Partition, offset: int, failed: Collection[Uuid]) -> Located | None:
        """Return the furthest reaching segment that holds `offset`, beside the `failed` ones."""
        lineage = _lineage(partition)
        epoch = lineage.epoch_for(offset)
        if epoch is None:
            return None
        copies = self._metadata.known(_identity(partition)).copies_of(epoch, offset)
        found = [Located(copy, lineage.agreed_end(copy)) for copy in copies if copy.id.id not in failed]
        found = [located for located in found if located.last_offset >= offset]
        return max(found, key=lambda located: located.last_offset, default=None)

    def with_aborted(self, partition: Partition, offset: int) -> Located | None:
        """Return the first segment from `offset` on whose index may list aborted transactions, if there is one."""
        lineage = _lineage(partition)
        present = lineage.epoch_for(offset)
        if present is not None:
            for epoch, start_offset in lineage.entries:
                if epoch >= present:
                    found = self._with_aborted(partition, lineage, epoch, max(offset, start_offset))
                    if found is not None:
                        return found
        return None

    def _with_aborted(self, partition: Partition, lineage: Lineage, epoch: LeaderEpoch, offset: int) -> Located | None:
        while (segment := self._metadata.next_with_aborted(_identity(partition), epoch, offset)) is not None:
            last_offset = lineage.agreed_end(segment)
            if last_offset >= offset:
                return Located(segment, last_offset)
            offset = segment.end_offset + 1
        return None

    def highest_offset(self, partition: Partition) -> int:
        """Return the last offset of this log in remote storage; -1 if there is none."""
        identity = _identity(partition)
        return claimed_remote_offset(_lineage(partition), lambda epoch: self._metadata.highest_offset(identity, epoch))


def _identity(partition: Partition) -> TopicIdPartition:
    return TopicIdPartition(partition.topic_id, partition.topic, partition.index)


def _lineage(partition: Partition) -> Lineage:
    log = partition.log
    return Lineage(log.epochs.entries, log.log_end_offset)
