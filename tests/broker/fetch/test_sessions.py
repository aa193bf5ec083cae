"""Incremental fetch sessions, KIP-227 (`broker.fetch.sessions`)."""

from collections.abc import Sequence
from itertools import count

import pytest

from broker.fetch.sessions import (
    EVICTION_MS,
    FINAL_EPOCH,
    INITIAL_EPOCH,
    JUDGED_PER_REQUEST,
    NO_SESSION,
    FetchSessions,
    FullFetch,
    IncrementalFetch,
    OpenFetch,
    Sessionless,
    SessionRefused,
    SessionRequest,
    SessionResponse,
    next_epoch,
)
from broker.metrics.fetch_sessions import fetch_session_families
from broker.replication.epochs import EpochEnd
from broker.runtime.loop.waiters import Watches
from broker.runtime.partitions.reads import FetchTarget, LogReadResult
from protocol.errors import ErrorCode
from protocol.ids import BrokerId, LeaderEpoch
from protocol.primitives import ZERO_UUID, Uuid

TOPIC_ID = Uuid(b"\x07" * 16)


def target(index: int, offset: int = 0, *, topic: str = "t", topic_id: Uuid = ZERO_UUID) -> FetchTarget:
    return FetchTarget(topic, topic_id, index, fetch_offset=offset, max_bytes=1000)


def request(
    session_id: int,
    epoch: int,
    *targets: FetchTarget,
    forgotten: Sequence[int] = (),
    is_follower: bool = False,
    uses_topic_ids: bool = False,
) -> SessionRequest:
    return SessionRequest(
        session_id, epoch, uses_topic_ids, is_follower, targets, [("t", index) for index in forgotten]
    )


def metrics_of(sessions: FetchSessions) -> dict[str, float]:
    """Return the cache's metrics by the last part of their names."""
    return {
        family.name.removeprefix("kafka_server_fetchsessioncache_"): sample.value
        for family in fetch_session_families(sessions)
        for sample in family.read()
    }


class Cache:
    """A session cache with the steps of a fetch: open, read (results given by the test), answer."""

    def __init__(self, slots: int = 10) -> None:
        ids = count(100)
        self.sessions = FetchSessions(slots, lambda: next(ids))
        self.now_ms = 1_000_000

    def open(self, requested: SessionRequest) -> OpenFetch:
        opened = self.sessions.open(requested, self.now_ms)
        assert not isinstance(opened, SessionRefused)
        return opened

    def refusal(self, requested: SessionRequest) -> ErrorCode:
        opened = self.sessions.open(requested, self.now_ms)
        assert isinstance(opened, SessionRefused)
        return opened.error

    def fetch(self, requested: SessionRequest, results: dict[int, LogReadResult] | None = None) -> SessionResponse:
        opened = self.open(requested)
        read = {t: (results or {}).get(t.index, idle()) for t in opened.targets.due()}
        return opened.answer(read, self.now_ms)

    def create(self, *targets: FetchTarget, is_follower: bool = False) -> int:
        return self.fetch(request(0, INITIAL_EPOCH, *targets, is_follower=is_follower)).session_id


def idle(high_watermark: int = 0) -> LogReadResult:
    return LogReadResult(high_watermark=high_watermark, last_stable_offset=high_watermark, log_start_offset=0)


def data(high_watermark: int = 5) -> LogReadResult:
    return LogReadResult(high_watermark=high_watermark, log_start_offset=0, records=b"batch", size_bytes=5)


def listed(answer: SessionResponse) -> list[int]:
    return [t.index for t in answer.listed]


def test_epochs_count_from_one_and_wrap_past_the_initial_epoch() -> None:
    assert next_epoch(INITIAL_EPOCH) == 1
    assert next_epoch(1) == 2
    assert next_epoch(2**31 - 1) == 1
    assert next_epoch(FINAL_EPOCH) == FINAL_EPOCH


