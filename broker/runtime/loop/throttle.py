"""Keeps work below a rate, by saying how long to pause after each piece of it."""

from collections.abc import Callable

from broker.clock import Clock

SHORTEST_PAUSE_MS = 1.0
"""Debts below this are carried forward: a timer is no finer."""


class Throttle:
    """`bytes_per_second` is asked every time, since it may change while the work runs."""

    def __init__(self, clock: Clock, bytes_per_second: Callable[[], float]) -> None:
        self._clock = clock
        self._bytes_per_second = bytes_per_second
        self._paid_until_ms = clock.monotonic_ms()

    def pause_ms(self, done_bytes: int) -> float:
        """Account for work done; milliseconds to wait before more of it, 0 for none. Idle time earns no credit."""
        now_ms = self._clock.monotonic_ms()
        cost_ms = done_bytes * 1000 / self._bytes_per_second()
        self._paid_until_ms = max(self._paid_until_ms, now_ms) + cost_ms
        debt_ms = self._paid_until_ms - now_ms
        return debt_ms if debt_ms >= SHORTEST_PAUSE_MS else 0.0
