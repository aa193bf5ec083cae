"""Rate limiting of work (`broker.runtime.loop.throttle`)."""

import math

from broker.runtime.loop.throttle import Throttle
from tests.support.fakes.clock import ManualClock


def test_work_above_the_rate_requires_a_pause() -> None:
    throttle = Throttle(ManualClock(), lambda: 1000.0)
    assert throttle.pause_ms(500) == 500.0
    assert throttle.pause_ms(500) == 1000.0


def test_elapsed_time_reduces_the_pause() -> None:
    clock = ManualClock()
    throttle = Throttle(clock, lambda: 1000.0)
    throttle.pause_ms(500)
    clock.advance_ms(400)
    assert throttle.pause_ms(100) == 200.0


def test_idle_time_gives_no_credit() -> None:
    clock = ManualClock()
    throttle = Throttle(clock, lambda: 1000.0)
    clock.advance_ms(60_000)
    assert throttle.pause_ms(50) == 50.0


def test_short_pauses_accumulate() -> None:
    throttle = Throttle(ManualClock(), lambda: 10_000.0)
    assert [throttle.pause_ms(4) for _ in range(3)] == [0.0, 0.0, 1.2000000000000002]


def test_unlimited_rate_requires_no_pause() -> None:
    assert Throttle(ManualClock(), lambda: math.inf).pause_ms(10**12) == 0.0
    assert Throttle(ManualClock(), lambda: 1.7976931348623157e308).pause_ms(10**12) == 0.0
