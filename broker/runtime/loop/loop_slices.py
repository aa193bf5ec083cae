"""Long work on the event loop, in slices, all of which together take a small part of the loop's time.

For what must be done where the data is changed, on the loop, and is long only now and then: the first look at all that
is known of a partition, say. Whoever works so takes turns with the others, slice by slice, and after each the loop
belongs to everybody else for a few times as long.
"""

import asyncio
from collections.abc import Callable
from typing import Final

from broker.clock import Clock

REST_FACTOR: Final = 3
"""So many times as long as it has worked this rests: a quarter of the loop's time is the most that it takes."""


class LoopSlices:
    """All slices of a node."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._turn = asyncio.Lock()
        self.longest_ms = 0.0

    async def run(self, slice: Callable[[], bool]) -> None:
        """Call `slice`, which must not take long, until it says that all is done. What it worked on may have changed
        since its last call. Returns in the same turn of the loop in which it said so.
        """
        rest_ms = 0.0
        while True:
            async with self._turn:
                await asyncio.sleep(rest_ms / 1000)
                began_ms = self._clock.monotonic_ms()
                is_done = slice()
                took_ms = self._clock.monotonic_ms() - began_ms
            self.longest_ms = max(self.longest_ms, took_ms)
            if is_done:
                return
            rest_ms = took_ms * REST_FACTOR
