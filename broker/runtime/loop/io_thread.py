"""The thread for blocking file operations, which must not run on the event loop.

Jobs run strictly in the order of submission: a write, an fsync and a rename submitted in this order run in this order.
Completions return in batches: one wake-up of the loop, which costs a system call, serves all jobs that have ended.

Long pure-Python work must not run here, because it would hold the interpreter lock against the loop.
"""

import asyncio
import queue
import threading
from collections import deque
from collections.abc import Callable
from typing import Any, Protocol, TypeVar

T = TypeVar("T")

# Far more than any load produces; a full queue means that a disk hangs.
QUEUE_CAPACITY = 65_536


class IoBacklogFull(Exception):
    """The queue is full: `QUEUE_CAPACITY` jobs wait for the disk."""


class BlockingIo(Protocol):
    """Runs blocking file operations. A node uses `IoThread`; the simulator and tests run them inline."""

    def submit(self, work: Callable[[], T]) -> "asyncio.Future[T]":
        """Run `work` off the loop, after all work submitted before. The future gets its result or exception."""
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
        if self.future.done():  # the waiter was cancelled; the work runs all the same
            return
        if self.error is None:
            self.future.set_result(self.result)
        else:
            self.future.set_exception(self.error)


class IoThread:
    """A thread with an ordered, bounded queue. Create, use and stop it on its event loop."""

    def __init__(
        self, loop: asyncio.AbstractEventLoop, *, name: str = "ottla-io", capacity: int = QUEUE_CAPACITY
    ) -> None:
        self._loop = loop
        self._capacity = capacity
        self._jobs: queue.SimpleQueue[_Job | None] = queue.SimpleQueue()
        self._finished: deque[_Job] = deque()
        self._unsettled = 0
        self._wake_scheduled = False
        self._stopped: asyncio.Future[None] | None = None
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    @property
    def backlog(self) -> int:
        """The number of submitted jobs whose futures are not done."""
        return self._unsettled

    def submit(self, work: Callable[[], T]) -> "asyncio.Future[T]":
        """Queue `work`. Raise IoBacklogFull if the queue is full, and RuntimeError after `stop`.

        Cancelling the future drops the result only; the work still runs, because later jobs may depend on it.
        """
        if self._stopped is not None:
            raise RuntimeError("the IO thread was stopped")
        if self._unsettled >= self._capacity:
            raise IoBacklogFull(f"{self._unsettled} file operations are waiting for the disk")
        future: asyncio.Future[T] = self._loop.create_future()
        self._unsettled += 1
        self._jobs.put(_Job(work, future))
        return future

    async def stop(self) -> None:
        """Finish all submitted work, then end the thread. May be called again."""
        if self._stopped is None:
            self._stopped = self._loop.create_future()
            self._jobs.put(None)
        await asyncio.shield(self._stopped)
        self._thread.join()

    def _run(self) -> None:
        """Run jobs in order on the thread, and wake the loop unless a wake-up is already scheduled.

        No completion is lost: the loop clears `_wake_scheduled` before it empties `_finished`. A job added before that
        is in the batch; a job added later finds the flag cleared and schedules the next wake-up.
        """
        while (job := self._jobs.get()) is not None:
            job.run()
            self._finished.append(job)
            if not self._wake_scheduled:
                self._wake_scheduled = True
                self._loop.call_soon_threadsafe(self._settle_finished)
        self._loop.call_soon_threadsafe(self._settle_stop)

    def _settle_finished(self) -> None:
        self._wake_scheduled = False
        while self._finished:
            job = self._finished.popleft()
            self._unsettled -= 1
            job.settle()

    def _settle_stop(self) -> None:
        self._settle_finished()
        assert self._stopped is not None
        self._stopped.set_result(None)
