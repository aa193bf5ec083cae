"""Blocking file work without a thread: executed at once, or on `release`. Completions always arrive later."""

import asyncio
from collections import deque
from collections.abc import Callable
from typing import TypeVar

from broker.runtime.loop.waiters import Loop

T = TypeVar("T")


class InlineIo:
    """Implements BlockingIo. While `is_held`, jobs queue up in order until `release`."""

    def __init__(self, loop: Loop) -> None:
        self._loop = loop
        self._jobs: deque[Callable[[], None]] = deque()
        self.is_held = False

    def submit(self, work: Callable[[], T]) -> "asyncio.Future[T]":
        future: asyncio.Future[T] = self._loop.create_future()

        def run() -> None:
            try:
                result = work()
            except Exception as error:  # noqa: BLE001  it is the submitter's, whatever it is
                if not future.done():  # cancelled by its waiter
                    future.set_exception(error)
            else:
                if not future.done():
                    future.set_result(result)

        self._jobs.append(run)
        if not self.is_held:
            self.run_all()
        return future

    def run_all(self) -> None:
        """Run all queued jobs."""
        while self._jobs:
            self._jobs.popleft()()

    def release(self) -> None:
        """Run all queued jobs, and later ones at once."""
        self.is_held = False
        self.run_all()

    @property
    def waiting(self) -> int:
        return len(self._jobs)
