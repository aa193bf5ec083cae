"""The lag of the event loop: the metric that shows blocking code anywhere in the process."""

import asyncio
from collections.abc import Callable
from typing import Protocol

from broker.metrics.family import Family, gauge

PERIOD_S = 0.25
PERIODS_PER_WINDOW = 60  # a peak stays visible for one to two windows of 15 s: longer than a usual scrape interval


class LoopTimers(Protocol):
    """The part of an event loop that sets timers."""

    def time(self) -> float:
        """Seconds by the loop's clock."""
        ...

    def call_at(self, when: float, callback: Callable[[], None], /) -> asyncio.TimerHandle:
        """Call `callback` at `when`."""
        ...


class LoopLag:
    """Sets a periodic timer and measures its delay."""

    __slots__ = ("_due", "_latest", "_loop", "_previous", "_rings", "_timer")

    def __init__(self, loop: LoopTimers) -> None:
        self._loop = loop
        self._latest = 0.0  # the greatest lag of the current window and of the one before
        self._previous = 0.0
        self._rings = 0
        self._due = loop.time() + PERIOD_S
        self._timer = loop.call_at(self._due, self._on_timer)

    @property
    def seconds(self) -> float:
        """Return the greatest lag of the last 15 to 30 seconds, the current lag included."""
        overdue = self._loop.time() - self._due
        return max(self._latest, self._previous, overdue, 0.0)

    def stop(self) -> None:
        """Stop the timer."""
        self._timer.cancel()

    def family(self) -> Family:
        """Return the gauge."""
        return gauge(
            "ottla_event_loop_lag_seconds", "Greatest delay of the event loop in the last 15 s or more", self._read
        )

    def _read(self) -> float:
        return self.seconds

    def _on_timer(self) -> None:
        now = self._loop.time()
        self._latest = max(self._latest, now - self._due)
        self._rings += 1
        if self._rings % PERIODS_PER_WINDOW == 0:
            self._previous, self._latest = self._latest, 0.0
        self._due = now + PERIOD_S
        self._timer = self._loop.call_at(self._due, self._on_timer)
