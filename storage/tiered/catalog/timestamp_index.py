"""Which remote segments of one log may hold the first record of a time, found without looking at all of them. Pure.

What a reader of the log would meet in remote storage, one piece after another: from which offset on, up to which, and
the greatest timestamp of the segment. Timestamps need not ascend from piece to piece; the greatest so far does.
"""

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterator


class TimestampIndex:
    """Pieces are only added, in the order of their offsets. 32 bytes each."""

    __slots__ = ("_greatest_so_far", "_lasts", "_maxima", "_starts")

    def __init__(self) -> None:
        self._starts = array("q")
        self._lasts = array("q")
        self._maxima = array("q")
        self._greatest_so_far = array("q")

    def __len__(self) -> int:
        return len(self._starts)

    @property
    def next_offset(self) -> int:
        """After the last piece; 0 if there is none."""
        return self._lasts[-1] + 1 if self._lasts else 0

    def append(self, start_offset: int, last_offset: int, max_timestamp: int) -> None:
        """The next piece; offsets may be missing before it."""
        if not self.next_offset <= start_offset <= last_offset:
            raise ValueError(f"a piece from {start_offset} to {last_offset} after one that ends at {self.next_offset}")
        greatest = max(max_timestamp, self._greatest_so_far[-1]) if self._starts else max_timestamp
        self._starts.append(start_offset)
        self._lasts.append(last_offset)
        self._maxima.append(max_timestamp)
        self._greatest_so_far.append(greatest)

    def candidates(self, timestamp: int, from_offset: int, below: int) -> Iterator[int]:
        """Where pieces start that may have a record of `timestamp` or later at or after `from_offset`.

        Ascending; only pieces that start below `below`. The first is nearly always the right one.
        """
        number = max(bisect_left(self._greatest_so_far, timestamp), self._number_at(from_offset))
        while number < len(self._starts) and self._starts[number] < below:
            if self._maxima[number] >= timestamp:
                yield self._starts[number]
            number += 1

    def latest(self, from_offset: int, below: int) -> Iterator[tuple[int, int]]:
        """(greatest timestamp, start) of the pieces that reach `from_offset` and start below `below`.

        The greatest timestamp first, of equal ones the first piece.
        """
        numbers = range(self._number_at(from_offset), bisect_left(self._starts, below))
        left = {number: self._maxima[number] for number in numbers}
        while left:
            number = max(left, key=left.__getitem__)
            yield left.pop(number), self._starts[number]

    def _number_at(self, offset: int) -> int:
        """Of the first piece that ends at or after `offset`."""
        number = bisect_right(self._starts, offset) - 1
        return number if number >= 0 and self._lasts[number] >= offset else number + 1
