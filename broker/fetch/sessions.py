"""Incremental fetch sessions (KIP-227): the broker stores a reader's partitions, and responds only with changes.

A reader names its partitions once; later requests carry only changed ones, and responses only new results. Both ends
count the requests of a session (its epoch), so that a lost or repeated request is detected.

    request (id, epoch)   meaning
    (0, -1)               no session
    (0, 0)                full request; open a session if there is room
    (n, 0), (n, -1)       close n; then as above
    (n, e > 0)            incremental: the e-th request of session n; after 2147483647 comes 1

Idle partitions cost nothing: only the *due* targets of a reader are read. A target without news that is read up to its
bound leaves the due set with a watch on its partition, and returns when the partition changes or the reader moves the
target.

Kafka splits its cache into eight shards to reduce lock contention. One event loop needs no lock, so the slots here are
one cache, and the eviction rules apply to all sessions.

The module knows no wire format, no log and no clock: `now_ms`, of the monotonic clock, is an argument.
"""

from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

from broker.runtime.loop.waiters import Watch, Watches
from broker.runtime.partitions.reads import UNKNOWN, FetchTarget, LogReadResult, SessionContact, TargetKey
from protocol.errors import ErrorCode
from protocol.ids import LeaderEpoch

NO_SESSION = 0
INITIAL_EPOCH = 0
FINAL_EPOCH = -1
_LAST_EPOCH = 2**31 - 1

JUDGED_PER_REQUEST = 200
"""The number of targets that become due with one request after the rights of the reader have changed; the next requests
take the others. For a follower that may join an ISR again, the leader proposes each target: 0.1 to 0.3 ms of its event
loop."""

# Any session may replace one that was unused for longer; younger ones are safe from consumers (KIP-227).
EVICTION_MS = 120_000


def next_epoch(epoch: int) -> int:
    """Return the epoch after `epoch`. Epochs count from 1 again after the last; 0 opens a session, -1 ends it."""
    if epoch == FINAL_EPOCH:
        return FINAL_EPOCH
    return 1 if epoch == _LAST_EPOCH else epoch + 1


Position = tuple[TargetKey, int, int, LeaderEpoch, LeaderEpoch, int]
"""A target's key and its fields that a later request changes, in the order of `FetchTarget.adopt`."""


