"""Periodic removal of lagging replicas from the ISRs of the led partitions (Kafka's "isr-expiration" task).

The check runs every half of `replica.lag.time.max.ms`, so a replica leaves after 1.5 times that time at the latest. One
timer serves all partitions; a check of many partitions yields to the loop in between.
"""

import asyncio
from collections.abc import Callable, Collection
from typing import Final, Protocol

from broker.runtime.loop.waiters import Deadline, Deadlines, Loop

PARTITIONS_PER_TURN: Final = 250
"""Takes about a millisecond."""


class ShrinkableIsr(Protocol):
    """The ISR of a partition (`IsrUpdater`)."""

    def shrink(self) -> None:
        """Propose to remove lagging members, if this broker still leads the partition."""


class IsrShrinking:
    """`led` returns the ISRs of the partitions that this broker leads and that have followers."""

    def __init__(
        self, led: Callable[[], Collection[ShrinkableIsr]], loop: Loop, deadlines: Deadlines, *, lag_time_max_ms: int
    ) -> None:
        self._led = led
        self._loop = loop
        self._deadlines = deadlines
        self._interval_ms = lag_time_max_ms / 2
        self._unchecked: list[ShrinkableIsr] = []
        self._deadline: Deadline | None = None
        self._turn: asyncio.Handle | None = None

    def start(self) -> None:
        """Check for the first time after one interval."""
        self._deadline = self._deadlines.after_ms(self._interval_ms, self._begin)

    def close(self) -> None:
        """Stop checking."""
        if self._deadline is not None:
            self._deadline.cancel()
        if self._turn is not None:
            self._turn.cancel()

    def _begin(self) -> None:
        """Begin a check; the next one is due an interval later, however long this one takes."""
        self.start()
        if not self._unchecked:
            self._unchecked = list(self._led())
            self._check_some()

    def _check_some(self) -> None:
        self._turn = None
        for isr in self._unchecked[-PARTITIONS_PER_TURN:]:
            isr.shrink()
        del self._unchecked[-PARTITIONS_PER_TURN:]
        if self._unchecked:
            self._turn = self._loop.call_soon(self._check_some)
