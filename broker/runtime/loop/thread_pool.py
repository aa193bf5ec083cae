"""A few threads for work that waits for something far away, such as an object store; never more, whatever is asked.

Work begins in the order in which it was submitted, and ends in any. What ends while the loop is busy wakes it once.
Threads are started when they are first needed: a pool that nobody uses costs nothing. It does not know what it runs.
"""

import asyncio
import threading
from collections import deque
from collections.abc import Callable
from typing import Any, Final, Protocol, TypeVar

from broker.clock import Clock, SystemClock

T = TypeVar("T")

IDLE_WINDOW_MS: Final = 60_000.0
"""Over this time `idle_ratio` is an average."""
_SAMPLE_MS: Final = 1_000.0
"""Questions that follow faster are answered from the same sample."""


class PoolFull(Exception):
    """As much waits already as may; the same work may be submitted later."""


class WorkPool(Protocol):
    """Where work goes that waits for other machines. Tests do it inline."""

    def submit(self, work: Callable[[], T]) -> "asyncio.Future[T]":
        """Run `work` off the loop; its result or error ends the future. Raises PoolFull.

        Cancelling the future takes back work that has not begun; what has begun goes on, unheard.
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
        except BaseException as error:  # noqa: BLE001  it is the submitter's to handle, whatever it is
            self.error = error

    def settle(self) -> None:
        if self.future.done():  # nobody waits for it any more
            return
        if self.error is None:
            self.future.set_result(self.result)
        else:
            self.future.set_exception(self.error)


class _Occupancy:
    """For how long threads were busy, all together; guarded by the pool's lock."""

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
    """At most `size` threads, and at most `max_pending` pieces of work that wait for one. None: whoever submits has a
    bound of their own, and is never refused.

    To be made, used and stopped on the event loop that it serves.
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
        self._resting = 0
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
        """Pieces of work that wait for a thread."""
        return len(self._waiting)

    def submit(self, work: Callable[[], T]) -> "asyncio.Future[T]":
        """See WorkPool. RuntimeError after `stop`."""
        if self._is_stopped:
            raise RuntimeError(f"the pool {self._name} was stopped")
        if self._max_pending is not None and self._unsettled >= self._size + self._max_pending:
            raise PoolFull(f"{self._max_pending} pieces of work wait for the {self._size} threads of {self._name}")
        future: asyncio.Future[T] = self._loop.create_future()
        self._unsettled += 1
        with self._changed:
            self._waiting.append(_Job(work, future))
            self._see_to_threads()
        return future

    def resize(self, size: int, max_pending: int | None = None) -> None:
        """From now on as many threads, and as much work waiting if given; surplus threads end with what they do."""
        self._size = size
        self._max_pending = self._max_pending if max_pending is None else max_pending
        with self._changed:
            self._changed.notify_all()
            self._see_to_threads()

    async def drain(self) -> None:
        """Return when everything that was submitted is done."""
        if self._unsettled:
            if self._drained is None:
                self._drained = self._loop.create_future()
            await asyncio.shield(self._drained)

    async def stop(self, *, drop_waiting: bool = False) -> None:
        """Finish what was submitted, or only what has begun, and end the threads. May be called again.

        Waits for as long as the work does. A caller that cannot may be cancelled: threads do not keep a process alive.
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
        """Which part of the threads' time, over the last minute, was spent waiting for work: 0 to 1."""
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

    # ---- threads, under the lock

    def _see_to_threads(self) -> None:
        """Wake who rests, or start who is missing."""
        if self._resting:
            self._changed.notify()
        missing = min(self._size - len(self._threads), len(self._waiting) - self._resting)
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
        """None when the thread is to end."""
        with self._changed:
            while True:
                if len(self._threads) > self._size or (self._is_stopped and not self._waiting):
                    self._threads.discard(threading.current_thread())
                    return None
                if self._waiting:
                    self._occupancy.change(1, self._clock.monotonic_ms())
                    return self._waiting.popleft()
                self._resting += 1
                self._changed.wait()
                self._resting -= 1

    # ---- on the loop

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
