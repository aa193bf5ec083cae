"""Look-up of the segment that holds an offset of one leader epoch, although segments overlap.

Theory of operation
-------------------
Within an epoch an offset names one record, so several segments that hold it are equivalent, and the one that reaches
furthest is preferred. An interval is *covered* if another begins no later and ends no earlier. Uncovered intervals
sorted by first offset are also sorted by last offset. So the last of them that begins at or before an offset reaches
further than all others that do: it holds the offset, or no interval does. A look-up is one bisection.

Covered intervals are kept aside, because their covering interval may be deleted first. They are few, since leaders
change rarely. (A map from first offsets with a floor look-up loses segments: in KIP-405's scenario 5, and whenever a
later segment is shorter.)

Values are numbers: rows stand for segments, and `metadata_cache.py` knows their meaning.
"""

from array import array
from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterator
from itertools import chain
from typing import NamedTuple


class CoveredInterval(NamedTuple):
    """A covered interval; sorts by first offset, the longest first."""

    first: int
    minus_last: int
    row: int
    has_aborted: bool


class IntervalColumns(NamedTuple):
    """All columns of an `EpochIntervals`, for a snapshot; not a copy."""

    firsts: "array[int]"
    lasts: "array[int]"
    rows: "array[int]"
    aborted: "array[int]"
    covered: list[CoveredInterval]


class EpochIntervals:
    """Intervals [first, last] of offsets, 20 bytes each. `has_aborted`: the segment has aborted transactions."""

    __slots__ = ("_aborted", "_covered", "_firsts", "_lasts", "_rows")

    def __init__(self, columns: IntervalColumns | None = None) -> None:
        empty = IntervalColumns(array("q"), array("q"), array("i"), array("q"), [])
        self._firsts, self._lasts, self._rows, self._aborted, self._covered = columns or empty

    def columns(self) -> IntervalColumns:
        """Return the columns. `aborted` are the first offsets of uncovered intervals with aborted transactions."""
        return IntervalColumns(self._firsts, self._lasts, self._rows, self._aborted, self._covered)

    def __bool__(self) -> bool:
        return bool(self._firsts)

    @property
    def highest(self) -> int | None:
        """The last offset in any interval."""
        return self._lasts[-1] if self._lasts else None

    def rows(self) -> Iterator[int]:
        """Iterate over the rows of all intervals, covered ones last."""
        return chain(self._rows, (interval.row for interval in self._covered))

    def find(self, offset: int) -> int | None:
        """Return the row of the furthest reaching interval that holds an offset."""
        at = bisect_right(self._firsts, offset) - 1
        return self._rows[at] if at >= 0 and self._lasts[at] >= offset else None

    def holding(self, offset: int) -> Iterator[int]:
        """Iterate over the rows of all intervals that hold an offset, covered ones last."""
        at = bisect_right(self._firsts, offset) - 1
        while at >= 0 and self._lasts[at] >= offset:
            yield self._rows[at]
            at -= 1
        for interval in self._covered:
            if interval.first > offset:
                return
            if -interval.minus_last >= offset:
                yield interval.row

    def from_offset(self, offset: int) -> tuple[int, int, int] | None:
        """Return (first, last, row) of the result of `find`, else of the first interval above `offset`."""
        at = bisect_right(self._firsts, offset) - 1
        if at < 0 or self._lasts[at] < offset:
            at += 1
        return None if at == len(self._firsts) else (self._firsts[at], self._lasts[at], self._rows[at])

    def next_first(self, offset: int) -> int | None:
        """Return the first offset of the next uncovered interval above `offset`."""
        at = bisect_right(self._firsts, offset)
        return self._firsts[at] if at < len(self._firsts) else None

    def first_within(self, first: int, last: int) -> int | None:
        """Return the first offset of the first interval with an offset in [first, last]."""
        at = bisect_left(self._lasts, first)
        return self._firsts[at] if at < len(self._firsts) and self._firsts[at] <= last else None

    def ending_within(self, first: int, last: int) -> Iterator[int]:
        """Iterate over the rows of all intervals whose last offset is in [first, last], covered ones last."""
        yield from self._rows[bisect_left(self._lasts, first) : bisect_right(self._lasts, last)]
        yield from (interval.row for interval in self._covered if first <= -interval.minus_last <= last)

    def covered_twins(self, first: int, last: int) -> Iterator[int]:
        """Iterate over the rows of covered intervals that equal [first, last]."""
        for at in range(bisect_left(self._covered, (first, -last)), len(self._covered)):
            if self._covered[at][:2] != (first, -last):
                return
            yield self._covered[at].row

    def next_aborted(self, offset: int) -> int | None:
        """Return the row of the first interval with aborted transactions, from the one that holds `offset` on."""
        at = bisect_right(self._firsts, offset) - 1
        if at < 0 or self._lasts[at] < offset:
            at += 1
        if at == len(self._firsts):
            return None
        found = bisect_left(self._aborted, self._firsts[at])
        return None if found == len(self._aborted) else self._rows[bisect_left(self._firsts, self._aborted[found])]

    def add(self, first: int, last: int, row: int, has_aborted: bool) -> None:
        """Add an interval. Of equal intervals the newest is preferred: a segment that was compacted again replaces its
        source.
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
        """Remove an interval, which must exist."""
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
        """Restore intervals that only the removed interval at `at` covered; it began at `first`.

        They begin at `first` or later, before the next interval, which covers the rest, and reach beyond the previous
        one.
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
