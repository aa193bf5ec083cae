"""Deadlines, offset waiters and watches (`broker.runtime.loop.waiters`)."""

from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.runtime.loop.waiters import Deadlines, OffsetWaiters, Watch, Watches
from protocol.errors import ErrorCode
from tests.support.fakes.manual_loop import ManualLoop


@pytest.fixture
def loop() -> ManualLoop:
    return ManualLoop()


def test_deadlines_expire_in_order(loop: ManualLoop) -> None:
    rung: list[str] = []
    deadlines = Deadlines(loop)
    deadlines.after_ms(300, partial(rung.append, "late"))
    deadlines.after_ms(100, partial(rung.append, "early"))
    loop.advance(0.2)
    assert rung == ["early"]
    loop.advance(0.2)
    assert rung == ["early", "late"]
    assert len(deadlines) == 0


def test_one_timer_serves_all_deadlines(loop: ManualLoop) -> None:
    deadlines = Deadlines(loop)
    for delay in range(1000, 2000):
        deadlines.after_ms(delay, lambda: None)
    assert loop.live_timers == 1
    assert loop.timers_set == 1


def test_cancelled_deadline_never_expires(loop: ManualLoop) -> None:
    rung: list[str] = []
    deadlines = Deadlines(loop)
    cancelled = deadlines.after_ms(100, partial(rung.append, "cancelled"))
    deadlines.after_ms(100, partial(rung.append, "kept"))
    cancelled.cancel()
    cancelled.cancel()
    assert len(deadlines) == 1
    loop.advance(1)
    assert rung == ["kept"]
    assert not deadlines


def test_deadline_callback_may_add_and_cancel_deadlines(loop: ManualLoop) -> None:
    rung: list[str] = []
    deadlines = Deadlines(loop)

    def first() -> None:
        rung.append("first")
        other.cancel()
        deadlines.after_ms(50, partial(rung.append, "next"))
        deadlines.after_ms(0, partial(rung.append, "soon"))

    deadlines.after_ms(100, first)
    other = deadlines.after_ms(100, partial(rung.append, "cancelled in time"))
    deadlines.after_ms(120, partial(rung.append, "between"))
    loop.advance(0.1)
    assert rung == ["first", "soon"]
    loop.advance(1)
    assert rung == ["first", "soon", "between", "next"]
    assert len(deadlines) == 0
    assert loop.live_timers == 0


def test_cancelled_deadlines_do_not_accumulate(loop: ManualLoop) -> None:
    deadlines = Deadlines(loop)
    for _ in range(10_000):
        deadlines.after_ms(1e9, lambda: None).cancel()
    assert len(deadlines._heap) < 200


def test_close_cancels_all_deadlines(loop: ManualLoop) -> None:
    rung: list[str] = []
    deadlines = Deadlines(loop)
    pending = deadlines.after_ms(10, partial(rung.append, "never"))
    deadlines.close()
    pending.cancel()
    loop.advance(1)
    assert rung == []
    assert len(deadlines) == 0


def test_waiters_are_settled_by_threshold() -> None:
    settled: list[int] = []
    waiters = OffsetWaiters()
    for threshold in (5, 3, 9, 3):
        waiters.add(threshold, lambda error, threshold=threshold: settled.append(threshold))  # type: ignore[misc]
    waiters.reached(2)
    assert settled == []
    waiters.reached(5)
    assert settled == [3, 3, 5]
    assert len(waiters) == 1


def test_fail_settles_all_waiters_with_the_error() -> None:
    errors: list[ErrorCode] = []
    waiters = OffsetWaiters()
    waiters.add(7, errors.append)
    waiters.add(4, errors.append)
    waiters.fail(ErrorCode.NOT_LEADER_OR_FOLLOWER)
    assert errors == [ErrorCode.NOT_LEADER_OR_FOLLOWER] * 2
    waiters.reached(100)
    assert len(errors) == 2


def test_waiter_cancelled_during_fail_is_not_settled() -> None:
    errors: list[str] = []
    waiters = OffsetWaiters()

    def first(error: ErrorCode) -> None:
        errors.append("first")
        second.cancel()

    waiters.add(1, first)
    second = waiters.add(2, lambda error: errors.append("second"))
    waiters.fail(ErrorCode.KAFKA_STORAGE_ERROR)
    assert errors == ["first"]
    assert len(waiters) == 0


@given(st.lists(st.tuples(st.integers(0, 30), st.booleans()), max_size=300), st.lists(st.integers(0, 30)))
def test_waiters_agree_with_a_plain_list(entries: list[tuple[int, bool]], offsets: list[int]) -> None:
    """Random additions, cancellations and offsets: the heap agrees with a naive implementation."""
    settled: list[int] = []
    waiters = OffsetWaiters()
    pending: dict[int, int] = {}
    for number, (threshold, cancel) in enumerate(entries):
        waiter = waiters.add(threshold, lambda error, number=number: settled.append(number))  # type: ignore[misc]
        if cancel:
            waiter.cancel()
        else:
            pending[number] = threshold
    for offset in offsets:
        expected = sorted((t, n) for n, t in pending.items() if t <= offset)
        settled.clear()
        waiters.reached(offset)
        assert settled == [n for _, n in expected]
        pending = {n: t for n, t in pending.items() if t > offset}
        assert len(waiters) == len(pending)


def test_watch_fires_once_per_arming() -> None:
    fired: list[str] = []
    bound = Watches()
    watch = Watch((bound,), partial(fired.append, "changed"))
    bound.fire()
    watch.arm()
    watch.arm()
    bound.fire()
    bound.fire()
    assert fired == ["changed"]
    assert not bound.armed


def test_watch_on_two_bounds_fires_for_the_first_change() -> None:
    fired: list[str] = []
    log_end, committed = Watches(), Watches()
    watch = Watch((log_end, committed), partial(fired.append, "changed"))
    watch.arm()
    committed.fire()
    log_end.fire()
    assert fired == ["changed"]


def test_fire_first_leaves_the_others_armed() -> None:
    fired: list[str] = []
    bound = Watches()
    bound.fire_first()
    for name in ("a", "b", "c"):
        Watch((bound,), partial(fired.append, name)).arm()
    bound.fire_first()
    bound.fire_first()
    assert fired == ["a", "b"]
    assert len(bound.armed) == 1


def test_watch_armed_while_firing_waits_for_the_next_change() -> None:
    fired: list[str] = []
    bound = Watches()

    def on_change() -> None:
        fired.append("changed")
        watch.arm()

    watch = Watch((bound,), on_change)
    watch.arm()
    bound.fire()
    assert fired == ["changed"]
    bound.fire()
    assert fired == ["changed", "changed"]


def test_disarmed_watch_does_not_fire() -> None:
    fired: list[str] = []
    bound = Watches()
    watch = Watch((bound,), partial(fired.append, "changed"))
    watch.arm()
    watch.disarm()
    bound.fire()
    assert fired == []
