"""A fetch request that is not answered at once (Kafka: DelayedFetch).

A request waits until the results of a round are enough, until its maximum wait time is over, or until the disk has
delivered records that are not in memory.

Changes of partitions arrive in bursts while other requests are handled; one round per turn of the loop covers them all.
The IO thread reads records that are not in memory before the response leaves: the loop, which would touch them while
it writes to the socket, must not wait for a disk.
"""

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Generic, TypeVar

from broker.direct_future import DirectFuture, direct_future
from broker.fetch.remote_fetch import LINGER_MS
from broker.fetch.rounds import FetchRounds
from broker.runtime.loop.runtime import Runtime
from broker.runtime.loop.waiters import Deadline

T = TypeVar("T")


class PendingFetch(Generic[T]):
    """The future of one response. `answer` builds the response from the rounds; it is called once at most."""

    def __init__(self, rounds: FetchRounds, runtime: Runtime, answer: Callable[[FetchRounds], T]) -> None:
        self._rounds = rounds
        self._loop = runtime.loop
        self._io = runtime.io
        self._deadlines = runtime.deadlines
        self._answer = answer
        self._deadline: Deadline | None = None
        self._round_is_due = False
        self._is_lingering = False
        self._to_warm = 0
        self.future: DirectFuture[T] = direct_future(runtime.loop)
        self.future.when_cancelled(self._on_cancelled)

    def wait(self) -> None:
        """Run another round at every change, until the results are enough or the time is over."""
        rounds, max_wait_ms = self._rounds, self._rounds.options.max_wait_ms
        if rounds.remote is None:
            self._deadline = self._deadlines.after_ms(max_wait_ms, self._on_time)
        else:
            remote_ms = rounds.remote.wait_max_ms
            first_ms = min(max(0, max_wait_ms), remote_ms)
            self._deadline = self._deadlines.after_ms(first_ms, partial(self._on_max_wait, remote_ms - first_ms))
        rounds.opened.targets.on_change = self._on_change
        self._watch()

    def finish(self) -> None:
        """Answer with the present results, once all their records are in memory."""
        self._rounds.opened.targets.on_change = None
        if self._deadline is not None:
            self._deadline.cancel()
        self._to_warm = len(self._rounds.cold)
        for partition, found in tuple(self._rounds.cold):
            self._io.submit(partial(partition.log.warm, found)).add_done_callback(self._on_warm)
        if not self._to_warm:
            self._resolve()

    def answer_now(self) -> None:
        """Answer now, with the results of one last round."""
        if not self._is_over:
            self._rounds.run(first=False)
            self.finish()

    @property
    def _is_over(self) -> bool:
        return self.future.done() or self._to_warm > 0

    def _on_change(self) -> None:
        if not self._round_is_due:
            self._round_is_due = True
            self._loop.call_soon(self._run_round)

    def _run_round(self) -> None:
        self._round_is_due = False
        if self._is_over:
            return
        self._rounds.run(first=False)
        if self._rounds.is_enough:
            self.finish()
        else:
            self._watch()

    def _watch(self) -> None:
        """Wait for the next change; once a remote read is done, wait for the others for `LINGER_MS` at most."""
        self._rounds.watch()
        remote = self._rounds.remote
        if remote is not None and remote.size_bytes and not self._is_lingering and self._deadline is not None:
            self._is_lingering = True
            self._deadline.cancel()
            self._deadline = self._deadlines.after_ms(LINGER_MS, self.answer_now)

    def _on_max_wait(self, remaining_ms: int) -> None:
        """Stop waiting at the request's maximum wait time, unless a remote read may take `remaining_ms` more."""
        if remaining_ms and self._rounds.may_exceed_max_wait and not self._is_over:
            self._deadline = self._deadlines.after_ms(remaining_ms, self._on_time)
        else:
            self._on_time()

    def _on_time(self) -> None:
        if not self._is_over:
            self._rounds.run(first=False)
            self._rounds.report_remote_errors()
            self.finish()

    def _on_warm(self, done: "asyncio.Future[None]") -> None:
        """Answer once all records are in memory.

        Records on a disk that failed meanwhile must not be touched: another round finds their partitions offline.
        """
        self._to_warm -= 1
        error = done.exception()
        if error is not None and not self.future.done():
            self.future.set_exception(error)
        if self._to_warm or self.future.done():
            return
        if any(partition.log.failure is not None for partition, _ in self._rounds.cold):
            self._rounds.run(first=False)
            self.finish()
        else:
            self._resolve()

    def _resolve(self) -> None:
        self.future.set_result(self._answer(self._rounds))

    def _on_cancelled(self) -> None:
        """Release the targets: the connection was closed before the answer."""
        if self._deadline is not None:
            self._deadline.cancel()
        self._rounds.opened.release()
