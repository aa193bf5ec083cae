"""Looks for members of in-sync sets that lag, every half of the time that they may; so one leaves after 1.5 times that.

One timer serves all partitions, and a look at many takes turns with everybody else's work.
"""

import asyncio
from collections.abc import Callable, Collection
from typing import Final, Protocol

from broker.runtime.loop.waiters import Deadline, Deadlines, Loop

PARTITIONS_PER_TURN: Final = 250
"""About a millisecond's worth."""


class Shrinkable(Protocol):
    """A partition; what it does if it is not led from here any more is nothing."""

    def shrink_isr(self) -> None:
        """Propose to drop the members that lag."""


class IsrShrinking:
    """`led` gives the partitions that are led from here and have followers; `lag_time_max_ms` is
    `replica.lag.time.max.ms`."""

    def __init__(
        self,
        led: Callable[[], Collection[Shrinkable]],
        loop: Loop,
        deadlines: Deadlines,
        *,
        lag_time_max_ms: int,
    ) -> None:
        self._led = led
        self._loop = loop
        self._deadlines = deadlines
        self._interval_ms = lag_time_max_ms / 2
        self._to_look_at: list[Shrinkable] = []
        self._deadline: Deadline | None = None
        self._turn: asyncio.Handle | None = None

    def start(self) -> None:
        """Look for the first time after an interval."""
        self._deadline = self._deadlines.after_ms(self._interval_ms, self._begin)

    def close(self) -> None:
        """Look no more."""
        if self._deadline is not None:
            self._deadline.cancel()
        if self._turn is not None:
            self._turn.cancel()

    def _begin(self) -> None:
        """The next look begins an interval after this one, however long this one takes."""
        self.start()
        if not self._to_look_at:
            self._to_look_at = list(self._led())
            self._look()

    def _look(self) -> None:
        self._turn = None
        for partition in self._to_look_at[-PARTITIONS_PER_TURN:]:
            partition.shrink_isr()
        del self._to_look_at[-PARTITIONS_PER_TURN:]
        if self._to_look_at:
            self._turn = self._loop.call_soon(self._look)