class TargetSet:
    """A reader's targets in the order of reading, and the due ones among them.

    `on_change` is called when a resting target becomes due; None if no request waits. `contact` is the time of the
    reader's last request.
    """

    __slots__ = (
        "_by_key",
        "_due",
        "_is_closed",
        "_next_order",
        "_rights",
        "_unjudged",
        "_watches",
        "contact",
        "on_change",
    )

    def __init__(self, targets: Iterable[FetchTarget], *, now_ms: int) -> None:
        self._by_key: dict[TargetKey, FetchTarget] = {}
        self._due: dict[FetchTarget, None] = {}
        self._watches: dict[FetchTarget, Watch] = {}
        self._next_order = 0
        self._is_closed = False
        self._rights: int | None = None
        self._unjudged: list[FetchTarget] = []
        self.contact = SessionContact(now_ms, self._recall_later)
        self.on_change: Callable[[], None] | None = None
        for target in targets:
            self.put(target)

    def __len__(self) -> int:
        return len(self._by_key)

    def all(self) -> list[FetchTarget]:
        """Return all targets, in order."""
        return list(self._by_key.values())

    def due(self) -> list[FetchTarget]:
        """Return the targets that may have news, in order."""
        due = self._due
        if len(due) == len(self._by_key):
            return list(self._by_key.values())
        return sorted(due, key=_order) if len(due) > 1 else list(due)

    def put(self, target: FetchTarget) -> None:
        """Add a target at the end, or update the target of the same partition; it becomes due."""
        known = self._by_key.get(target.key)
        if known is None:
            self._append(target)
            self._due[target] = None
        else:
            known.adopt(target)
            self._make_due(known)

    def move(self, positions: Sequence[Position]) -> bool:
        """Take the positions of known targets, which become due; return false, with no effect, if one is unknown."""
        known = self._by_key
        for position in positions:
            if position[0] not in known:
                return False
        for key, offset, max_bytes, leader_epoch, last_fetched_epoch, log_start_offset in positions:
            target = known[key]
            target.fetch_offset = offset
            target.max_bytes = max_bytes
            target.current_leader_epoch = leader_epoch
            target.last_fetched_epoch = last_fetched_epoch
            target.log_start_offset = log_start_offset
            self._make_due(target)
        return True

    def forget(self, key: TargetKey) -> None:
        """Remove a target if it is in the set."""
        target = self._by_key.pop(key, None)
        if target is not None:
            target.end_rest()
            self._due.pop(target, None)
            self._unwatch(target)

    def rest(self, target: FetchTarget, bounds: tuple[Watches, ...]) -> None:
        """Take a target off the due ones until one of `bounds` changes, or the reader moves the target."""
        if not self._is_closed:
            self.watch(target, bounds)
            self._due.pop(target, None)
            target.begin_rest(self.contact)

    def recall(self, target: FetchTarget) -> None:
        """Make a target due although its bounds have not changed."""
        if self._by_key.get(target.key) is target:
            self._make_due(target)

    def judge_by(self, rights: int) -> bool:
        """Make targets due if the rights of readers may have changed since the last request (`FetchOptions`).

        `JUDGED_PER_REQUEST` become due at most. Return whether targets are left to the next request, so that this one
        must not wait.
        """
        former, self._rights = self._rights, rights
        if former not in (None, rights):  # all targets of the first request are due
            self._unjudged = list(reversed(self._by_key.values()))
        unjudged = self._unjudged
        if unjudged:
            for target in unjudged[-JUDGED_PER_REQUEST:]:
                self.recall(target)
            del unjudged[-JUDGED_PER_REQUEST:]
        return bool(unjudged)

    def _recall_later(self, target: FetchTarget) -> None:
        """Make a resting target due for the next request; a waiting request keeps waiting for its changes."""
        self._due[target] = None
        target.end_rest()

    def watch(self, target: FetchTarget, bounds: tuple[Watches, ...]) -> None:
        """Make the target due, and call `on_change`, at the next change of one of `bounds`."""
        if self._is_closed:
            return
        watch = self._watches.get(target)
        if watch is None or watch.bounds is not bounds:
            self._unwatch(target)
            watch = self._watches[target] = Watch(bounds, partial(self._on_change, target))
        watch.arm()

    def move_to_end(self, target: FetchTarget) -> None:
        """Move a target to the end, so that the others are read before it."""
        del self._by_key[target.key]
        self._append(target)

    def close(self) -> None:
        """Stop watching for good; a request of an evicted session may still wait."""
        self._is_closed = True
        self.on_change = None
        for target in self._watches:
            target.end_rest()
        for watch in self._watches.values():
            watch.disarm()
        self._watches.clear()

    def _append(self, target: FetchTarget) -> None:
        target.order = self._next_order
        self._next_order += 1
        self._by_key[target.key] = target

    def _make_due(self, target: FetchTarget) -> None:
        self._due[target] = None
        if target.session is not None:
            target.end_rest()
        watch = self._watches.get(target)
        if watch is not None and watch.is_armed:
            watch.disarm()

    def _unwatch(self, target: FetchTarget) -> None:
        watch = self._watches.pop(target, None)
        if watch is not None:
            watch.disarm()

    def _on_change(self, target: FetchTarget) -> None:
        self._due[target] = None
        target.end_rest()
        if self.on_change is not None:
            self.on_change()


def _order(target: FetchTarget) -> int:
    return target.order


@dataclass(slots=True, eq=False)
class FetchSession:
    """One session. `epoch` is the epoch of the next request; `size` is as of the last use."""

    id: int
    is_privileged: bool
    uses_topic_ids: bool
    targets: TargetSet
    created_ms: int
    last_used_ms: int
    epoch: int = 1
    size: int = 0

    @property
    def worth(self) -> tuple[bool, int, int]:
        """The order of eviction: consumers before followers, small sessions before large ones."""
        return (self.is_privileged, self.size, self.id)

    def may_yield_to(self, *, privileged: bool) -> bool:
        """Whether a new session may replace this one: it is old, or a consumer's where the new one is a follower's."""
        is_aged = self.last_used_ms - self.created_ms > EVICTION_MS
        return is_aged or (privileged and not self.is_privileged)


@dataclass(frozen=True, slots=True)
class SessionRequest:
    """The session part of a fetch request."""

    session_id: int
    epoch: int
    uses_topic_ids: bool
    is_follower: bool
    targets: Sequence[FetchTarget]
    forgotten: Sequence[TargetKey] = ()