def test_sessionless_request_lists_all_targets_and_leaves_no_state() -> None:
    cache = Cache()
    opened = cache.open(request(0, FINAL_EPOCH, target(1), target(0)))
    assert isinstance(opened, Sessionless)
    answer = opened.answer({t: idle() for t in opened.targets.due()}, cache.now_ms)
    assert (answer.error, answer.session_id, listed(answer)) == (ErrorCode.NONE, NO_SESSION, [1, 0])
    assert len(cache.sessions) == 0


def test_full_request_opens_a_session_with_epoch_one() -> None:
    cache = Cache()
    answer = cache.fetch(request(0, INITIAL_EPOCH, target(0), target(1)))
    assert answer.session_id > 0
    assert listed(answer) == [0, 1]
    assert cache.sessions.partition_count == 2
    assert cache.refusal(request(answer.session_id, 2)) == ErrorCode.INVALID_FETCH_SESSION_EPOCH
    assert listed(cache.fetch(request(answer.session_id, 1))) == []


def test_unknown_session_is_refused() -> None:
    assert Cache().refusal(request(99, 5)) == ErrorCode.FETCH_SESSION_ID_NOT_FOUND


def test_repeated_request_is_refused_because_the_epoch_advances_on_receipt() -> None:
    cache = Cache()
    session_id = cache.create(target(0))
    cache.open(request(session_id, 1))
    assert cache.refusal(request(session_id, 1)) == ErrorCode.INVALID_FETCH_SESSION_EPOCH


def test_session_refuses_a_change_between_names_and_topic_ids() -> None:
    cache = Cache()
    by_name = cache.create(target(0))
    assert cache.refusal(request(by_name, 1, uses_topic_ids=True)) == ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR
    by_id = cache.fetch(request(0, 0, target(0, topic_id=TOPIC_ID), uses_topic_ids=True)).session_id
    assert cache.refusal(request(by_id, 1)) == ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR


@pytest.mark.parametrize("epoch", [INITIAL_EPOCH, FINAL_EPOCH])
def test_full_request_closes_the_session_it_names(epoch: int) -> None:
    cache = Cache()
    old = cache.create(target(0))
    answer = cache.fetch(request(old, epoch, target(0)))
    assert cache.refusal(request(old, 1)) == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    assert (answer.session_id == NO_SESSION) == (epoch == FINAL_EPOCH)


def test_incremental_response_lists_only_news() -> None:
    cache = Cache()
    session_id = cache.create(*(target(index) for index in range(6)))
    changes = {
        1: data(high_watermark=0),
        2: idle(high_watermark=7),
        3: LogReadResult(high_watermark=0, log_start_offset=4),
        4: LogReadResult(high_watermark=0, log_start_offset=0, preferred_read_replica=BrokerId(2)),
        5: LogReadResult(high_watermark=0, log_start_offset=0, diverging=EpochEnd(LeaderEpoch(3), 10)),
    }
    assert sorted(listed(cache.fetch(request(session_id, 1), changes))) == [1, 2, 3, 4, 5]
    calm = {2: idle(high_watermark=7), 3: LogReadResult(high_watermark=0, log_start_offset=4)}
    assert listed(cache.fetch(request(session_id, 2), calm)) == []


def test_recovered_partition_is_listed_once_more() -> None:
    cache = Cache()
    session_id = cache.create(target(0))
    failing = {0: LogReadResult(error=ErrorCode.NOT_LEADER_OR_FOLLOWER)}
    for epoch in (1, 2):
        assert listed(cache.fetch(request(session_id, epoch), failing)) == [0]
    assert listed(cache.fetch(request(session_id, 3))) == [0]
    assert listed(cache.fetch(request(session_id, 4))) == []


def test_partitions_with_records_move_to_the_end() -> None:
    cache = Cache()
    session_id = cache.create(*(target(index) for index in range(3)))
    assert listed(cache.fetch(request(session_id, 1), {0: data(), 1: data(), 2: data()})) == [0, 1, 2]
    assert listed(cache.fetch(request(session_id, 2), {0: data(6), 1: data(), 2: idle(5)})) == [0, 1]
    opened = cache.open(request(session_id, 3))
    assert [t.index for t in opened.targets.due()] == [2, 0, 1]


