"""The files of finished segments that stay open: those read last, within a limit."""

from typing import Final

from storage.segment import LogSegment

MAX_OPEN_SEGMENTS: Final = 4
"""Files kept open per log in addition to the active segment's: enough for distant readers, without a descriptor per
segment.
"""


class OpenSegments:
    """The finished segments of a log that were read last. Other segments open their file again when read."""

    __slots__ = ("_by_base",)

    def __init__(self) -> None:
        self._by_base: dict[int, LogSegment] = {}

    def use(self, segment: LogSegment) -> None:
        """Mark a segment as read; the least recently read one closes its file if too many are open."""
        self._by_base.pop(segment.base_offset, None)
        self._by_base[segment.base_offset] = segment
        if len(self._by_base) > MAX_OPEN_SEGMENTS:
            self._by_base.pop(next(iter(self._by_base))).close()
