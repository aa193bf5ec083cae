"""A WorkPool whose work may pause in simulated time, for stores that move bytes slowly.

Each piece of work has a thread, but only one of all threads runs at a time: the loop waits until the work pauses or
ends.
"""

import asyncio
import threading
from collections.abc import Callable
from typing import Any, TypeVar

T = TypeVar("T")


class SteppedPool:
    """`pause(seconds)`, called by work, lets the loop continue and returns when its time has advanced.

    After `kill`, work that pauses ends with SystemExit.
    """

    def __init__(self) -> None:
        self._work = threading.local()
        self._is_dead = False
        self.running = 0

    def submit(self, work: Callable[[], T]) -> "asyncio.Future[T]":
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Any] = loop.create_future()
        resume, paused = threading.Semaphore(0), threading.Semaphore(0)
        pauses: list[float] = []
        settle: list[Callable[[], None]] = []

        def run() -> None:
            self._work.pause = (resume, paused, pauses)
            resume.acquire()
            try:
                result = work()
            except BaseException as error:  # noqa: BLE001  the submitter handles the exception
                settle.append(lambda error=error: future.set_exception(error))  # type: ignore[misc]
            else:
                settle.append(lambda: future.set_result(result))
            paused.release()

        def step() -> None:
            resume.release()
            paused.acquire()
            if not settle:
                loop.call_later(pauses.pop(), step)
                return
            self.running -= 1
            if not (future.done() or self._is_dead):
                settle[0]()

        self.running += 1
        threading.Thread(target=run, daemon=True).start()
        loop.call_soon(step)
        return future

    def pause(self, seconds: float) -> None:
        """Pause the calling work."""
        resume, paused, pauses = self._work.pause
        pauses.append(seconds)
        paused.release()
        resume.acquire()
        if self._is_dead:
            raise SystemExit

    def kill(self) -> None:
        """End all work at its next step, without results."""
        self._is_dead = True
