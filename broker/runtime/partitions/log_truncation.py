"""The state of a log while the IO thread truncates it; truncation takes longer than the loop may block.

Until the truncation ends, only the IO thread may touch the log. Readers get offsets that are valid before and after,
and every other operation on the log waits.
"""

from collections.abc import Callable
from typing import NamedTuple

from storage.log import Log


class LogOffsetSnapshot(NamedTuple):
    """The offsets that readers may see while the log is truncated."""

    high_watermark: int
    last_stable_offset: int
    log_start_offset: int


class LogTruncation:
    """At most one truncation of a log at a time. `offsets` is None while none is under way."""

    __slots__ = ("_waiting", "offsets")

    def __init__(self) -> None:
        self.offsets: LogOffsetSnapshot | None = None
        self._waiting: list[Callable[[], None]] = []

    @property
    def is_under_way(self) -> bool:
        return self.offsets is not None

    def begin(self, log: Log, offset: int) -> None:
        """Reserve the log for the IO thread; the log will end at `offset`."""
        assert self.offsets is None, f"{log.name} is being truncated already"
        committed, stable = min(log.high_watermark, offset), min(log.last_stable_offset, offset)
        self.offsets = LogOffsetSnapshot(committed, stable, log.log_start_offset)

    def end(self) -> list[Callable[[], None]]:
        """Release the log; return the callbacks that waited, in order."""
        self.offsets = None
        waiting, self._waiting = self._waiting, []
        return waiting

    def when_over(self, callback: Callable[[], None]) -> None:
        """Call back once no truncation is under way, at once if none is; never after `forget_waiting`."""
        if self.is_under_way:
            self._waiting.append(callback)
        else:
            callback()

    def forget_waiting(self) -> None:
        """Drop all callbacks: the replica is no longer hosted."""
        self._waiting.clear()
