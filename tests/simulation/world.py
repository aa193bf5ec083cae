"""Simulated time: one queue of events for all processes, and a loop and a clock for each process.

An event is one timer, one message's arrival, or one piece of file work. It runs completely, with all its soon-calls,
before the next one. Processes die between events or in the middle of one (`PowerFailure`); events of a dead process
never run. Clocks of processes run slightly too fast or too slow, and in some worlds timers fire slightly early.
"""

import asyncio
import heapq
from collections import deque
from collections.abc import Callable
from contextvars import Context
from random import Random
from typing import Any, TypeVar, cast

T = TypeVar("T")

SOON_LIMIT = 10_000
"""Number of calls in one event that is taken for an endless loop."""

_EARLY_MS = 0.5
_EARLY_SEEDS = 4  # timers are early in one of this many seeds


def early_ms_of(seed: int) -> float:
    """Return how early timers fire in the history of a seed: 0 in most, half a millisecond in every fourth.

    uvloop rounds the delays of timers to milliseconds.
    """
    return _EARLY_MS if seed % _EARLY_SEEDS == 0 else 0.0


class PowerFailure(BaseException):
    """The machine lost power in the middle of an event."""


class EndlessLoop(AssertionError):
    """An event scheduled soon-calls without end."""


class Handle:
    """The return value of scheduled calls, with the used part of asyncio's interface."""

    __slots__ = ("_args", "_callback", "_cancelled", "process", "when")

    def __init__(
        self, callback: Callable[..., object], args: tuple[object, ...], process: "Process | None", when: float
    ) -> None:
        self._callback = callback
        self._args = args
        self._cancelled = False
        self.process = process
        self.when = when

    def cancel(self) -> None:
        self._cancelled = True

    def cancelled(self) -> bool:
        return self._cancelled

    def run(self) -> None:
        self._callback(*self._args)


class World:
    """The queue of all events; `now_ms` is the true time, `current` the process of the last event.

    Timers of processes fire `early_ms` before their times. Delays of up to twice that time are exact, so that a timer
    set again for the rest of its time is not early.
    """

    def __init__(self, early_ms: float = 0.0) -> None:
        self.now_ms = 0.0
        self.early_ms = early_ms
        self.current: Process | None = None
        self._queue: list[tuple[float, int, Handle]] = []
        self._scheduled = 0

    def schedule(
        self, delay_ms: float, callback: Callable[..., object], *args: object, process: "Process | None" = None
    ) -> Handle:
        """Run a callback later, unless `process` is dead by then."""
        when = self.now_ms + max(0.0, delay_ms)
        handle = Handle(callback, args, process, when)
        self._scheduled += 1
        heapq.heappush(self._queue, (when, self._scheduled, handle))
        return handle

    def step(self) -> bool:
        """Run the next event that is not cancelled; return False without one. Exceptions propagate."""
        self.current = None
        queue = self._queue
        while queue:
            when, _, handle = heapq.heappop(queue)
            process = handle.process
            if handle._cancelled or (process is not None and not process.is_alive):
                continue
            if process is not None and process.stalled_until_ms > when:
                self._scheduled += 1
                heapq.heappush(queue, (process.stalled_until_ms, self._scheduled, handle))
                continue
            self.now_ms = when
            if process is None:
                handle.run()
            else:
                self.run(process, handle.run)
            return True
        return False

    def skip(self, pause_ms: float) -> None:
        """Let time pass without any event, as if every machine were suspended: all events happen later."""
        self.now_ms += pause_ms
        self._queue = [(when + pause_ms, number, handle) for when, number, handle in self._queue]

    @property
    def is_idle(self) -> bool:
        """Whether no event is left."""
        return not self._queue

    def run(self, process: "Process", callback: Callable[..., object], *args: object) -> None:
        """Run a callable of a process as the current event, with all its soon-calls."""
        self.current = process
        process.run(callback, *args)