class SessionResponse(NamedTuple):
    """The session part of a fetch response, and the targets to list in it, in order."""

    error: ErrorCode
    session_id: int
    listed: Sequence[FetchTarget]


@dataclass(frozen=True, slots=True)
class SessionRefused:
    """The request does not fit a session: nothing is read, and the reader opens another session."""

    error: ErrorCode


@dataclass(slots=True)
class Sessionless:
    """A request without a session."""

    targets: TargetSet

    def answer(self, results: "Results", now_ms: int) -> SessionResponse:
        """List all targets."""
        listed = self.targets.all()
        self.release()
        return SessionResponse(ErrorCode.NONE, NO_SESSION, listed)

    def withhold(self, results: "Results") -> SessionResponse:
        """List no target: the client is throttled."""
        self.release()
        return SessionResponse(ErrorCode.NONE, NO_SESSION, ())

    def release(self) -> None:
        self.targets.close()


@dataclass(slots=True)
class FullFetch:
    """A request that names all its targets; `answer` opens a session if there is room."""

    targets: TargetSet
    sessions: "FetchSessions"
    is_follower: bool
    uses_topic_ids: bool

    def answer(self, results: "Results", now_ms: int) -> SessionResponse:
        """List all targets, and store them in a session if there is room."""
        self.targets.on_change = None
        listed = self.targets.all()
        for target in listed:
            result = results[target]
            target.sent_high_watermark = result.high_watermark
            target.sent_log_start_offset = result.log_start_offset
        session = self.sessions.maybe_create(self, now_ms)
        if session is None:
            self.release()
            return SessionResponse(ErrorCode.NONE, NO_SESSION, listed)
        return SessionResponse(ErrorCode.NONE, session.id, listed)

    def withhold(self, results: "Results") -> SessionResponse:
        """List no target and open no session: the client is throttled."""
        self.release()
        return SessionResponse(ErrorCode.NONE, NO_SESSION, ())

    def release(self) -> None:
        self.targets.close()


@dataclass(slots=True)
class IncrementalFetch:
    """A request within a session. `epoch` is the session's epoch after the request."""

    session: FetchSession
    epoch: int

    @property
    def targets(self) -> TargetSet:
        return self.session.targets

    def answer(self, results: "Results", now_ms: int) -> SessionResponse:
        """List the targets with news; those with records move to the end of the set."""
        if self.session.epoch != self.epoch:  # a later request of the session has arrived meanwhile
            return SessionResponse(ErrorCode.INVALID_FETCH_SESSION_EPOCH, self.session.id, ())
        self.targets.on_change = None
        ordered = sorted(results, key=_order) if len(results) > 1 else results
        listed = [target for target in ordered if _note_sent(target, results[target])]
        for target in listed:
            if results[target].size_bytes > 0:
                self.targets.move_to_end(target)
        return SessionResponse(ErrorCode.NONE, self.session.id, listed)

    def withhold(self, results: "Results") -> SessionResponse:
        """List no target: the client is throttled. The next request reads all targets with results again."""
        if self.session.epoch != self.epoch:
            return SessionResponse(ErrorCode.INVALID_FETCH_SESSION_EPOCH, self.session.id, ())
        self.targets.on_change = None
        for target in results:
            self.targets.recall(target)
        return SessionResponse(ErrorCode.NONE, self.session.id, ())

    def release(self) -> None:
        """Stop the notifications for a cancelled request; the session stays."""
        if self.session.epoch == self.epoch:
            self.targets.on_change = None


Results = Mapping[FetchTarget, LogReadResult]
OpenFetch = Sessionless | FullFetch | IncrementalFetch


def _note_sent(target: FetchTarget, result: LogReadResult) -> bool:
    """Return whether an incremental response lists a target; store the offsets that it sends.

    After an error the stored high watermark is -1, so that the first response without an error lists the target.
    """
    marks_moved = (
        target.sent_high_watermark != result.high_watermark or target.sent_log_start_offset != result.log_start_offset
    )
    is_failed = result.error is not ErrorCode.NONE
    target.sent_high_watermark = UNKNOWN if is_failed else result.high_watermark
    target.sent_log_start_offset = result.log_start_offset
    is_redirected = result.preferred_read_replica != UNKNOWN or result.diverging is not None
    return result.size_bytes > 0 or marks_moved or is_failed or is_redirected


