"""A small asyncio loop in simulated time: callbacks run in order, and time jumps to the next timer.

The loop has no selector, threads, contexts or exception handlers, which cost more than a simulated event. Exceptions of
callbacks propagate out of `run`.
"""

import asyncio
import contextlib
import heapq
from collections import deque
from collections.abc import Callable, Coroutine
from contextvars import Context
from typing import Any, TypeVar, cast

T = TypeVar("T")

SOON_LIMIT = 100_000
"""Number of calls without progress of time that is taken for an endless loop."""


class EndlessLoop(AssertionError):
    """Callbacks schedule each other without end."""


class _Handle:
    """The return value of scheduled calls, with the used part of asyncio's interface."""

    __slots__ = ("_args", "_callback", "_when", "is_cancelled")

    def __init__(self, callback: Callable[..., object], args: tuple[object, ...], when: float) -> None:
        self._callback = callback
        self._args = args
        self._when = when
        self.is_cancelled = False

    def cancel(self) -> None:
        self.is_cancelled = True
        self._args = ()

    def cancelled(self) -> bool:
        return self.is_cancelled

    def when(self) -> float:
        return self._when

    def run(self) -> None:
        self._callback(*self._args)


class SimulatedLoop:
    """An event loop whose time is simulated; it has the part of asyncio's interface that tasks and futures use.

    Timers fire `early_s` before their times, except those with a delay of up to twice that time.
    """

    def __init__(self, start_s: float = 1000.0, early_s: float = 0.0) -> None:
        self._now_s = start_s
        self._early_s = early_s
        self._ready: deque[_Handle] = deque()
        self._timers: list[tuple[float, int, _Handle]] = []
        self._scheduled = 0
        self._as_loop = cast(asyncio.AbstractEventLoop, self)

    def run(self, main: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine to its end and cancel all other tasks, like `asyncio.run`."""
        asyncio._set_running_loop(self._as_loop)
        try:
            task = asyncio.Task(main, loop=self._as_loop)
            while not task.done():
                self._run_ready()
                if not task.done():
                    self._run_next_timer()
            return task.result()
        finally:
            self._cancel_all()
            asyncio._set_running_loop(None)

    def _cancel_all(self) -> None:
        """Cancel all tasks. Tasks that suppress the cancellation are left where they are."""
        for task in asyncio.all_tasks(self._as_loop):
            task.cancel()
        with contextlib.suppress(BaseException):
            self._run_ready()

    def _run_ready(self) -> None:
        ready = self._ready
        for _ in range(SOON_LIMIT):
            if not ready:
                return
            handle = ready.popleft()
            if not handle.is_cancelled:
                handle.run()
        raise EndlessLoop(f"{SOON_LIMIT} calls at {self._now_s}")

    def _run_next_timer(self) -> None:
        while self._timers:
            when, _, handle = heapq.heappop(self._timers)
            if not handle.is_cancelled:
                self._now_s = max(self._now_s, when)
                handle.run()
                return
        raise EndlessLoop("everything waits for something that never happens")

    # ---- the interface of asyncio.AbstractEventLoop

    def time(self) -> float:
        return self._now_s

    def get_debug(self) -> bool:
        return False

    def is_running(self) -> bool:
        return True

    def is_closed(self) -> bool:
        return False

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        """Ignore failed futures that no one awaits."""

    def create_future(self) -> "asyncio.Future[Any]":
        return asyncio.Future(loop=self._as_loop)

    def create_task(
        self, coro: Coroutine[Any, Any, T], *, name: object = None, context: Context | None = None
    ) -> "asyncio.Task[T]":
        return asyncio.Task(coro, loop=self._as_loop, name="")

    def call_soon(
        self, callback: Callable[..., object], *args: object, context: Context | None = None
    ) -> asyncio.Handle:
        handle = _Handle(callback, args, self._now_s)
        self._ready.append(handle)
        return cast(asyncio.Handle, handle)

    def call_at(
        self, when: float, callback: Callable[..., object], *args: object, context: Context | None = None
    ) -> asyncio.TimerHandle:
        if self._early_s and when - self._now_s > 2 * self._early_s:
            when -= self._early_s
        handle = _Handle(callback, args, when)
        self._scheduled += 1
        heapq.heappush(self._timers, (when, self._scheduled, handle))
        return cast(asyncio.TimerHandle, handle)

    def call_later(
        self, delay: float, callback: Callable[..., object], *args: object, context: Context | None = None
    ) -> asyncio.TimerHandle:
        return self.call_at(self._now_s + delay, callback, *args)
