"""The wait of a request for the acknowledgement of its appended batches: by in-sync replicas or a flush."""

from collections.abc import Callable
from functools import partial
from typing import Generic, TypeVar

from broker.direct_future import DirectFuture, direct_future
from broker.runtime.loop.waiters import Deadline, Deadlines, Loop, OffsetWaiter
from broker.runtime.partitions.partition import Partition
from protocol.errors import ErrorCode

E = TypeVar("E")
R = TypeVar("R")


class AppendedBatch(Generic[E]):
    """One appended batch that is not acknowledged yet. `end` is the offset after the batch, `entry` its result."""

    __slots__ = ("end", "entry", "partition", "waiter")

    def __init__(self, partition: Partition, end: int, entry: E) -> None:
        self.partition = partition
        self.end = end
        self.entry = entry
        self.waiter: OffsetWaiter | None = None


class Acknowledgements(Generic[E, R]):
    """A request that waits until `acks` is fulfilled for all its batches, within its timeout.

    `fail` sets the error of one entry; `answer` returns the response, the result of `future`.
    """

    def __init__(
        self,
        batches: list[AppendedBatch[E]],
        acks: int,
        loop: Loop,
        *,
        fail: Callable[[E, ErrorCode], None],
        answer: Callable[[], R],
    ) -> None:
        self._waiting = dict.fromkeys(batches)
        self._acks = acks
        self._fail = fail
        self._answer = answer
        self._deadline: Deadline | None = None
        self.future: DirectFuture[R] = direct_future(loop)

    def start(self, deadlines: Deadlines, timeout_ms: int) -> None:
        self._deadline = deadlines.after_ms(timeout_ms, self._expire)
        for one in tuple(self._waiting):
            one.waiter = one.partition.when_acknowledged(one.end, self._acks, partial(self._settle, one))

    def _settle(self, one: AppendedBatch[E], error: ErrorCode) -> None:
        """Take the outcome of a batch: `acks` is fulfilled, or cannot be fulfilled under this leader."""
        del self._waiting[one]
        outcome = error or one.partition.outcome(one.end, self._acks) or ErrorCode.NONE
        if outcome:
            self._fail(one.entry, outcome)
        if not self._waiting:
            self._finish()

    def _expire(self) -> None:
        """Respond at the timeout. Appended batches stay appended and may still be committed."""
        for one in self._waiting:
            assert one.waiter is not None
            one.waiter.cancel()
            self._fail(one.entry, ErrorCode.REQUEST_TIMED_OUT)
        self._waiting.clear()
        self._finish()

    def _finish(self) -> None:
        assert self._deadline is not None
        self._deadline.cancel()
        if not self.future.done():  # the peer is gone
            self.future.set_result(self._answer())
