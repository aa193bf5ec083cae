"""The log's metadata: start and end offset, leader epoch boundaries, and snapshots. Records are not kept here.

The view runs ahead of the disk: it describes the log after all operations in taken and collected Readys.
"""

from bisect import bisect_left, bisect_right
from collections import deque
from typing import Final, TypeAlias

from broker.quorum.identity import LogPosition, SnapshotId
from broker.quorum.settings import Recovered, StoredSnapshot
from protocol.ids import EPOCH_ZERO, LeaderEpoch, Offset
from protocol.lazy_dataclass import lazy_dataclass


@lazy_dataclass(frozen=True, slots=True)
class Valid:
    """The leader's log contains the follower's log as a prefix; the follower may continue to fetch."""


@lazy_dataclass(frozen=True, slots=True)
class Diverging:
    """The follower's records beyond this epoch's end offset differ from the leader's."""

    position: LogPosition


@lazy_dataclass(frozen=True, slots=True)
class NeedsSnapshot:
    """The follower needs a snapshot: the leader's log no longer has the records, or the follower has none at all."""

    snapshot_id: SnapshotId


Validation: TypeAlias = Valid | Diverging | NeedsSnapshot
VALID: Final = Valid()


class LogView:
    """The metadata of one replica's log.

    Theory. Two logs with a record of equal offset and epoch are equal up to that record, because an epoch has one
    leader, which writes each offset once. The start offsets of epochs therefore describe a log, and a follower's last
    (epoch, end offset) shows the leader where the logs diverge: if the leader's end of that epoch is smaller, or the
    leader has no such epoch, it responds with the end of the largest epoch not above it. The follower truncates to the
    lesser of that offset and its own end of that epoch. Each round names an older epoch, so the exchange terminates
    (KIP-595).

    A snapshot replaces a prefix of the log. Its id contains the epoch of the last record in the prefix, so an empty log
    that starts at a snapshot still has a last epoch (KIP-630).
    """

    def __init__(self, recovered: Recovered) -> None:
        self.start = recovered.log_start_offset
        self.end = recovered.log_end_offset
        self.bytes = recovered.log_bytes
        """Approximate log size: trimming and truncation assume equal record sizes throughout the log."""
        self.synced_end: int = recovered.log_end_offset
        """The end offset of the records that are known to be on disk."""
        self._syncing: deque[int] = deque()
        """The ends of the records that the fsyncs under way cover, in order."""
        self._epochs = [entry.epoch for entry in recovered.epochs]
        self._starts = [entry.start_offset for entry in recovered.epochs]
        self.snapshots: list[StoredSnapshot] = sorted(recovered.snapshots, key=lambda each: each.id.position)

    @property
    def last_epoch(self) -> LeaderEpoch:
        """The epoch of the last record, possibly one that only a snapshot contains; 0 if the log never had a record."""
        if self._epochs:
            return self._epochs[-1]
        newest = self.newest_snapshot
        return newest.epoch if newest is not None and newest.end_offset == self.end else EPOCH_ZERO

    @property
    def position(self) -> LogPosition:
        """The last epoch and end offset, as compared in elections."""
        return LogPosition(self.last_epoch, self.end)

    @property
    def newest_snapshot(self) -> SnapshotId | None:
        return self.snapshots[-1].id if self.snapshots else None

    @property
    def oldest_snapshot(self) -> SnapshotId | None:
        return self.snapshots[0].id if self.snapshots else None

    def snapshot(self, snapshot_id: SnapshotId) -> StoredSnapshot | None:
        """Return the stored snapshot with the id, or None."""
        return next((each for each in self.snapshots if each.id == snapshot_id), None)

    # Lookups

    def end_offset_for_epoch(self, epoch: LeaderEpoch) -> LogPosition:
        """Return the largest epoch not above `epoch`, and its end offset.

        For an epoch older than all epochs of the log: the log start offset, with the epoch of the oldest snapshot if
        that snapshot ends there. For an epoch newer than all: the log end.
        """
        if not self._epochs or epoch > self._epochs[-1]:
            return LogPosition(self.last_epoch, self.end)
        if epoch == self._epochs[-1]:
            return LogPosition(epoch, self.end)
        newer = bisect_right(self._epochs, epoch)
        if newer > 0:
            return LogPosition(self._epochs[newer - 1], self._starts[newer])
        oldest = self.oldest_snapshot
        if oldest is not None and oldest.end_offset == self._starts[0]:
            return oldest.position
        return LogPosition(epoch, self._starts[0])

    def validate(self, offset: Offset, epoch: LeaderEpoch) -> Validation:
        """Compare a follower's log, which ends at `offset` with a record of `epoch`, with this log (KIP-595, KIP-630).

        A follower's log may end below this log's start with uncommitted records of a later epoch than any snapshot. The
        follower would reject every snapshot as older (Kafka's replica fails in this case), so it truncates first.
        """
        newest, oldest = self.newest_snapshot, self.oldest_snapshot
        if offset == 0 and newest is not None:
            return NeedsSnapshot(newest)
        if offset == 0 == self.start:
            return VALID
        if newest is not None and oldest is not None:
            is_stranger = offset == self.start and epoch != oldest.epoch
            if offset < self.start or is_stranger or epoch < oldest.epoch:
                is_newer = newest.position > LogPosition(epoch, offset)
                return NeedsSnapshot(newest) if is_newer else Diverging(oldest.position)
        position = self.end_offset_for_epoch(epoch)
        if position.epoch != epoch or position.end_offset < offset:
            return Diverging(position)
        return VALID

    def lacks(self, snapshot_id: SnapshotId) -> bool:
        """Whether the snapshot contains records that this log lacks, or for which this log has different records."""
        offset, epoch = snapshot_id
        known = self.newest_snapshot or SnapshotId(self.start, EPOCH_ZERO)
        if offset < known.end_offset or epoch < known.epoch:
            return False
        return self.epoch_before(offset) != epoch

    def truncation_offset(self, diverging: LogPosition) -> Offset:
        """Return the offset to truncate to when the leader reports `diverging`."""
        if diverging.epoch == 0:
            return min(diverging.end_offset, self.end)
        own = self.end_offset_for_epoch(diverging.epoch)
        return min(own.end_offset, diverging.end_offset) if own.epoch == diverging.epoch else own.end_offset

    def epoch_before(self, offset: Offset) -> LeaderEpoch | None:
        """Return the epoch of the record that precedes `offset`; None if this log does not contain it."""
        if offset > self.end or offset < self.start:
            return None
        if offset == self.start:
            return next((each.id.epoch for each in self.snapshots if each.id.end_offset == offset), None)
        index = bisect_left(self._starts, offset) - 1
        return self._epochs[index] if index >= 0 else None

    # Changing

    def append(self, end_offset: Offset, epoch: LeaderEpoch, size: int) -> None:
        """Append records of one epoch."""
        if not self._epochs or self._epochs[-1] != epoch:
            self._epochs.append(epoch)
            self._starts.append(self.end)
        self.end = end_offset
        self.bytes += size

    def truncate_to(self, offset: Offset) -> None:
        """Remove records and epochs from `offset` on, including epochs without a record."""
        self.bytes = self._bytes_between(self.start, offset)
        self.synced_end = min(self.synced_end, offset)
        self._syncing = deque(min(end, offset) for end in self._syncing)
        self.end = min(self.end, offset)
        kept = bisect_left(self._starts, offset)
        del self._epochs[kept:], self._starts[kept:]
        self.snapshots = [each for each in self.snapshots if each.id.end_offset <= offset]

    def start_at(self, snapshot: StoredSnapshot) -> None:
        """Replace the whole log by a snapshot, which is on disk."""
        self.start = self.end = self.synced_end = snapshot.id.end_offset
        self._syncing = deque(0 for _ in self._syncing)
        self.bytes = 0
        self._epochs, self._starts, self.snapshots = [], [], [snapshot]

    def trim(self, snapshot_id: SnapshotId) -> None:
        """Raise the log start offset to the snapshot's end offset, and remove older snapshots."""
        offset = snapshot_id.end_offset
        self.bytes = self._bytes_between(offset, self.end)
        self.start = offset
        gone = bisect_right(self._starts, offset) - 1
        if gone >= 0:
            del self._epochs[:gone], self._starts[:gone]
            self._starts[0] = offset
        self.snapshots = [each for each in self.snapshots if each.id.end_offset >= offset]

    def add_snapshot(self, snapshot: StoredSnapshot) -> bool:
        """Add a stored snapshot. Return False if it is already known or ends below the log start offset."""
        if snapshot.id.end_offset < self.start or self.snapshot(snapshot.id) is not None:
            return False
        self.snapshots.append(snapshot)
        self.snapshots.sort(key=lambda each: each.id.position)
        return True

    def begin_sync(self) -> None:
        """Record that an fsync covers the log up to its present end. Several may be under way."""
        self._syncing.append(self.end)

    def complete_sync(self) -> None:
        """Raise `synced_end` to the end at the oldest `begin_sync`, except for records that were truncated since."""
        self.synced_end = max(self.synced_end, self._syncing.popleft())

    def _bytes_between(self, start: Offset, end: Offset) -> int:
        whole = self.end - self.start
        return self.bytes * max(0, end - start) // whole if whole > 0 else 0
