"""A share fetch that is not answered at once (Kafka: DelayedShareFetch)."""

import asyncio
from collections.abc import Callable
from functools import partial

from broker.fetch.share.rounds import ShareFetchRounds
from broker.runtime.loop.runtime import Runtime
from broker.runtime.loop.waiters import Deadline, Watch


class PendingShareFetch:
    """Runs rounds until records are acquired, a partition has an error, or the time is over.

    `future` has the rounds then. Records that are not in memory are read by the IO thread before they are acquired. A
    request without records waits for reads from remote storage beyond its time, as other fetches do (KIP-1018).
    """

    def __init__(self, rounds: ShareFetchRounds, runtime: Runtime) -> None:
        self._rounds = rounds
        self._runtime = runtime
        self._watches = [Watch((led.available,), self._on_change) for led in rounds.led.values()]
        self._remote_watches: list[Watch] = []
        self._deadline: Deadline | None = None
        self._remote_deadline: Deadline | None = None
        self._round_is_due = False
        self._is_last = rounds.options.max_wait_ms <= 0 or rounds.options.max_records <= 0
        self._is_remote_over = False
        self._to_warm = 0
        self.future: asyncio.Future[ShareFetchRounds] = runtime.loop.create_future()
        self.future.add_done_callback(self._on_done)

    def start(self, when_input_ended: Callable[[Callable[[], None]], None]) -> None:
        """Run the first round. `when_input_ended` takes a callback for the end of the client's requests."""
        when_input_ended(self._give_up)
        if not self._is_last:
            self._deadline = self._runtime.deadlines.after_ms(self._rounds.options.max_wait_ms, self._on_time)
        self._run()

    def _run(self, *, is_warm: bool = False) -> None:
        self._round_is_due = False
        if self.future.done() or self._to_warm:
            return
        self._unwatch_remote()
        may_find_more = self._rounds.run(is_last=self._is_last, is_warm=is_warm)
        if self._rounds.cold and not is_warm and not self._rounds.results:
            self._warm()
        elif self._rounds.is_enough:
            self.future.set_result(self._rounds)
        elif may_find_more:
            self._on_change()
        elif self._is_last and (self._is_remote_over or not self._rounds.awaits_remote):
            self._rounds.report_remote_errors()
            self.future.set_result(self._rounds)
        else:
            for watch in self._watches:
                watch.arm()
            self._watch_remote()

    def _watch_remote(self) -> None:
        """Run again when a remote read is done. The time limit of remote reads begins with the first."""
        remote = self._rounds.remote
        if remote is None or not remote.is_awaited:
            return
        self._remote_watches = [Watch(bounds, self._on_change) for bounds in remote.bounds]
        for watch in self._remote_watches:
            watch.arm()
        if self._remote_deadline is None:
            self._remote_deadline = self._runtime.deadlines.after_ms(remote.wait_max_ms, self._on_remote_time)

    def _unwatch_remote(self) -> None:
        for watch in self._remote_watches:
            watch.disarm()
        self._remote_watches = []

    def _on_remote_time(self) -> None:
        self._is_remote_over = True
        self._run()

    def _warm(self) -> None:
        self._to_warm = len(self._rounds.cold)
        for partition, found in tuple(self._rounds.cold):
            self._runtime.io.submit(partial(partition.log.warm, found)).add_done_callback(self._on_warm)

    def _on_warm(self, done: "asyncio.Future[None]") -> None:
        self._to_warm -= 1
        error = done.exception()
        if error is not None and not self.future.done():
            self.future.set_exception(error)
        if not self._to_warm:
            self._run(is_warm=True)

    def _on_change(self) -> None:
        if not self._round_is_due:
            self._round_is_due = True
            self._runtime.loop.call_soon(self._run)

    def _on_time(self) -> None:
        self._is_last = self._rounds.has_expired = True
        self._run()

    def _give_up(self) -> None:
        """Answer without records: nobody would acknowledge them."""
        if not self.future.done():
            self.future.set_result(self._rounds)

    def _on_done(self, future: "asyncio.Future[ShareFetchRounds]") -> None:
        for deadline in (self._deadline, self._remote_deadline):
            if deadline is not None:
                deadline.cancel()
        self._unwatch_remote()
        for watch in self._watches:
            watch.disarm()
