"""A bounded pool of threads for work that waits for remote systems, such as an object store.

Work starts in the order of submission and ends in any order. One wake-up of the loop serves all work that has ended.
Threads start when first needed, so an unused pool costs nothing.
"""

import asyncio
import threading
from collections import deque
from collections.abc import Callable
from typing import Any, Final, Protocol, TypeVar

from broker.clock import Clock, SystemClock

T = TypeVar("T")

IDLE_WINDOW_MS: Final = 60_000.0
"""The averaging period of `idle_ratio`."""
_SAMPLE_MS: Final = 1_000.0
"""The minimum time between two samples of `idle_ratio`."""


class PoolFull(Exception):
    """The queue is full; the work may be submitted again later."""


class WorkPool(Protocol):
    """Runs work that waits for remote systems. Tests run it inline."""

    def submit(self, work: Callable[[], T]) -> "asyncio.Future[T]":
        """Run `work` off the loop. The future gets its result or exception. Raise PoolFull.

        Cancelling the future cancels work that has not started; started work completes without effect on the future.
        """
        ...


class _Job:
    __slots__ = ("error", "future", "result", "work")

    def __init__(self, work: Callable[[], Any], future: "asyncio.Future[Any]") -> None:
        self.work = work
        self.future = future
        self.result: Any = None
        self.error: BaseException | None = None

    def run(self) -> None:
        try:
            self.result = self.work()
        except BaseException as error:  # noqa: BLE001  the submitter handles the exception
            self.error = error

    def settle(self) -> None:
        if self.future.done():  # the waiter was cancelled
            return
        if self.error is None:
            self.future.set_result(self.result)
        else:
            self.future.set_exception(self.error)


class _Occupancy:
    """The total busy time of all threads; guarded by the pool's lock."""

    def __init__(self, now_ms: float) -> None:
        self._busy = 0
        self._busy_ms = 0.0
        self._changed_ms = now_ms

    def change(self, by: int, now_ms: float) -> None:
        self.busy_ms(now_ms)
        self._busy += by

    def busy_ms(self, now_ms: float) -> float:
        self._busy_ms += self._busy * (now_ms - self._changed_ms)
        self._changed_ms = now_ms
        return self._busy_ms


class ThreadPool:
    """At most `size` threads and `max_pending` waiting pieces of work; None for no limit, if the submitters have one.

    Create, use and stop the pool on its event loop.
    """

    def __init__(self, size: int, max_pending: int | None, name: str, *, clock: Clock | None = None) -> None:
        self._loop = asyncio.get_running_loop()
        self._clock = clock or SystemClock()
        self._name = name
        self._size = size
        self._max_pending = max_pending
        self._changed = threading.Condition()
        self._waiting: deque[_Job] = deque()
        self._finished: deque[_Job] = deque()
        self._threads: set[threading.Thread] = set()
        self._numbered = 0
        self._idle = 0
        self._unsettled = 0
        self._wake_scheduled = False
        self._is_stopped = False
        self._drained: asyncio.Future[None] | None = None
        now_ms = self._clock.monotonic_ms()
        self._occupancy = _Occupancy(now_ms)
        self._samples: deque[tuple[float, float]] = deque([(now_ms, 0.0)])

    @property
    def size(self) -> int:
        return self._size

    @property
    def pending(self) -> int:
        """The number of pieces of work that wait for a thread."""
        return len(self._waiting)

    def submit(self, work: Callable[[], T]) -> "asyncio.Future[T]":
        """See WorkPool. Raise RuntimeError after `stop`."""
        if self._is_stopped:
            raise RuntimeError(f"the pool {self._name} was stopped")
        if self._max_pending is not None and self._unsettled >= self._size + self._max_pending:
            raise PoolFull(f"{self._max_pending} pieces of work wait for the {self._size} threads of {self._name}")
        future: asyncio.Future[T] = self._loop.create_future()
        self._unsettled += 1
        with self._changed:
            self._waiting.append(_Job(work, future))
            self._start_thread_if_needed()
        return future

    def resize(self, size: int, max_pending: int | None = None) -> None:
        """Change the number of threads, and the queue limit if given. Surplus threads end after their present work."""
        self._size = size
        self._max_pending = self._max_pending if max_pending is None else max_pending
        with self._changed:
            self._changed.notify_all()
            self._start_thread_if_needed()

    async def drain(self) -> None:
        """Return when all submitted work is done."""
        if self._unsettled:
            if self._drained is None:
                self._drained = self._loop.create_future()
            await asyncio.shield(self._drained)

    async def stop(self, *, drop_waiting: bool = False) -> None:
        """Finish all submitted work (or, with `drop_waiting`, started work only) and end the threads.

        May be called again. A caller with a time limit may cancel this: the threads do not keep the process alive.
        """
        self._is_stopped = True
        with self._changed:
            if drop_waiting:
                for job in self._waiting:
                    job.future.cancel()
            self._changed.notify_all()
        await self.drain()
        for thread in tuple(self._threads):
            thread.join()

    def idle_ratio(self) -> float:
        """Return the share of the threads' time spent idle over the last minute, from 0 to 1."""
        now_ms = self._clock.monotonic_ms()
        with self._changed:
            busy_ms = self._occupancy.busy_ms(now_ms)
        samples = self._samples
        while len(samples) > 1 and samples[1][0] <= now_ms - IDLE_WINDOW_MS:
            samples.popleft()
        since_ms, busy_before_ms = samples[0]
        if now_ms - samples[-1][0] >= _SAMPLE_MS:
            samples.append((now_ms, busy_ms))
        capacity_ms = (now_ms - since_ms) * self._size
        return 1.0 if capacity_ms <= 0 else max(0.0, 1.0 - (busy_ms - busy_before_ms) / capacity_ms)

    # Threads, under the lock

    def _start_thread_if_needed(self) -> None:
        """Wake an idle thread, or start a missing one."""
        if self._idle:
            self._changed.notify()
        missing = min(self._size - len(self._threads), len(self._waiting) - self._idle)
        for _ in range(missing):
            self._numbered += 1
            thread = threading.Thread(target=self._run, name=f"{self._name}-{self._numbered}", daemon=True)
            self._threads.add(thread)
            thread.start()

    def _run(self) -> None:
        """A thread: run what is next, and wake the loop only when no wake-up is on its way."""
        while (job := self._next_job()) is not None:
            if not job.future.cancelled():
                job.run()
            with self._changed:
                self._occupancy.change(-1, self._clock.monotonic_ms())
                self._finished.append(job)
                if not self._wake_scheduled:
                    self._wake_scheduled = True
                    self._loop.call_soon_threadsafe(self._settle_finished)

    def _next_job(self) -> _Job | None:
        """Return the next job; None if the thread must end."""
        with self._changed:
            while True:
                if len(self._threads) > self._size or (self._is_stopped and not self._waiting):
                    self._threads.discard(threading.current_thread())
                    return None
                if self._waiting:
                    self._occupancy.change(1, self._clock.monotonic_ms())
                    return self._waiting.popleft()
                self._idle += 1
                self._changed.wait()
                self._idle -= 1

    # On the loop

    def _settle_finished(self) -> None:
        with self._changed:
            self._wake_scheduled = False
            finished = list(self._finished)
            self._finished.clear()
        for job in finished:
            self._unsettled -= 1
            job.settle()
        if not self._unsettled and self._drained is not None:
            self._drained.set_result(None)
            self._drained = None
