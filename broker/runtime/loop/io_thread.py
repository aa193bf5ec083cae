"""The one thread that waits for disks, so that the event loop never does.

It owns a queue of its own and runs what is submitted strictly in order: a caller that writes, then submits an fsync,
then submits a rename, gets them in that order. Completions travel back in batches: however many jobs end while the loop
is busy, the loop is woken once (a wake-up costs a system call, a job does not).

It does not know what a log is. Work that is pure Python for more than a moment does not belong here: it would hold the
interpreter's lock against the loop.
"""

import asyncio
import queue
import threading
from collections import deque
from collections.abc import Callable
from typing import Any, Protocol, TypeVar

T = TypeVar("T")

# Far more than any load produces; reaching it means that a disk hangs, and more memory would not help then.
QUEUE_CAPACITY = 65_536


class IoBacklogFull(Exception):
    """The disks do not keep up: `QUEUE_CAPACITY` jobs wait already."""


class BlockingIo(Protocol):
    """Where blocking file work goes. The simulator and tests run it inline; a node has an `IoThread`."""

    def submit(self, work: Callable[[], T]) -> "asyncio.Future[T]":
        """Run `work` off the loop, after everything submitted before it; its result or error ends the future."""
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
        if self.future.done():  # its waiter was cancelled; the work itself is never taken back
            return
        if self.error is None:
            self.future.set_result(self.result)
        else:
            self.future.set_exception(self.error)


class IoThread:
    """A thread with an ordered, bounded queue; construct it, use it and stop it on the event loop that it serves."""

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
        """Jobs submitted whose futures are not settled yet."""
        return self._unsettled

    def submit(self, work: Callable[[], T]) -> "asyncio.Future[T]":
        """Queue `work`. Raises IoBacklogFull at the bound and RuntimeError after `stop`.

        Cancelling the future forgets the result; the work still runs, since later jobs may build on it.
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
        """Finish everything that was submitted, then end the thread. May be called again."""
        if self._stopped is None:
            self._stopped = self._loop.create_future()
            self._jobs.put(None)
        await asyncio.shield(self._stopped)
        self._thread.join()

    def _run(self) -> None:
        """The thread: run jobs in order, and wake the loop only when no wake-up is on its way.

        No completion is lost: the loop lowers `_wake_scheduled` before it empties `_finished`. A job added before that
        is in the batch; one added after it sees the lowered flag and schedules the next wake-up.
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
