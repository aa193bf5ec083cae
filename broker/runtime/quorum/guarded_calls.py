"""Callbacks and blocking work of a replica, any failure of which stops the replica."""

from asyncio import Future
from collections.abc import Callable
from typing import TypeVar

from broker.runtime.loop.io_thread import BlockingIo

T = TypeVar("T")


class GuardedCalls:
    """Runs actions until it is closed. `on_failure` receives any exception; `resume` runs after each blocking call."""

    def __init__(self, io: BlockingIo, on_failure: Callable[[BaseException], None], resume: Callable[[], None]) -> None:
        self._io = io
        self._on_failure = on_failure
        self.resume = resume
        self._is_closed = False

    def close(self) -> None:
        self._is_closed = True

    def run(self, action: Callable[[], None]) -> None:
        """Run an action. It can be neither repeated nor skipped, so an exception stops the replica."""
        if self._is_closed:
            return
        try:
            action()
        except Exception as error:  # noqa: BLE001  the state after any exception is unknown
            self._on_failure(error)

    def blocking(self, work: Callable[[], T], then: Callable[[T], None]) -> None:
        """Run `work` off the loop, then `then` with its result and `resume` on the loop."""

        def proceed(done: "Future[T]") -> None:
            if not done.cancelled():
                self.run(lambda: finish(done.result()))

        def finish(result: T) -> None:
            then(result)
            self.resume()

        self._io.submit(work).add_done_callback(proceed)