def test_request_adds_moves_and_removes_partitions() -> None:
    cache = Cache()
    session_id = cache.create(target(0), target(1))
    opened = cache.open(request(session_id, 1, target(1, offset=50), target(2, offset=9), forgotten=[0]))
    assert [(t.index, t.fetch_offset) for t in opened.targets.due()] == [(1, 50), (2, 9)]
    assert cache.sessions.partition_count == 2


def test_session_without_partitions_is_closed() -> None:
    cache = Cache()
    session_id = cache.create(target(0))
    answer = cache.fetch(request(session_id, 1, forgotten=[0]))
    assert (answer.session_id, listed(answer)) == (NO_SESSION, [])
    assert len(cache.sessions) == 0


def test_later_request_of_the_session_voids_a_waiting_one() -> None:
    cache = Cache()
    session_id = cache.create(target(0))
    waiting = cache.open(request(session_id, 1))
    cache.open(request(session_id, 2))
    answer = waiting.answer({t: data() for t in waiting.targets.due()}, cache.now_ms)
    assert (answer.error, answer.session_id) == (ErrorCode.INVALID_FETCH_SESSION_EPOCH, session_id)
    assert listed(answer) == []


def test_topic_ids_identify_partitions_independently_of_names() -> None:
    cache = Cache()
    first = target(0, topic="", topic_id=TOPIC_ID)
    session_id = cache.fetch(request(0, 0, first, uses_topic_ids=True)).session_id
    again = target(0, offset=8, topic="known by now", topic_id=TOPIC_ID)
    opened = cache.open(request(session_id, 1, again, uses_topic_ids=True))
    assert [(t.fetch_offset, t.index) for t in opened.targets.due()] == [(8, 0)]


class TestIdlePartitions:
    """A resting target is not read until its partition changes or the reader moves it."""

    def rested(self, cache: Cache, bounds: tuple[Watches, ...], partitions: int = 3) -> IncrementalFetch:
        session_id = cache.create(*(target(index) for index in range(partitions)))
        opened = cache.open(request(session_id, 1))
        assert isinstance(opened, IncrementalFetch)
        for one in opened.targets.due():
            opened.targets.rest(one, bounds)
        opened.answer({}, cache.now_ms)
        return opened

    def test_unchanged_partitions_are_not_due(self) -> None:
        cache, bound = Cache(), Watches()
        opened = self.rested(cache, (bound,), partitions=1000)
        assert cache.open(request(opened.session.id, 2)).targets.due() == []

    def test_change_makes_watching_targets_due_and_wakes_the_request(self) -> None:
        cache, bound, other = Cache(), Watches(), Watches()
        opened = self.rested(cache, (other,))
        moved = opened.targets.all()[1]
        opened.targets.rest(moved, (bound,))
        waiting = cache.open(request(opened.session.id, 2))
        woken: list[str] = []
        waiting.targets.on_change = lambda: woken.append("woken")
        bound.fire()
        bound.fire()
        assert woken == ["woken"]
        assert waiting.targets.due() == [moved]

    def test_change_of_rights_makes_targets_due_over_several_requests(self) -> None:
        """A forgotten target is left out, and a further change starts again with the first target."""
        cache, bound, limit = Cache(), Watches(), JUDGED_PER_REQUEST
        targets = self.rested(cache, (bound,), partitions=2 * limit + 2).targets

        def judged(rights: int) -> list[int]:
            is_more = targets.judge_by(rights)
            due = targets.due()
            for one in due:
                targets.rest(one, (bound,))
            return [each.index for each in due] + ([-1] if is_more else [])

        assert judged(0) == []
        assert judged(1) == [*range(limit), -1]
        targets.forget(("t", limit))
        assert judged(1) == [*range(limit + 1, 2 * limit), -1]
        assert judged(2) == [*range(limit), -1]
        assert judged(2) == [*range(limit + 1, 2 * limit + 1), -1]
        assert judged(2) == [2 * limit + 1]
        assert judged(2) == []

    def test_moved_target_is_due_and_no_longer_watched(self) -> None:
        cache, bound = Cache(), Watches()
        opened = self.rested(cache, (bound,))
        again = cache.open(request(opened.session.id, 2, target(2, offset=3)))
        assert [t.index for t in again.targets.due()] == [2]
        assert len(bound.armed) == 2

    def test_closed_and_forgotten_targets_leave_no_watch(self) -> None:
        cache, bound = Cache(), Watches()
        opened = self.rested(cache, (bound,))
        cache.open(request(opened.session.id, 2, forgotten=[0]))
        assert len(bound.armed) == 2
        cache.open(request(opened.session.id, FINAL_EPOCH))
        assert not bound.armed

    def test_waiting_request_of_an_evicted_session_leaves_no_watch(self) -> None:
        cache, bound = Cache(slots=1), Watches()
        session_id = cache.create(target(0))
        waiting = cache.open(request(session_id, 1))
        cache.now_ms += EVICTION_MS + 1
        cache.create(target(1))
        waiting.targets.rest(waiting.targets.all()[0], (bound,))
        assert not bound.armed

    def test_targets_of_a_full_request_rest_in_the_new_session(self) -> None:
        cache, bound = Cache(), Watches()
        full = cache.open(request(0, INITIAL_EPOCH, target(0), target(1)))
        assert isinstance(full, FullFetch)
        for one in full.targets.due():
            full.targets.rest(one, (bound,))
        answer = full.answer({one: idle() for one in full.targets.all()}, cache.now_ms)
        assert cache.open(request(answer.session_id, 1)).targets.due() == []
        bound.fire()
        assert len(cache.open(request(answer.session_id, 2)).targets.due()) == 2


