"""What of a partition's log counts only once the disk has it (`flush.messages`, `flush.ms`), and when it is asked to.

An append counts once it is in the page cache. Where a topic asks for more, records from `flush.messages` on are held:
until a flush has covered them they are neither committed nor acknowledged by a leader, nor told of by a follower. It
knows offsets, and no replicas.
"""

from collections.abc import Callable

from broker.runtime.loop.waiters import OffsetWaiter, OffsetWaiters, WaitCallback
from protocol.errors import ErrorCode
from storage.config import MAX_LONG
from storage.log import AppendInfo, Log


class PendingFlush:
    """`flush` syncs the log soon, `flush_within(delay_ms)` in a while; `on_flushed` is to be called after either."""

    __slots__ = ("_flush", "_flush_within", "_flushed", "_held_from", "_is_timed", "_log", "_segment", "_when_over")

    def __init__(self, log: Log, flush: Callable[[], None], flush_within: Callable[[int], None]) -> None:
        self._log = log
        self._flush = flush
        self._flush_within = flush_within
        self._flushed = OffsetWaiters()
        self._when_over: tuple[Callable[[], None], ...] = ()
        self._held_from: int | None = None
        self._is_timed = False
        self._segment = log.active_segment

    @property
    def end(self) -> int:
        """Below it, this replica holds its records as firmly as its configuration asks."""
        return self._log.log_end_offset if self._held_from is None else self._held_from

    @property
    def is_over(self) -> bool:
        """Whether nothing is held."""
        return self._held_from is None

    def on_append(self, info: AppendInfo) -> None:
        """See to it that what was appended gets to the disk when it has to."""
        log = self._log
        if info.flush_due:
            if self._held_from is None:
                self._held_from = info.first_offset
            self._flush()
        elif log.active_segment is not self._segment:  # rolled: the finished segment may go to the disk
            self._segment = log.active_segment
            self._flush()
        elif log.config.flush_ms != MAX_LONG and not self._is_timed:
            self._is_timed = True
            self._flush_within(log.config.flush_ms)

    def on_flushed(self) -> bool:
        """Everything below the log's recovery point is on the disk; whether `end` has moved."""
        self._is_timed = False
        log, point = self._log, self._log.recovery_point
        if self._held_from is None or point <= self._held_from:
            return False
        self._held_from = point if point < log.log_end_offset and log.flush_due else None
        if self._held_from is not None:
            self._flush()
        return True

    def on_cut(self) -> None:
        """The log ends earlier than before: what was held may be gone. To be settled."""
        log = self._log
        self._segment = log.active_segment
        if self._held_from is not None and self._held_from >= log.log_end_offset:
            self._held_from = None

    def when_reached(self, offset: int, callback: WaitCallback) -> OffsetWaiter:
        """Call back once `end` reaches `offset`, as `settle` tells, or with the error of `fail`."""
        return self._flushed.add(offset, callback)

    def when_over(self, callback: Callable[[], None]) -> None:
        """Call back once nothing is held, as `settle` tells, or after `fail`."""
        self._when_over = (*self._when_over, callback)

    def settle(self) -> None:
        """Tell whoever waits for what is on the disk now."""
        self._flushed.reached(self.end)
        if self.is_over:
            self._release()

    def fail(self, error: ErrorCode) -> None:
        """Nobody need wait any longer."""
        self._flushed.fail(error)
        self._release()

    def _release(self) -> None:
        waiting, self._when_over = self._when_over, ()
        for callback in waiting:
            callback()
