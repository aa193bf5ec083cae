"""An event loop whose clock advances only on request: timers fire in order, without sleeping or polling."""

import asyncio
import heapq
from collections import deque
from collections.abc import Callable
from contextvars import Context
from typing import Any, TypeVarTuple, cast

Args = TypeVarTuple("Args")


class ManualLoop:
    """The part of an event loop for timers, soon-calls and futures. `advance` moves time, `run_soon` runs ready
    callbacks. Timers fire `early_s` before their times, as those of asyncio and uvloop may: uvloop rounds to
    milliseconds.
    """

    def __init__(self, early_s: float = 0.0) -> None:
        self._early_s = early_s
        self._fired_s = 0.0
        self._now = 1000.0
        self._ready: deque[asyncio.Handle] = deque()
        self._timers: list[tuple[float, int, asyncio.TimerHandle]] = []
        self.timers_set = 0
        self.failures: list[dict[str, Any]] = []

    @property
    def _as_asyncio(self) -> asyncio.AbstractEventLoop:
        return cast(asyncio.AbstractEventLoop, self)

    def time(self) -> float:
        return self._now

    def get_debug(self) -> bool:
        return False

    def create_future(self) -> asyncio.Future[Any]:
        return asyncio.Future(loop=self._as_asyncio)

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        self.failures.append(context)

    def call_soon(
        self, callback: Callable[[*Args], object], *args: *Args, context: Context | None = None
    ) -> asyncio.Handle:
        handle = asyncio.Handle(callback, args, self._as_asyncio, context)
        self._ready.append(handle)
        return handle

    def call_soon_threadsafe(
        self, callback: Callable[[*Args], object], *args: *Args, context: Context | None = None
    ) -> asyncio.Handle:
        return self.call_soon(callback, *args, context=context)

    def call_at(
        self,
        when: float,
        callback: Callable[[*Args], object],
        *args: *Args,
        context: Context | None = None,
    ) -> asyncio.TimerHandle:
        handle = asyncio.TimerHandle(when, callback, args, self._as_asyncio, context)
        self.timers_set += 1
        heapq.heappush(self._timers, (when, self.timers_set, handle))
        return handle

    def call_later(
        self,
        delay: float,
        callback: Callable[[*Args], object],
        *args: *Args,
        context: Context | None = None,
    ) -> asyncio.TimerHandle:
        return self.call_at(self._now + delay, callback, *args, context=context)

    def _timer_handle_cancelled(self, handle: asyncio.TimerHandle) -> None:
        """Ignore the notification of asyncio: cancelled timers are skipped when they are due."""

    @property
    def live_timers(self) -> int:
        """Return the number of timers that have neither fired nor been cancelled."""
        return sum(not handle.cancelled() for _, _, handle in self._timers)

    def run_soon(self) -> None:
        """Run all ready callbacks, and those that they schedule, until none is left."""
        while self._ready:
            self._run_first()

    def run_turn(self) -> None:
        """Run the callbacks that are ready now; those that they schedule wait for the next turn."""
        for _ in range(len(self._ready)):
            self._run_first()

    def _run_first(self) -> None:
        handle = self._ready.popleft()
        if not handle.cancelled():
            handle._run()

    def advance(self, seconds: float) -> None:
        """Advance the clock, firing timers at their times."""
        end = self._now + seconds
        self.run_soon()
        while self._timers and self._timers[0][0] <= end:
            when, _, handle = heapq.heappop(self._timers)
            early_s = 0.0 if when <= self._fired_s else self._early_s  # a timer set again for that moment is not early
            self._now, self._fired_s = max(self._now, when - early_s), when
            if not handle.cancelled():
                handle._run()
            self.run_soon()
        self._now = end
