"""Rate limiting of work by pauses after each piece."""

from collections.abc import Callable

from broker.clock import Clock

SHORTEST_PAUSE_MS = 1.0
"""Shorter pauses are carried forward, because timers are not more precise."""


class Throttle:
    """Limits work to `bytes_per_second()`, which is read for each piece because it may change."""

    def __init__(self, clock: Clock, bytes_per_second: Callable[[], float]) -> None:
        self._clock = clock
        self._bytes_per_second = bytes_per_second
        self._paid_until_ms = clock.monotonic_ms()

    def pause_ms(self, done_bytes: int) -> float:
        """Count completed work. Return the pause in ms before the next piece. Idle time gives no credit."""
        now_ms = self._clock.monotonic_ms()
        cost_ms = done_bytes * 1000 / self._bytes_per_second()
        self._paid_until_ms = max(self._paid_until_ms, now_ms) + cost_ms
        debt_ms = self._paid_until_ms - now_ms
        return debt_ms if debt_ms >= SHORTEST_PAUSE_MS else 0.0
