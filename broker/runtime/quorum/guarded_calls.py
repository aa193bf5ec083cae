"""Callbacks and blocking work of a replica, any failure of which stops the replica."""

from asyncio import Future
from collections.abc import Callable
from typing import TypeVar

from broker.runtime.loop.io_thread import BlockingIo

T = TypeVar("T")


class GuardedCalls:
    """Runs actions until it is closed. `on_failure` receives any exception; `resume` runs after each blocking call.

    `log_io` executes writes of the election state and the log in order, `snapshot_io` what may take long beside them.
    """

    def __init__(
        self,
        log_io: BlockingIo,
        snapshot_io: BlockingIo,
        on_failure: Callable[[BaseException], None],
        resume: Callable[[], None],
    ) -> None:
        self._log_io = log_io
        self._snapshot_io = snapshot_io
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
        """Run `work` on the thread of the log, then `then` with its result and `resume` on the loop."""
        self._run_on(self._log_io, work, then)

    def reading(self, work: Callable[[], T], then: Callable[[T], None]) -> None:
        """Run `work` on the thread of snapshots and cold reads, then as `blocking`. The log's fsyncs do not wait."""
        self._run_on(self._snapshot_io, work, then)

    def _run_on(self, io: BlockingIo, work: Callable[[], T], then: Callable[[T], None]) -> None:
        def proceed(done: "Future[T]") -> None:
            if not done.cancelled():
                self.run(lambda: finish(done.result()))

        def finish(result: T) -> None:
            then(result)
            self.resume()

        io.submit(work).add_done_callback(proceed)
