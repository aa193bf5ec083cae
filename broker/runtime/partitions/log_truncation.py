"""The time during which a log is being cut: on the IO thread, for it takes longer than the loop may wait.

The log is that thread's until then. Readers are told the marks that hold on both sides of the cut, and whatever else
would touch the log waits for its end.
"""

from collections.abc import Callable
from typing import NamedTuple

from storage.log import Log


class Marks(NamedTuple):
    """What readers may know of a log while it is being cut."""

    high_watermark: int
    last_stable_offset: int
    log_start_offset: int


class LogTruncation:
    """At most one cut of a log at a time. `marks` is None while there is none."""

    __slots__ = ("_waiting", "marks")

    def __init__(self) -> None:
        self.marks: Marks | None = None
        self._waiting: list[Callable[[], None]] = []

    @property
    def is_under_way(self) -> bool:
        return self.marks is not None

    def begin(self, log: Log, offset: int) -> None:
        """From now on the log is not to be touched. `offset` is where it will end."""
        assert self.marks is None, f"{log.name} is being cut already"
        committed, stable = min(log.high_watermark, offset), min(log.last_stable_offset, offset)
        self.marks = Marks(committed, stable, log.log_start_offset)

    def end(self) -> list[Callable[[], None]]:
        """The log is the loop's again; returns what has waited for that, in order."""
        self.marks = None
        waiting, self._waiting = self._waiting, []
        return waiting

    def when_over(self, callback: Callable[[], None]) -> None:
        """Call back when no cut is under way, which may be now."""
        if self.is_under_way:
            self._waiting.append(callback)
        else:
            callback()

    def forget_waiting(self) -> None:
        """The replica is gone: nothing of it comes after the cut."""
        self._waiting.clear()
