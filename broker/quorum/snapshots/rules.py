"""When a replica snapshots its state, when the log may begin later, and how pages of snapshots are dealt out (KIP-630).

Rules only: what is in a snapshot, and where it lies, is known elsewhere.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum, auto
from math import inf
from typing import NamedTuple

from broker.quorum.identity import SnapshotId
from broker.quorum.messages import UNKNOWN_OFFSET
from broker.quorum.settings import QuorumSettings, StoredSnapshot
from protocol.errors import ErrorCode


class SnapshotReason(Enum):
    """Why a snapshot is due."""

    REQUEST = auto()
    CHANGES = auto()
    TIME = auto()


@dataclass(frozen=True, slots=True, kw_only=True)
class TriggerSettings:
    """`min_changed_ratio` is metadata.snapshot.min.changed_records.ratio, `min_bytes` (a minimum, for all its name)
    metadata.log.max.record.bytes.between.snapshots, `interval_ms` metadata.log.max.snapshot.interval.ms (0: off).
    """

    min_changed_ratio: float
    min_bytes: int
    interval_ms: int


@dataclass(slots=True)
class _Since:
    """What was committed after a snapshot: bytes of records, and how many records of the snapshot became others."""

    bytes: int = 0
    changed: int = 0


class SnapshotTrigger:
    """Says when a snapshot is due, on every replica for itself. It is due when any of these holds:

    1. Somebody asked for one.
    2. `min_bytes` were committed since the last one, and of its records `min_changed_ratio` were modified or deleted
       since. Records that were added do not count, so a log of nothing but additions is not written again for nothing;
       those that were added since and then changed do. Both hold, so that a small snapshot whose one record changes all
       the time is not written all the time. Before there is a last one, or if it was empty, no ratio can be reached,
       and the bytes alone decide: otherwise there would never be a first.
    3. `interval_ms` went by since the last one (or since the start), and something was committed since.

    Times are monotonic, in ms.
    """

    def __init__(self, settings: TriggerSettings, now_ms: float) -> None:
        self._settings = settings
        self._records = 0
        self._since = _Since()
        self._covered: _Since | None = None
        self._began_ms = now_ms
        self._is_asked = False

    def on_log_read(self, size_bytes: int) -> None:
        """So many bytes of batches were committed and are in the state now."""
        self._since.bytes += size_bytes

    def on_changed(self, records: int) -> None:
        """So many records of the last snapshot, or added after it, were modified or deleted. To count one again makes
        snapshots come sooner, never later.
        """
        self._since.changed += records

    def request(self) -> None:
        """Somebody wants one now."""
        self._is_asked = True

    def is_due(self, now_ms: float) -> bool:
        """Never while one is being made."""
        return self.reason(now_ms) is not None

    def reason(self, now_ms: float) -> SnapshotReason | None:
        """Why one is due, if it is."""
        if self._covered is not None:
            return None
        if self._is_asked:
            return SnapshotReason.REQUEST
        if self._has_changed_enough:
            return SnapshotReason.CHANGES
        return SnapshotReason.TIME if now_ms >= self.deadline else None

    @property
    def deadline(self) -> float:
        """When one is due by time, if nothing else happens."""
        is_on = self._settings.interval_ms > 0 and self._since.bytes > 0 and self._covered is None
        return self._began_ms + self._settings.interval_ms if is_on else inf

    @property
    def _has_changed_enough(self) -> bool:
        if self._since.bytes < self._settings.min_bytes:
            return False
        return self._records == 0 or self._since.changed >= self._settings.min_changed_ratio * self._records

    def begin(self, now_ms: float) -> None:
        """The state was captured: what comes from now on is not in this snapshot."""
        self._covered, self._since = self._since, _Since()
        self._began_ms = now_ms
        self._is_asked = False

    def end(self, records: int) -> None:
        """The snapshot is in place; it holds so many records."""
        self._covered = None
        self._records = records

    def fail(self) -> None:
        """It could not be made: all that it covered is still to be covered, so that by changes one is due again. How
        long to wait after a failure is for whoever makes it to say.
        """
        covered, self._covered = self._covered, None
        if covered is not None:
            self.on_log_read(covered.bytes)
            self.on_changed(covered.changed)

    def on_snapshot(self, records: int, now_ms: float) -> None:
        """A snapshot of so many records stands for the whole state: it was loaded, or made in one go."""
        self._covered, self._since = None, _Since()
        self._records, self._began_ms = records, now_ms


class LogFacts(NamedTuple):
    """A log and its snapshots, in the order of their ids."""

    start: int
    end: int
    bytes: int
    snapshots: Sequence[StoredSnapshot]

    def bytes_from(self, offset: int) -> int:
        """Of log and snapshots, if the log started at `offset`. The log is taken to be equally dense everywhere."""
        whole = self.end - self.start
        rest = self.bytes * (self.end - offset) // whole if whole > 0 else 0
        return rest + sum(each.size for each in self.snapshots if each.id.end_offset >= offset)


@dataclass(frozen=True, slots=True, kw_only=True)
class TrimRule:
    """Where a log may start. All times are the wall's, in ms; negative retention bounds are off.

    On the leader, from the present start to the end `x` of the next snapshot, and on from there, while

    1. all live replicas (the other voters, and observers seen within a session timeout) have everything below `x`, or
       `x` is `lag_ms` old: the time that a slow replica is waited for. The age of `x` is that of the record before it,
       which the snapshot's header tells; so it outlives leaders and restarts.
    2. Kafka's retention wants it: log and snapshots together exceed `retention_bytes`, or what goes is older than
       `retention_ms`: the oldest snapshot, or if none goes, the record before `x`.

    The newest snapshot and the log from its end on stay, whatever their size. With both bounds off nothing goes.

    On others, to the largest own snapshot at or below where the leader's log starts. The KIP takes the lesser of the
    leader's start and the largest own snapshot; to stay at an own snapshot's end below that keeps the rule that holds
    on every replica at all times: where a log does not start at 0, it starts at a snapshot.
    """

    lag_ms: int
    retention_bytes: int
    retention_ms: int

    @classmethod
    def of(cls, settings: QuorumSettings) -> "TrimRule":
        return cls(
            lag_ms=settings.start_offset_lag_time_max_ms,
            retention_bytes=settings.retention_bytes,
            retention_ms=settings.retention_ms,
        )

    def on_leader(self, log: LogFacts, live_ends: Sequence[int], now_ms: int) -> SnapshotId | None:
        """The snapshot at which the leader's log may start; None if it may not start later.

        `live_ends`: the end offsets of the other live replicas, -1 where none is known.
        """
        start, found = log.start, None
        for snapshot in log.snapshots:
            if snapshot.id.end_offset <= start:
                continue
            if not self._is_passed(snapshot, live_ends, now_ms) or not self._is_wanted(log, start, snapshot, now_ms):
                break
            start, found = snapshot.id.end_offset, snapshot.id
        return found

    def on_follower(self, log: LogFacts, leader_start: int) -> SnapshotId | None:
        """The snapshot at which the log of a voter or observer may start; None if it may not start later.

        `leader_start` is from the leader's last answer, -1 if it did not say.
        """
        passed = [each.id for each in log.snapshots if log.start < each.id.end_offset <= leader_start]
        return max(passed, key=lambda each: each.end_offset, default=None)

    def _is_passed(self, snapshot: StoredSnapshot, live_ends: Sequence[int], now_ms: int) -> bool:
        slowest = min(live_ends, default=snapshot.id.end_offset)
        return slowest >= snapshot.id.end_offset or now_ms - snapshot.timestamp_ms >= self.lag_ms

    def _is_wanted(self, log: LogFacts, start: int, snapshot: StoredSnapshot, now_ms: int) -> bool:
        if 0 <= self.retention_bytes < log.bytes_from(start):
            return True
        going = [each for each in log.snapshots if start <= each.id.end_offset < snapshot.id.end_offset]
        oldest = going[0] if going else snapshot
        return 0 <= self.retention_ms < now_ms - oldest.timestamp_ms


def distribute(max_bytes: int, remaining: Sequence[int]) -> list[int]:
    """How many bytes of each snapshot go into a response of `max_bytes`, where so many remain of each.

    Each gets an equal share, and what small ones do not need goes to the others in equal shares, so that the response
    is full if it can be. Nobody gets less than the average, or all that it has.
    """
    shares = [0] * len(remaining)
    left = max(0, max_bytes)
    by_size = sorted(range(len(remaining)), key=lambda index: remaining[index])
    for done, index in enumerate(by_size):
        shares[index] = min(remaining[index], left // (len(remaining) - done))
        left -= shares[index]
    return shares


def position_error(position: int, size: int) -> ErrorCode:
    """Of a request for the bytes of a snapshot from `position` on."""
    return ErrorCode.NONE if UNKNOWN_OFFSET < position < size else ErrorCode.POSITION_OUT_OF_RANGE
