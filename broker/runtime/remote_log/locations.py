"""Where in remote storage an offset of a hosted partition is, by the metadata and the partition's own leader epochs.

The same offset may be in several segments, of several histories (KIP-405, scenarios 3 to 5). What counts is the history
of this replica's log; a segment counts as far as it agrees with that.

An offset that should be there and is not is a hole: nobody knows of a segment that has it. It may only be late, or what
`ottla remote recover` would bring back; so it is waited for. Where a leader that has read all metadata has not found it
for `ottla.remote.log.hole.patience.ms`, the next segment is given in its place: the records in between are lost, and
consumers go on behind them as they do behind compacted ones. (Kafka answers OFFSET_OUT_OF_RANGE at once. A consumer
resets then, to what it has read already and to the same hole once more, or past all that there is.) A hole that ends
where the local log begins is waited for until segments behind it are remote alone.
"""

from collections.abc import Callable
from typing import Final, NamedTuple

from broker.clock import Clock
from broker.logs import EventLog
from broker.runtime.partitions.partition import Partition
from storage.tiered.catalog.lineage import NO_OFFSET, Lineage, claimed_remote_offset
from storage.tiered.errors import RemoteStorageError
from storage.tiered.remote_metadata import RemoteLogMetadataManager
from storage.tiered.segment_metadata import RemoteSegment, TopicIdPartition

HOLES_MAX: Final = 1_000
"""So many are remembered; one that is forgotten is waited for anew."""
NEVER: Final = -1

_log = EventLog("broker.remote_reads")


class SegmentMissing(RemoteStorageError):
    """An offset should be in remote storage, but no segment is known that has it: perhaps it is not known here yet."""


class Located(NamedTuple):
    """A segment that has the offset asked for, and the last offset up to which it is of the log's history."""

    segment: RemoteSegment
    last_offset: int


class Holes:
    """Since when each of them has been known, in this process."""

    def __init__(self, clock: Clock, patience_ms: Callable[[], int]) -> None:
        self._clock = clock
        self._patience_ms = patience_ms
        self._since_ms: dict[tuple[TopicIdPartition, int, int], float] = {}

    def may_be_skipped(self, partition: TopicIdPartition, epoch: int, offset: int) -> bool:
        """Whether one at `offset`, as `epoch` wrote it, has been known for long enough."""
        patience_ms, now_ms = self._patience_ms(), self._clock.monotonic_ms()
        if patience_ms == NEVER:
            return False
        since_ms = self._since_ms.setdefault((partition, epoch, offset), now_ms)
        while len(self._since_ms) > HOLES_MAX:
            del self._since_ms[next(iter(self._since_ms))]
        return now_ms - since_ms >= patience_ms


class RemoteLocations:
    """Questions about partitions; all raise RemoteMetadataNotReady. Without `holes` none is ever skipped."""

    def __init__(self, metadata: RemoteLogMetadataManager, holes: Holes | None = None) -> None:
        self._metadata = metadata
        self._holes = holes

    def locate(self, partition: Partition, offset: int) -> Located:
        """The segment that has `offset`; or the one behind a hole, which begins above it. Raises SegmentMissing."""
        lineage = _lineage(partition)
        epoch = lineage.epoch_for(offset)
        located = None if epoch is None else self._located(partition, lineage, epoch, offset)
        if located is None and epoch is not None and self._may_skip(partition, epoch, offset):
            located = self._behind_hole(partition, lineage, epoch, offset)
        if located is None:
            raise SegmentMissing(f"no remote segment of {partition} is known to hold offset {offset} of epoch {epoch}")
        return located

    def _located(self, partition: Partition, lineage: Lineage, epoch: int, offset: int) -> Located | None:
        segment = self._metadata.segment_for(_identity(partition), epoch, offset)
        last_offset = NO_OFFSET if segment is None else lineage.agreed_end(segment)
        return None if segment is None or last_offset < offset else Located(segment, last_offset)

    def _may_skip(self, partition: Partition, epoch: int, offset: int) -> bool:
        """A follower leaves it to its leader, who knows where the log begins."""
        is_patient = self._holes is None or not self._holes.may_be_skipped(_identity(partition), epoch, offset)
        return partition.is_leader and not is_patient

    def _behind_hole(self, partition: Partition, lineage: Lineage, present: int, offset: int) -> Located | None:
        """The first segment above `offset`, below what is on this disk, that is of the log's history."""
        known = self._metadata.known(_identity(partition))
        bound = partition.log.local_log_start_offset
        for entry, end in zip(
            lineage.entries, [*(one.start_offset for one in lineage.entries[1:]), bound], strict=True
        ):
            at: int | None = max(offset, entry.start_offset)
            while entry.epoch >= present and at is not None and at < min(end, bound):
                located = self._located(partition, lineage, entry.epoch, at)
                if located is not None:
                    _log.error(
                        "records are lost: nobody has them, and consumers are sent past them",
                        partition=partition,
                        first=offset,
                        next=at,
                    )
                    return located
                at = known.next_offset(entry.epoch, at)
        return None

    def with_aborted(self, partition: Partition, offset: int) -> Located | None:
        """The first segment from `offset` on that may tell of aborted transactions; None if there is none."""
        lineage = _lineage(partition)
        present = lineage.epoch_for(offset)
        if present is not None:
            for epoch, start_offset in lineage.entries:
                if epoch >= present:
                    found = self._with_aborted(partition, lineage, epoch, max(offset, start_offset))
                    if found is not None:
                        return found
        return None

    def _with_aborted(self, partition: Partition, lineage: Lineage, epoch: int, offset: int) -> Located | None:
        while (segment := self._metadata.next_with_aborted(_identity(partition), epoch, offset)) is not None:
            last_offset = lineage.agreed_end(segment)
            if last_offset >= offset:
                return Located(segment, last_offset)
            offset = segment.end_offset + 1
        return None

    def highest_offset(self, partition: Partition) -> int:
        """The last offset of this log that remote storage has; -1 if it has none."""
        identity = _identity(partition)
        return claimed_remote_offset(_lineage(partition), lambda epoch: self._metadata.highest_offset(identity, epoch))


def _identity(partition: Partition) -> TopicIdPartition:
    return TopicIdPartition(partition.topic_id, partition.topic, partition.index)


def _lineage(partition: Partition) -> Lineage:
    log = partition.log
    return Lineage(log.epochs.entries, log.log_end_offset)