class Process:
    """One run of a node, from start to crash or stop: a loop that implements `Loop`, and a clock.

    `rate` is the speed of its clocks; `stalled_until_ms` postpones all its events (a long pause of the machine). The
    wall clock can be stepped; the monotonic clock can miss a pause, as after a suspension of a virtual machine.
    """

    def __init__(self, world: World, node_id: int, *, rate: float = 1.0, wall_offset_ms: int = 0) -> None:
        self.world = world
        self.node_id = node_id
        self.is_alive = True
        self.stalled_until_ms = 0.0
        self._rate = rate
        self._wall_offset_ms = wall_offset_ms
        self._missed_ms = 0.0
        self._latest_ms = 0.0
        self._soon: deque[Handle] = deque()

    # The clock

    def now_ms(self) -> int:
        """Return the wall-clock time."""
        return self._wall_offset_ms + int(self.world.now_ms * self._rate)

    def monotonic_ms(self) -> float:
        """Return the time by the monotonic clock, which never runs backwards, even if it missed a pause."""
        now_ms = (self.world.now_ms - self._missed_ms) * self._rate
        if now_ms > self._latest_ms:
            self._latest_ms = now_ms
        return self._latest_ms

    def step_wall_clock(self, by_ms: int) -> None:
        """Move the wall clock; the monotonic clock does not notice."""
        self._wall_offset_ms += by_ms

    def miss(self, pause_ms: float) -> None:
        """Stop the monotonic clock for a pause. Timers that are set already still expire by true time."""
        self._missed_ms += pause_ms

    # The loop

    def time(self) -> float:
        return self.monotonic_ms() / 1000.0

    def get_debug(self) -> bool:
        return False

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        """Ignore failed futures that no one awaits."""

    def create_future(self) -> "asyncio.Future[Any]":
        return asyncio.Future(loop=cast(asyncio.AbstractEventLoop, self))

    def call_soon(
        self, callback: Callable[..., object], *args: object, context: Context | None = None
    ) -> asyncio.Handle:
        handle = Handle(callback, args, self, self.world.now_ms)
        self._soon.append(handle)
        return cast(asyncio.Handle, handle)

    def call_soon_threadsafe(
        self, callback: Callable[..., object], *args: object, context: Context | None = None
    ) -> asyncio.Handle:
        return self.call_soon(callback, *args)

    def call_at(
        self, when: float, callback: Callable[..., object], *args: object, context: Context | None = None
    ) -> asyncio.TimerHandle:
        delay_ms = (when - self.time()) * 1000.0 / self._rate
        early_ms = self.world.early_ms
        if early_ms and delay_ms > 2 * early_ms:
            delay_ms -= early_ms
        return cast(asyncio.TimerHandle, self.world.schedule(delay_ms, callback, *args, process=self))

    def call_later(
        self, delay: float, callback: Callable[..., object], *args: object, context: Context | None = None
    ) -> asyncio.TimerHandle:
        return self.call_at(self.time() + delay, callback, *args)

    # Running

    def run(self, callback: Callable[..., object], *args: object) -> None:
        """Run a callable and all its soon-calls."""
        callback(*args)
        self.run_soon()

    def run_soon(self) -> None:
        soon = self._soon
        for _ in range(SOON_LIMIT):
            if not soon or not self.is_alive:
                return
            handle = soon.popleft()
            if not handle._cancelled:
                handle.run()
        raise EndlessLoop(f"node {self.node_id} schedules soon-calls without end")

    def die(self) -> None:
        """Cancel everything scheduled for this process."""
        self.is_alive = False
        self._soon.clear()


class SimulatedIo:
    """File work of a process. Implements BlockingIo: pieces run in order, each as a delayed event of its own.

    `inline_share` of the pieces that find no other waiting run at once, which costs no event. Until `stalled_until_ms`
    the disk completes nothing.
    """

    def __init__(self, process: Process, random: Random, *, inline_share: float, delay_ms: float) -> None:
        self._process = process
        self._random = random
        self._inline_share = inline_share
        self._delay_ms = delay_ms
        self._jobs: deque[Callable[[], None]] = deque()
        self.stalled_until_ms = 0.0

    def submit(self, work: Callable[[], T]) -> "asyncio.Future[T]":
        future: asyncio.Future[T] = self._process.create_future()

        def run() -> None:
            try:
                result = work()
            except Exception as error:  # noqa: BLE001  it is the submitter's, whatever it is
                if not future.done():
                    future.set_exception(error)
            else:
                if not future.done():
                    future.set_result(result)

        if not self._jobs and self._random.random() < self._inline_share and not self._stall_ms:
            run()
            return future
        self._jobs.append(run)
        if len(self._jobs) == 1:
            self._schedule()
        return future

    def _schedule(self) -> None:
        delay_ms = self._stall_ms + self._random.expovariate(1.0 / self._delay_ms)
        self._process.world.schedule(delay_ms, self._run_first, process=self._process)

    @property
    def _stall_ms(self) -> float:
        return max(0.0, self.stalled_until_ms - self._process.world.now_ms)

    def _run_first(self) -> None:
        if self._stall_ms:  # the stall began after the job
            self._schedule()
            return
        job = self._jobs[0]
        job()
        self._jobs.popleft()
        if self._jobs:
            self._schedule()
