"""Rules for snapshots (KIP-630): when to generate one, how far to raise the log start offset, and valid positions."""

from collections.abc import Sequence
from enum import Enum, auto
from math import inf
from typing import NamedTuple

from broker.quorum.identity import SnapshotId
from broker.quorum.messages import UNKNOWN_OFFSET
from broker.quorum.settings import QuorumSettings, StoredSnapshot
from protocol.errors import ErrorCode
from protocol.lazy_dataclass import lazy_dataclass


class SnapshotReason(Enum):
    """The reason for generating a snapshot."""

    REQUEST = auto()
    CHANGES = auto()
    TIME = auto()


@lazy_dataclass(frozen=True, slots=True, kw_only=True)
class TriggerSettings:
    """Settings of SnapshotTrigger.

    `min_changed_ratio` is metadata.snapshot.min.changed_records.ratio, `min_bytes` is
    metadata.log.max.record.bytes.between.snapshots (a minimum despite its name), and `interval_ms` is
    metadata.log.max.snapshot.interval.ms (0: disabled).
    """

    min_changed_ratio: float
    min_bytes: int
    interval_ms: int


@lazy_dataclass(slots=True)
class _Since:
    """Committed bytes since a snapshot, and the number of its records that were modified or deleted."""

    bytes: int = 0
    changed: int = 0


class SnapshotTrigger:
    """Decides when this replica generates a snapshot. A snapshot is due under any of these conditions:

    1. An explicit request.
    2. Since the last snapshot `min_bytes` were committed, and the share `min_changed_ratio` of its records was modified
       or deleted. Added records do not count, so a log of additions only causes no repeated snapshots; records that
       were added and then modified do count. Both limits apply, so a small snapshot with one frequently changing record
       is not written constantly. Without a previous snapshot, or with an empty one, only the bytes count, because no
       ratio could be reached.
    3. `interval_ms` elapsed since the last snapshot (or the start), and records were committed since.

    Times are monotonic, in ms.
    """

    def __init__(self, settings: TriggerSettings, now_ms: float) -> None:
        self._settings = settings
        self._records = 0
        self._since = _Since()
        self._covered: _Since | None = None
        self._began_ms = now_ms
        self._is_requested = False

    def on_log_read(self, size_bytes: int) -> None:
        """Count committed and applied batches."""
        self._since.bytes += size_bytes

    def on_changed(self, records: int) -> None:
        """Count modified or deleted records. A record counted twice makes the next snapshot earlier, never later."""
        self._since.changed += records

    def request(self) -> None:
        """Make a snapshot due now."""
        self._is_requested = True

    def is_due(self, now_ms: float) -> bool:
        """Whether a snapshot is due; False while one is being generated."""
        return self.reason(now_ms) is not None

    def reason(self, now_ms: float) -> SnapshotReason | None:
        """Return why a snapshot is due; None if none is."""
        if self._covered is not None:
            return None
        if self._is_requested:
            return SnapshotReason.REQUEST
        if self._has_changed_enough:
            return SnapshotReason.CHANGES
        return SnapshotReason.TIME if now_ms >= self.deadline else None

    @property
    def deadline(self) -> float:
        """The time at which a snapshot becomes due by the interval."""
        is_on = self._settings.interval_ms > 0 and self._since.bytes > 0 and self._covered is None
        return self._began_ms + self._settings.interval_ms if is_on else inf

    @property
    def _has_changed_enough(self) -> bool:
        if self._since.bytes < self._settings.min_bytes:
            return False
        return self._records == 0 or self._since.changed >= self._settings.min_changed_ratio * self._records

    def begin(self, now_ms: float) -> None:
        """Start a snapshot. Later changes count towards the next snapshot."""
        self._covered, self._since = self._since, _Since()
        self._began_ms = now_ms
        self._is_requested = False

    def end(self, records: int) -> None:
        """Complete the snapshot, which has this number of records."""
        self._covered = None
        self._records = records

    def fail(self) -> None:
        """Abandon the snapshot. Its changes count again, so one may be due at once; the caller delays the retry."""
        covered, self._covered = self._covered, None
        if covered is not None:
            self.on_log_read(covered.bytes)
            self.on_changed(covered.changed)

    def on_snapshot(self, records: int, now_ms: float) -> None:
        """Restart the counts after a snapshot of the whole state was loaded."""
        self._covered, self._since = None, _Since()
        self._records, self._began_ms = records, now_ms