class TestEviction:
    """Eviction rules of a full cache."""

    def test_young_session_is_safe_from_consumers(self) -> None:
        cache = Cache(slots=1)
        first = cache.create(target(0))
        assert cache.create(target(0), target(1), target(2)) == NO_SESSION
        assert listed(cache.fetch(request(first, 1))) == []
        assert cache.sessions.evictions == 0

    def test_stale_session_yields_to_any_session(self) -> None:
        cache = Cache(slots=2)
        stale = cache.create(*(target(index) for index in range(9)))
        used = cache.create(target(0))
        cache.now_ms += EVICTION_MS + 1
        cache.fetch(request(used, 1))
        assert cache.create(target(0)) != NO_SESSION
        assert cache.refusal(request(stale, 1)) == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
        assert cache.sessions.evictions == 1
        assert metrics_of(cache.sessions) == {
            "numincrementalfetchsessions": len(cache.sessions),
            "numincrementalfetchpartitionscached": cache.sessions.partition_count,
            "incrementalfetchsessionevictions_total": 1,
        }

    def test_old_session_in_use_yields_only_to_a_larger_one(self) -> None:
        cache = Cache(slots=1)
        aged = cache.create(target(0), target(1))
        cache.now_ms += EVICTION_MS
        cache.fetch(request(aged, 1))
        cache.now_ms += 1
        cache.fetch(request(aged, 2))
        assert cache.create(target(0)) == NO_SESSION
        assert cache.create(target(0), target(1), target(2)) != NO_SESSION

    def test_follower_replaces_any_consumer_but_no_young_follower(self) -> None:
        cache = Cache(slots=1)
        consumer = cache.create(target(0), target(1))
        follower = cache.create(target(0), is_follower=True)
        assert follower != NO_SESSION
        assert cache.refusal(request(consumer, 1)) == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
        assert cache.create(target(0), target(1), is_follower=True) == NO_SESSION
        assert cache.create(target(0), target(1)) == NO_SESSION

    def test_smallest_consumer_session_is_evicted_first(self) -> None:
        cache = Cache(slots=2)
        large = cache.create(target(0), target(1))
        small = cache.create(target(0))
        cache.create(target(0), is_follower=True)
        assert cache.refusal(request(small, 1)) == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
        assert listed(cache.fetch(request(large, 1))) == []

    def test_cache_without_slots_opens_no_sessions(self) -> None:
        assert Cache(slots=0).create(target(0)) == NO_SESSION
