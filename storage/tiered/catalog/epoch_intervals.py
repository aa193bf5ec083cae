"""Which segment holds an offset of one leader epoch, however segments overlap.

Theory of operation
-------------------
Within an epoch an offset names one record, so of several segments that hold it each is as good as the others, and one
that reaches further serves longer. An interval is *covered* if another begins no later and ends no earlier. Those that
are not covered, sorted by their first offset, are sorted by their last one too. So the last of them that begins at or
before an offset reaches further than all others that do: it holds the offset, or nothing does. That is one bisection.

Covered intervals wait beside it, because what covers them may be deleted first. There are few: leaders change rarely.
(A map from first offsets to segments, with a look-up of the nearest one below, loses segments instead: in KIP-405's
scenario 5, and wherever a later segment is shorter.)

Numbers only: rows stand for segments, and what they mean is `metadata_cache.py`'s.
"""

from array import array
from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterator
from itertools import chain
from typing import NamedTuple


class CoveredInterval(NamedTuple):
    """Sorts by first offset, the longest first."""

    first: int
    minus_last: int
    row: int
    has_aborted: bool


class IntervalColumns(NamedTuple):
    """All there is in an `EpochIntervals`, for a snapshot. Not a copy."""

    firsts: "array[int]"
    lasts: "array[int]"
    rows: "array[int]"
    aborted: "array[int]"
    covered: list[CoveredInterval]


class EpochIntervals:
    """Intervals [first, last] of offsets; 20 bytes each. `has_aborted`: there are aborted transactions in it."""

    __slots__ = ("_aborted", "_covered", "_firsts", "_lasts", "_rows")

    def __init__(self, columns: IntervalColumns | None = None) -> None:
        empty = IntervalColumns(array("q"), array("q"), array("i"), array("q"), [])
        self._firsts, self._lasts, self._rows, self._aborted, self._covered = columns or empty

    def columns(self) -> IntervalColumns:
        """`aborted`: the first offsets of those that have aborted transactions and are not covered."""
        return IntervalColumns(self._firsts, self._lasts, self._rows, self._aborted, self._covered)

    def __bool__(self) -> bool:
        return bool(self._firsts)

    @property
    def highest(self) -> int | None:
        """The last offset in any interval."""
        return self._lasts[-1] if self._lasts else None

    def rows(self) -> Iterator[int]:
        """Of all intervals, covered ones last."""
        return chain(self._rows, (interval.row for interval in self._covered))

    def find(self, offset: int) -> int | None:
        """The row of the interval that holds an offset and reaches furthest."""
        at = bisect_right(self._firsts, offset) - 1
        return self._rows[at] if at >= 0 and self._lasts[at] >= offset else None

    def from_offset(self, offset: int) -> tuple[int, int, int] | None:
        """The first, the last offset and the row of what `find` finds, or else of the first interval above `offset`."""
        at = bisect_right(self._firsts, offset) - 1
        if at < 0 or self._lasts[at] < offset:
            at += 1
        return None if at == len(self._firsts) else (self._firsts[at], self._lasts[at], self._rows[at])

    def next_first(self, offset: int) -> int | None:
        """Where the first interval begins that begins above `offset`; those that are covered do not count."""
        at = bisect_right(self._firsts, offset)
        return self._firsts[at] if at < len(self._firsts) else None

    def first_within(self, first: int, last: int) -> int | None:
        """Where that interval begins that begins first of those with an offset in [first, last]."""
        at = bisect_left(self._lasts, first)
        return self._firsts[at] if at < len(self._firsts) and self._firsts[at] <= last else None

    def ending_within(self, first: int, last: int) -> Iterator[int]:
        """The rows of all intervals whose last offset is in [first, last], covered ones last."""
        yield from self._rows[bisect_left(self._lasts, first) : bisect_right(self._lasts, last)]
        yield from (interval.row for interval in self._covered if first <= -interval.minus_last <= last)

    def covered_twins(self, first: int, last: int) -> Iterator[int]:
        """The rows of covered intervals that are exactly [first, last]."""
        for at in range(bisect_left(self._covered, (first, -last)), len(self._covered)):
            if self._covered[at][:2] != (first, -last):
                return
            yield self._covered[at].row

    def next_aborted(self, offset: int) -> int | None:
        """The row of the first interval from the one that holds `offset` on that has aborted transactions."""
        at = bisect_right(self._firsts, offset) - 1
        if at < 0 or self._lasts[at] < offset:
            at += 1
        if at == len(self._firsts):
            return None
        found = bisect_left(self._aborted, self._firsts[at])
        return None if found == len(self._aborted) else self._rows[bisect_left(self._firsts, self._aborted[found])]

    def add(self, first: int, last: int, row: int, has_aborted: bool) -> None:
        """Of two that are the same, the newer comes in front: what was compacted again takes the place of what it was
        made from.
        """
        if not self._lasts or (first > self._firsts[-1] and last > self._lasts[-1]):
            self._put(len(self._firsts), first, last, row, has_aborted)
            return
        at = bisect_right(self._firsts, first)
        if at and self._lasts[at - 1] >= last and (self._firsts[at - 1], self._lasts[at - 1]) != (first, last):
            insort(self._covered, CoveredInterval(first, -last, row, has_aborted))
            return
        begin = at - 1 if at and self._firsts[at - 1] == first else at
        for _ in range(begin, bisect_right(self._lasts, last, begin)):
            insort(self._covered, self._take(begin))
        self._put(begin, first, last, row, has_aborted)

    def remove(self, first: int, last: int, row: int) -> None:
        """It must be there."""
        at = bisect_left(self._firsts, first)
        if at < len(self._firsts) and self._firsts[at] == first and self._rows[at] == row:
            self._take(at)
            self._uncover(at, first)
            return
        found = bisect_left(self._covered, (first, -last, row))
        assert self._covered[found][:3] == (first, -last, row), f"{first}-{last} is not there"
        del self._covered[found]

    def _put(self, at: int, first: int, last: int, row: int, has_aborted: bool) -> None:
        if at == len(self._firsts):
            self._firsts.append(first)
            self._lasts.append(last)
            self._rows.append(row)
        else:
            self._firsts.insert(at, first)
            self._lasts.insert(at, last)
            self._rows.insert(at, row)
        if has_aborted:
            self._aborted.insert(bisect_left(self._aborted, first), first)

    def _take(self, at: int) -> CoveredInterval:
        first, last, row = self._firsts[at], self._lasts[at], self._rows[at]
        del self._firsts[at], self._lasts[at], self._rows[at]
        found = bisect_left(self._aborted, first)
        has_aborted = found < len(self._aborted) and self._aborted[found] == first
        if has_aborted:
            del self._aborted[found]
        return CoveredInterval(first, -last, row, has_aborted)

    def _uncover(self, at: int, first: int) -> None:
        """Bring forward what only the interval covered that was at `at` and began at `first`.

        It begins there at the earliest, before the next one, which covers the rest, and reaches beyond the one before.
        """
        covered = self._covered
        reach = self._lasts[at - 1] if at else -1
        bound = self._firsts[at] if at < len(self._firsts) else None
        found = bisect_left(covered, (first,))
        while found < len(covered) and (bound is None or covered[found].first < bound):
            interval = covered[found]
            if -interval.minus_last <= reach:
                found += 1
                continue
            del covered[found]
            reach = -interval.minus_last
            self._put(at, interval.first, reach, interval.row, interval.has_aborted)
            at += 1