class LogFacts(NamedTuple):
    """Offsets and size of a log, and its snapshots in the order of their ids."""

    start: int
    end: int
    bytes: int
    snapshots: Sequence[StoredSnapshot]

    def bytes_from(self, offset: int) -> int:
        """Return the size of log and snapshots from `offset` on, assuming equal record sizes throughout the log."""
        whole = self.end - self.start
        rest = self.bytes * (self.end - offset) // whole if whole > 0 else 0
        return rest + sum(each.size for each in self.snapshots if each.id.end_offset >= offset)


class SlowReplicaWait:
    """Limits how long a leader waits for slow live replicas before it deletes records that they lack (KIP-630).

    `lag_ms` is metadata.start.offset.lag.time.max.ms. The wait begins when this process first finds a snapshot. The
    append times of records are no measure of the wait: a step of the wall clock, or an earlier leader whose clock was
    behind, would end the wait at once. A restart therefore begins the wait anew.
    """

    def __init__(self, lag_ms: int) -> None:
        self._lag_ms = lag_ms
        self._found_ms: dict[SnapshotId, float] = {}

    def waited_end(self, snapshots: Sequence[StoredSnapshot], now_ms: float) -> int:
        """Return the end offset of the newest snapshot whose wait is over, -1 for none. `now_ms` is monotonic."""
        self._found_ms = {each.id: self._found_ms.get(each.id, now_ms) for each in snapshots}
        waited = (id.end_offset for id, found_ms in self._found_ms.items() if now_ms - found_ms >= self._lag_ms)
        return max(waited, default=UNKNOWN_OFFSET)


@lazy_dataclass(frozen=True, slots=True, kw_only=True)
class TrimRule:
    """Computes the log start offset. Times are wall-clock times in ms; negative retention limits are disabled.

    On the leader, the log start offset rises to the end offset `x` of the next snapshot, repeatedly, while:

    1. All live replicas (the other voters and observers, each within the session timeout) have all records below `x`,
       or the leader no longer waits for them (`SlowReplicaWait`).
    2. Retention requires it: log and snapshots together exceed `retention_bytes`, or the deleted data is older than
       `retention_ms` (the oldest deleted snapshot, or else the record before `x`).

    The newest snapshot and the log after it are always kept. With both limits disabled nothing is deleted.

    On other replicas, the log start offset rises to the largest own snapshot at or below the leader's log start offset.
    The KIP takes the lesser of the leader's start and the largest own snapshot; this rule also keeps the invariant that
    a log with a start offset above 0 starts at a snapshot.
    """

    retention_bytes: int
    retention_ms: int

    @classmethod
    def of(cls, settings: QuorumSettings) -> "TrimRule":
        return cls(retention_bytes=settings.retention_bytes, retention_ms=settings.retention_ms)

    def on_leader(self, log: LogFacts, live_ends: Sequence[int], waited_end: int, now_ms: int) -> SnapshotId | None:
        """Return the snapshot to which the leader's log start offset may rise; None for no change.

        `live_ends` are the end offsets of the other live replicas, -1 if unknown. Below `waited_end` the leader no
        longer waits for them.
        """
        start, found = log.start, None
        passed_end = max(min(live_ends, default=log.end), waited_end)
        for snapshot in log.snapshots:
            if snapshot.id.end_offset <= start:
                continue
            if snapshot.id.end_offset > passed_end or not self._is_wanted(log, start, snapshot, now_ms):
                break
            start, found = snapshot.id.end_offset, snapshot.id
        return found

    def on_follower(self, log: LogFacts, leader_start: int) -> SnapshotId | None:
        """Return the snapshot to which the log start offset of a voter or observer may rise; None for no change.

        `leader_start` is the log start offset in the leader's last response, -1 if unknown.
        """
        passed = [each.id for each in log.snapshots if log.start < each.id.end_offset <= leader_start]
        return max(passed, key=lambda each: each.end_offset, default=None)

    def _is_wanted(self, log: LogFacts, start: int, snapshot: StoredSnapshot, now_ms: int) -> bool:
        if 0 <= self.retention_bytes < log.bytes_from(start):
            return True
        going = [each for each in log.snapshots if start <= each.id.end_offset < snapshot.id.end_offset]
        oldest = going[0] if going else snapshot
        return 0 <= self.retention_ms < now_ms - oldest.timestamp_ms


def position_error(position: int, size: int) -> ErrorCode:
    """Return the error of a FetchSnapshot request at `position`, or NONE."""
    return ErrorCode.NONE if UNKNOWN_OFFSET < position < size else ErrorCode.POSITION_OUT_OF_RANGE
