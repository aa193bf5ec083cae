"""The log as the protocol sees it: where it starts and ends, which epoch begins where, which snapshots there are.

It runs ahead of the disk: it is what the log will be once all operations handed out are done. Records are not here.
"""

from bisect import bisect_left, bisect_right
from dataclasses import dataclass
from typing import Final, TypeAlias

from broker.quorum.identity import LogPosition, SnapshotId
from broker.quorum.settings import Recovered, StoredSnapshot


@dataclass(frozen=True, slots=True)
class Valid:
    """The leader's log contains the whole prefix; reading may go on from here."""


@dataclass(frozen=True, slots=True)
class Diverging:
    """Records beyond the end offset of this epoch differ from the leader's."""

    position: LogPosition


@dataclass(frozen=True, slots=True)
class NeedsSnapshot:
    """What is missing is not in the leader's log any more (or is more than a snapshot of it)."""

    snapshot_id: SnapshotId


Validation: TypeAlias = Valid | Diverging | NeedsSnapshot
VALID: Final = Valid()


class LogView:
    """Theory. Two logs that have a record of the same offset and epoch are equal up to it, because one epoch has one
    leader, which writes an offset once. So a log is described by its epochs' start offsets, and a follower's last
    (epoch, end) tells the leader where they part: if the leader's own end of that epoch is below the follower's, or it
    knows no such epoch, it answers the end of the largest epoch not above it. The follower cuts to the lesser of that
    and its own end of that epoch; every round names an older epoch, so it ends (KIP-595).

    A snapshot stands for a prefix. Its id tells the epoch of the last record it stands for, so an empty log that begins
    at a snapshot still has a last epoch (KIP-630).
    """

    def __init__(self, recovered: Recovered) -> None:
        self.start = recovered.log_start_offset
        self.end = recovered.log_end_offset
        self.bytes = recovered.log_bytes
        """Roughly: what was trimmed is taken to be as dense as the rest."""
        self._epochs = [entry.epoch for entry in recovered.epochs]
        self._starts = [entry.start_offset for entry in recovered.epochs]
        self.snapshots: list[StoredSnapshot] = sorted(recovered.snapshots, key=lambda each: each.id.position)

    @property
    def last_epoch(self) -> int:
        """The epoch of the last record, maybe one that only a snapshot stands for; 0 if there never was one."""
        if self._epochs:
            return self._epochs[-1]
        newest = self.newest_snapshot
        return newest.epoch if newest is not None and newest.end_offset == self.end else 0

    @property
    def position(self) -> LogPosition:
        """What counts in elections."""
        return LogPosition(self.last_epoch, self.end)

    @property
    def newest_snapshot(self) -> SnapshotId | None:
        return self.snapshots[-1].id if self.snapshots else None

    @property
    def oldest_snapshot(self) -> SnapshotId | None:
        return self.snapshots[0].id if self.snapshots else None

    def snapshot(self, snapshot_id: SnapshotId) -> StoredSnapshot | None:
        """The stored snapshot of an id."""
        return next((each for each in self.snapshots if each.id == snapshot_id), None)

    # Asking

    def end_offset_for_epoch(self, epoch: int) -> LogPosition:
        """The largest epoch not above `epoch`, and where its records end.

        An epoch older than all is answered with the log's start, and with the epoch of the oldest snapshot if that
        stands for what came before the start. One newer than all is answered with the end of the log.
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

    def validate(self, offset: int, epoch: int) -> Validation:
        """Whether a log that ends at `offset` with a record of `epoch` is a prefix of this one (KIP-595, KIP-630).

        A log may end before the start of this one with records that never counted, of a later epoch than any snapshot.
        Its replica would take no snapshot for newer, and Kafka's dies of it; so these records are cut first.
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
        """Whether a snapshot stands for records that this log has not, or has others in place of."""
        offset, epoch = snapshot_id
        known = self.newest_snapshot or SnapshotId(self.start, 0)
        if offset < known.end_offset or epoch < known.epoch:
            return False
        return self.epoch_before(offset) != epoch

    def truncation_offset(self, diverging: LogPosition) -> int:
        """Where to cut when the leader says that records beyond `diverging` differ."""
        if diverging.epoch == 0:
            return min(diverging.end_offset, self.end)
        own = self.end_offset_for_epoch(diverging.epoch)
        return min(own.end_offset, diverging.end_offset) if own.epoch == diverging.epoch else own.end_offset

    def epoch_before(self, offset: int) -> int | None:
        """The epoch of the record that precedes `offset`; None if this log cannot tell."""
        if offset > self.end or offset < self.start:
            return None
        if offset == self.start:
            return next((each.id.epoch for each in self.snapshots if each.id.end_offset == offset), None)
        index = bisect_left(self._starts, offset) - 1
        return self._epochs[index] if index >= 0 else None

    # Changing

    def append(self, end_offset: int, epoch: int, size: int) -> None:
        """Records of one epoch from the end on."""
        if not self._epochs or self._epochs[-1] != epoch:
            self._epochs.append(epoch)
            self._starts.append(self.end)
        self.end = end_offset
        self.bytes += size

    def truncate_to(self, offset: int) -> None:
        """Forgets records and epochs from `offset` on; an epoch may go even if it had no record."""
        self.bytes = self._share(self.start, offset)
        self.end = min(self.end, offset)
        kept = bisect_left(self._starts, offset)
        del self._epochs[kept:], self._starts[kept:]
        self.snapshots = [each for each in self.snapshots if each.id.end_offset <= offset]

    def start_at(self, snapshot: StoredSnapshot) -> None:
        """Nothing remains but the snapshot."""
        self.start = self.end = snapshot.id.end_offset
        self.bytes = 0
        self._epochs, self._starts, self.snapshots = [], [], [snapshot]

    def trim(self, snapshot_id: SnapshotId) -> None:
        """The log begins where a snapshot ends; older snapshots go."""
        offset = snapshot_id.end_offset
        self.bytes = self._share(offset, self.end)
        self.start = offset
        gone = bisect_right(self._starts, offset) - 1
        if gone >= 0:
            del self._epochs[:gone], self._starts[:gone]
            self._starts[0] = offset
        self.snapshots = [each for each in self.snapshots if each.id.end_offset >= offset]

    def add_snapshot(self, snapshot: StoredSnapshot) -> bool:
        """A snapshot is in place. Returns False if it is known already or stands for less than the log start."""
        if snapshot.id.end_offset < self.start or self.snapshot(snapshot.id) is not None:
            return False
        self.snapshots.append(snapshot)
        self.snapshots.sort(key=lambda each: each.id.position)
        return True

    def _share(self, start: int, end: int) -> int:
        """Bytes of a part of the log."""
        whole = self.end - self.start
        return self.bytes * max(0, end - start) // whole if whole > 0 else 0
