"""The flush policy of a partition's log (`flush.messages`, `flush.ms`).

By default, an appended record counts once the page cache has it. With `flush.messages`, records wait for a flush: until
then a leader neither commits nor acknowledges them, and a follower does not report them to its leader. This module
knows offsets, not replicas.
"""

from collections.abc import Callable

from broker.runtime.loop.waiters import OffsetWaiter, OffsetWaiters, WaitCallback
from protocol.errors import ErrorCode
from storage.config import MAX_LONG
from storage.log import Log
from storage.straight_append import AppendInfo


class PendingFlush:
    """The records of one log that wait for a flush.

    `flush` syncs the log soon, `flush_within(delay_ms)` after a delay. The owner calls `on_flushed` after either.
    """

    __slots__ = (
        "_first_unflushed",
        "_flush",
        "_flush_within",
        "_is_timed",
        "_log",
        "_segment",
        "_waiters",
        "_when_over",
    )

    def __init__(self, log: Log, flush: Callable[[], None], flush_within: Callable[[int], None]) -> None:
        self._log = log
        self._flush = flush
        self._flush_within = flush_within
        self._waiters = OffsetWaiters()
        self._when_over: tuple[Callable[[], None], ...] = ()
        self._first_unflushed: int | None = None
        self._is_timed = False
        self._segment = log.active_segment

    @property
    def end(self) -> int:
        """The offset below which records are as durable as the topic's configuration demands."""
        return self._log.log_end_offset if self._first_unflushed is None else self._first_unflushed

    @property
    def is_over(self) -> bool:
        """Whether no record waits for a flush."""
        return self._first_unflushed is None

    def on_append(self, info: AppendInfo) -> None:
        """Request the flushes that an append makes necessary."""
        log = self._log
        if info.flush_due:
            if self._first_unflushed is None:
                self._first_unflushed = info.first_offset
            self._flush()
        elif log.active_segment is not self._segment:  # rolled: sync the finished segment
            self._segment = log.active_segment
            self._flush()
        elif log.config.flush_ms != MAX_LONG and not self._is_timed:
            self._is_timed = True
            self._flush_within(log.config.flush_ms)

    def on_flushed(self) -> bool:
        """Note that everything below the recovery point is synced; return whether `end` has moved."""
        self._is_timed = False
        log, point = self._log, self._log.recovery_point
        if self._first_unflushed is None or point <= self._first_unflushed:
            return False
        self._first_unflushed = point if point < log.log_end_offset and log.flush_due else None
        if self._first_unflushed is not None:
            self._flush()
        return True

    def on_truncated(self) -> None:
        """Note that the log ends earlier; the unflushed records may be gone. `complete_waiters` must follow."""
        log = self._log
        self._segment = log.active_segment
        if self._first_unflushed is not None and self._first_unflushed >= log.log_end_offset:
            self._first_unflushed = None

    def when_reached(self, offset: int, callback: WaitCallback) -> OffsetWaiter:
        """Call back once `end` reaches `offset`, within `complete_waiters`, or with the error of `fail`."""
        return self._waiters.add(offset, callback)

    def when_over(self, callback: Callable[[], None]) -> None:
        """Call back once no record waits for a flush, within `complete_waiters`, or after `fail`."""
        self._when_over = (*self._when_over, callback)

    def complete_waiters(self) -> None:
        """Call back the waiters whose offset `end` has reached."""
        self._waiters.reached(self.end)
        if self.is_over:
            self._release()

    def fail(self, error: ErrorCode) -> None:
        """End all waits."""
        self._waiters.fail(error)
        self._release()

    def _release(self) -> None:
        waiting, self._when_over = self._when_over, ()
        for callback in waiting:
            callback()
