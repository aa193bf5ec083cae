"""Work below a rate."""

import math

from broker.runtime.loop.throttle import Throttle
from tests.support.clock import ManualClock


def test_work_is_paid_for_with_time() -> None:
    throttle = Throttle(ManualClock(), lambda: 1000.0)
    assert throttle.pause_ms(500) == 500.0
    assert throttle.pause_ms(500) == 1000.0


def test_time_that_passes_pays() -> None:
    clock = ManualClock()
    throttle = Throttle(clock, lambda: 1000.0)
    throttle.pause_ms(500)
    clock.advance_ms(400)
    assert throttle.pause_ms(100) == 200.0


def test_idleness_earns_no_credit() -> None:
    clock = ManualClock()
    throttle = Throttle(clock, lambda: 1000.0)
    clock.advance_ms(60_000)
    assert throttle.pause_ms(50) == 50.0


def test_small_debts_add_up_before_anyone_waits() -> None:
    throttle = Throttle(ManualClock(), lambda: 10_000.0)
    assert [throttle.pause_ms(4) for _ in range(3)] == [0.0, 0.0, 1.2000000000000002]


def test_without_a_bound_nobody_waits() -> None:
    assert Throttle(ManualClock(), lambda: math.inf).pause_ms(10**12) == 0.0
    assert Throttle(ManualClock(), lambda: 1.7976931348623157e308).pause_ms(10**12) == 0.0
