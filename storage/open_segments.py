"""Which files of finished segments stay open: those of the readers of late, within a limit."""

from typing import Final

from storage.segment import LogSegment

MAX_OPEN_SEGMENTS: Final = 4
"""Files kept open per log beside the active segment's: readers far apart, without a descriptor for every segment."""


class OpenSegments:
    """The segments of a log that are written no more and were read last. Others open their file anew when read."""

    __slots__ = ("_by_base",)

    def __init__(self) -> None:
        self._by_base: dict[int, LogSegment] = {}

    def use(self, segment: LogSegment) -> None:
        """It was read just now; the one that was not for longest closes its file, if there are too many."""
        self._by_base.pop(segment.base_offset, None)
        self._by_base[segment.base_offset] = segment
        if len(self._by_base) > MAX_OPEN_SEGMENTS:
            self._by_base.pop(next(iter(self._by_base))).close()