class FetchSessions:
    """The cache of sessions: at most `slots`. `pick_id` draws a positive 31-bit number, again if it is in use."""

    def __init__(self, slots: int, pick_id: Callable[[], int]) -> None:
        self._slots = slots
        self._pick_id = pick_id
        self._by_last_use: OrderedDict[int, FetchSession] = OrderedDict()  # least recently used first
        self.evictions = 0

    def __len__(self) -> int:
        return len(self._by_last_use)

    @property
    def partition_count(self) -> int:
        """The number of targets in all sessions."""
        return sum(session.size for session in self._by_last_use.values())

    def open(self, request: SessionRequest, now_ms: int) -> OpenFetch | SessionRefused:
        """Open or continue the session of a request, and advance the session's epoch."""
        if request.epoch in (INITIAL_EPOCH, FINAL_EPOCH):
            return self._open_full(request, now_ms)
        session = self._by_last_use.get(request.session_id)
        if session is None:
            return SessionRefused(ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
        if session.epoch != request.epoch:
            return SessionRefused(ErrorCode.INVALID_FETCH_SESSION_EPOCH)
        if session.uses_topic_ids != request.uses_topic_ids:
            return SessionRefused(ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR)
        return self._open_incremental(session, request, now_ms)

    def advance(
        self, session_id: int, epoch: int, positions: Sequence[Position], now_ms: int, *, uses_topic_ids: bool
    ) -> IncrementalFetch | None:
        """Continue a session with new positions of its targets; return None, with no effect, unless the request is the
        session's next one and names known targets only. `open` takes such requests, too, and all others.
        """
        session = self._by_last_use.get(session_id)
        if session is None or session.epoch != epoch or session.uses_topic_ids != uses_topic_ids:
            return None
        return self._continue(session, now_ms) if session.targets.move(positions) else None

    def maybe_create(self, full: FullFetch, now_ms: int) -> FetchSession | None:
        """Create a session for the targets of `full`; None if the cache is full and no session may be evicted."""
        if len(self._by_last_use) >= self._slots and not self._evict_for(full, now_ms):
            return None
        session = FetchSession(
            id=self._unused_id(),
            is_privileged=full.is_follower,
            uses_topic_ids=full.uses_topic_ids,
            targets=full.targets,
            created_ms=now_ms,
            last_used_ms=now_ms,
            size=len(full.targets),
        )
        self._by_last_use[session.id] = session
        return session

    def _open_full(self, request: SessionRequest, now_ms: int) -> OpenFetch:
        if request.session_id != NO_SESSION:
            self._remove(request.session_id)
        targets = TargetSet(request.targets, now_ms=now_ms)
        if request.epoch == FINAL_EPOCH:
            return Sessionless(targets)
        return FullFetch(targets, self, request.is_follower, request.uses_topic_ids)

    def _open_incremental(self, session: FetchSession, request: SessionRequest, now_ms: int) -> OpenFetch:
        for target in request.targets:
            session.targets.put(target)
        for key in request.forgotten:
            session.targets.forget(key)
        if not len(session.targets):
            self._remove(session.id)
            return Sessionless(TargetSet(request.targets, now_ms=now_ms))
        return self._continue(session, now_ms)

    def _continue(self, session: FetchSession, now_ms: int) -> IncrementalFetch:
        session.last_used_ms = session.targets.contact.last_ms = now_ms
        session.size = len(session.targets)
        self._by_last_use.move_to_end(session.id)
        session.epoch = next_epoch(session.epoch)
        return IncrementalFetch(session, session.epoch)

    def _evict_for(self, full: FullFetch, now_ms: int) -> bool:
        """Evict a session by the rules of KIP-227; return whether there was one to evict.

        The least recently used session is evicted if it is stale, else the one of the least worth, unless the new
        session is worth less.
        """
        victim = next(iter(self._by_last_use.values()), None)
        if victim is None:
            return False
        if now_ms - victim.last_used_ms <= EVICTION_MS:
            candidates = [s for s in self._by_last_use.values() if s.may_yield_to(privileged=full.is_follower)]
            victim = min(candidates, key=lambda session: session.worth, default=None)
            if victim is None or (full.is_follower, len(full.targets), NO_SESSION) < victim.worth:
                return False
        self._remove(victim.id)
        self.evictions += 1
        return True

    def _remove(self, session_id: int) -> None:
        session = self._by_last_use.pop(session_id, None)
        if session is not None:
            session.targets.close()

    def _unused_id(self) -> int:
        while True:
            session_id = self._pick_id()
            if session_id != NO_SESSION and session_id not in self._by_last_use:
                return session_id
