"""Index of the remote segments of one log by timestamp, to find the first record of a time. Pure.

Entries describe what a reader meets in remote storage: offset ranges with the highest timestamp of their segment.
Timestamps need not ascend from entry to entry; their running maximum does.
"""

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from typing import NamedTuple


class OffsetGap(NamedTuple):
    """Offsets without an entry: `first` up to `next_offset`, exclusive. `max_timestamp` is that of the entry behind."""

    first: int
    next_offset: int
    max_timestamp: int


class TimestampIndex:
    """Append-only entries in offset order, 32 bytes each."""

    __slots__ = ("_gaps", "_greatest_so_far", "_lasts", "_maxima", "_starts")

    def __init__(self) -> None:
        self._gaps: list[OffsetGap] = []
        self._starts = array("q")
        self._lasts = array("q")
        self._maxima = array("q")
        self._greatest_so_far = array("q")

    def __len__(self) -> int:
        return len(self._starts)

    @property
    def next_offset(self) -> int:
        """The offset after the last entry; 0 if there is none."""
        return self._lasts[-1] + 1 if self._lasts else 0

    def append(self, start_offset: int, last_offset: int, max_timestamp: int, gap_from: int | None = None) -> None:
        """Append an entry. Offsets may be missing before it; those from `gap_from` on are a gap."""
        if not self.next_offset <= start_offset <= last_offset:
            raise ValueError(f"a piece from {start_offset} to {last_offset} after one that ends at {self.next_offset}")
        if gap_from is not None and gap_from < start_offset:
            self._gaps.append(OffsetGap(gap_from, start_offset, max_timestamp))
        greatest = max(max_timestamp, self._greatest_so_far[-1]) if self._starts else max_timestamp
        self._starts.append(start_offset)
        self._lasts.append(last_offset)
        self._maxima.append(max_timestamp)
        self._greatest_so_far.append(greatest)

    def gaps(self, from_offset: int, below: int) -> list[OffsetGap]:
        """Return the gaps with offsets in [from_offset, below)."""
        return [gap for gap in self._gaps if gap.next_offset > from_offset and gap.first < below]

    def candidates(self, timestamp: int, from_offset: int, below: int) -> Iterator[int]:
        """Yield the start offsets of entries that may have a record of `timestamp` or later at or above `from_offset`.

        Ascending; only entries that start below `below`. The first one is nearly always the right one.
        """
        number = max(bisect_left(self._greatest_so_far, timestamp), self._number_at(from_offset))
        while number < len(self._starts) and self._starts[number] < below:
            if self._maxima[number] >= timestamp:
                yield self._starts[number]
            number += 1

    def latest(self, from_offset: int, below: int) -> Iterator[tuple[int, int]]:
        """Yield (highest timestamp, start offset) of the entries that reach `from_offset` and start below `below`.

        Sorted by descending timestamp, then by offset.
        """
        numbers = range(self._number_at(from_offset), bisect_left(self._starts, below))
        left = {number: self._maxima[number] for number in numbers}
        while left:
            number = max(left, key=left.__getitem__)
            yield left.pop(number), self._starts[number]

    def _number_at(self, offset: int) -> int:
        """Return the index of the first entry that ends at or above `offset`."""
        number = bisect_right(self._starts, offset) - 1
        return number if number >= 0 and self._lasts[number] >= offset else number + 1
