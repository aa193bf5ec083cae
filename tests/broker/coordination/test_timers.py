"""Keyed timers."""

from broker.coordination.timers import TimerQueue
from tests.support.fakes.clock import ManualClock


class Fixture:
    def __init__(self) -> None:
        self.clock = ManualClock()
        self.timers: TimerQueue[str] = TimerQueue(self.clock.monotonic_ms)

    def due_after(self, milliseconds: int) -> list[str]:
        self.clock.advance_ms(milliseconds)
        return list(self.timers.due(self.clock.monotonic_ms()))


def test_causes_come_due_in_the_order_of_their_deadlines() -> None:
    fixture = Fixture()
    fixture.timers.schedule("b", 20, "second")
    fixture.timers.schedule("a", 10, "first")
    fixture.timers.schedule("c", 30, "later")
    assert fixture.due_after(20) == ["first", "second"]
    assert fixture.due_after(10) == ["later"]
    assert len(fixture.timers) == 0


def test_rescheduled_key_replaces_its_cause() -> None:
    fixture = Fixture()
    fixture.timers.schedule("a", 10, "old")
    fixture.timers.schedule("a", 20, "new")
    assert fixture.due_after(10) == []
    assert fixture.due_after(10) == ["new"]


def test_key_can_be_moved_to_an_earlier_time() -> None:
    fixture = Fixture()
    fixture.timers.schedule("a", 20, "old")
    fixture.timers.schedule("a", 5, "new")
    assert fixture.timers.next_wake_ms == 5
    assert fixture.due_after(5) == ["new"]
    assert fixture.due_after(20) == []


def test_cancelled_key_never_comes_due() -> None:
    fixture = Fixture()
    fixture.timers.schedule("a", 10, "a")
    fixture.timers.cancel("a")
    fixture.timers.cancel("unknown")
    assert "a" not in fixture.timers
    assert fixture.timers.next_wake_ms is None
    assert fixture.due_after(10) == []


def test_cancelled_key_can_be_scheduled_again() -> None:
    fixture = Fixture()
    fixture.timers.schedule("a", 10, "old")
    fixture.timers.cancel("a")
    fixture.timers.schedule("a", 10, "new")
    assert fixture.due_after(10) == ["new"]


def test_cause_cancelled_by_an_earlier_one_is_not_yielded() -> None:
    fixture = Fixture()
    fixture.timers.schedule("a", 10, "a")
    fixture.timers.schedule("b", 10, "b")
    fixture.timers.schedule("c", 10, "c")
    fixture.clock.advance_ms(10)
    handed_out = []
    for cause in fixture.timers.due(fixture.clock.monotonic_ms()):
        handed_out.append(cause)
        fixture.timers.cancel("b")
    assert handed_out == ["a", "c"]


def test_cause_rescheduled_while_due_waits_for_its_new_deadline() -> None:
    """A cause that reschedules itself without delay must not loop forever."""
    fixture = Fixture()
    fixture.timers.schedule("a", 0, "a")
    handed_out = []
    for cause in fixture.timers.due(fixture.clock.monotonic_ms()):
        handed_out.append(cause)
        fixture.timers.schedule("a", 0, "again")
    assert handed_out == ["a"]
    assert fixture.due_after(0) == ["again"]


def test_session_renewed_many_times_has_one_heap_entry() -> None:
    fixture = Fixture()
    for _ in range(1000):
        fixture.timers.schedule("session", 10_000, "expired")
        fixture.clock.advance_ms(3)
    assert len(fixture.timers._heap) == 1
    assert fixture.due_after(9_000) == []
    assert fixture.due_after(997) == ["expired"]


def test_next_wake_is_never_later_than_the_next_deadline() -> None:
    fixture = Fixture()
    fixture.timers.schedule("a", 10, "a")
    fixture.timers.schedule("a", 50, "a")
    assert fixture.timers.next_wake_ms == 10
    assert fixture.due_after(10) == []
    assert fixture.timers.next_wake_ms == 50
    assert fixture.timers.deadline_ms("a") == 50
    assert fixture.timers.deadline_ms("b") is None


def test_clear_removes_all_timers() -> None:
    fixture = Fixture()
    fixture.timers.schedule("a", 10, "a")
    fixture.timers.clear()
    assert fixture.due_after(10) == []
