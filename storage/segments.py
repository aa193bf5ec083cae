"""The segments of one log, in the order of their base offsets."""

from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterable, Iterator

from storage.segment import LogSegment


def _base(segment: LogSegment) -> int:
    return segment.base_offset


class Segments:
    """An ordered collection that is never empty while a log is open; the last segment is the active one."""

    def __init__(self, segments: Iterable[LogSegment] = ()) -> None:
        self._segments = sorted(segments, key=_base)

    def __len__(self) -> int:
        return len(self._segments)

    def __iter__(self) -> Iterator[LogSegment]:
        """Iterate over a copy, because segments may be added or removed meanwhile."""
        return iter(self._segments.copy())

    @property
    def active(self) -> LogSegment:
        return self._segments[-1]

    @property
    def first(self) -> LogSegment:
        return self._segments[0]

    @property
    def size_bytes(self) -> int:
        return sum(segment.size for segment in self._segments)

    def floor(self, offset: int) -> LogSegment | None:
        """Return the segment with the greatest base offset at or below `offset`, or None."""
        if self._segments[-1].base_offset <= offset:
            return self._segments[-1]
        index = bisect_right(self._segments, offset, key=_base)
        return self._segments[index - 1] if index else None

    def after(self, segment: LogSegment) -> LogSegment | None:
        """Return the segment that follows, or None."""
        index = bisect_right(self._segments, segment.base_offset, key=_base)
        return self._segments[index] if index < len(self._segments) else None

    def from_offset(self, offset: int) -> list[LogSegment]:
        """Return the segments with a base offset at or above `offset`, and the one below that may contain it."""
        index = bisect_right(self._segments, offset, key=_base)
        return self._segments[max(0, index - 1) :]

    def based_above(self, offset: int) -> list[LogSegment]:
        return self._segments[bisect_right(self._segments, offset, key=_base) :]

    def end_of(self, segment: LogSegment, log_end_offset: int) -> int:
        """Return the base offset of the following segment, or the log end offset for the last one."""
        following = self.after(segment)
        return log_end_offset if following is None else following.base_offset

    def add(self, segment: LogSegment) -> None:
        insort(self._segments, segment, key=_base)

    def remove(self, segment: LogSegment) -> None:
        index = bisect_left(self._segments, segment.base_offset, key=_base)
        if self._segments[index] is not segment:
            raise AssertionError(f"segment {segment.base_offset} does not belong to this log")
        del self._segments[index]
