"""Long work on the event loop, in slices that together take a limited share of the loop's time.

For occasional long work that must run on the loop because its data changes there, such as the first scan of a
partition's remote segments. Works alternate slice by slice, and a pause of a multiple of its duration follows each
slice.
"""

import asyncio
from collections.abc import Callable
from typing import Final

from broker.clock import Clock

REST_FACTOR: Final = 3
"""The pause after a slice, in multiples of its duration: slices take at most a quarter of the loop's time."""


class LoopSlices:
    """Runs the slices of all works of a node, one at a time."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._lock = asyncio.Lock()
        self.longest_ms = 0.0

    async def run(self, slice: Callable[[], bool]) -> None:
        """Call the short function `slice` repeatedly until it returns True.

        Its data may change between two calls. Return in the same loop iteration in which it returned True.
        """
        rest_ms = 0.0
        while True:
            async with self._lock:
                await asyncio.sleep(rest_ms / 1000)
                began_ms = self._clock.monotonic_ms()
                is_done = slice()
                took_ms = self._clock.monotonic_ms() - began_ms
            self.longest_ms = max(self.longest_ms, took_ms)
            if is_done:
                return
            rest_ms = took_ms * REST_FACTOR
