"""The layout of `segment_spans.py`, maintained incrementally: each update costs in proportion to what changed.

Theory of operation
-------------------
The segment that serves the first offset of a span depends on that offset alone: of all segments that begin at or below
it, the one that reaches furthest, compacted ones first. The next span begins behind it. So the layout from some span on
does not depend on what lies before. A segment that is added or removed changes the spans between its offsets, and those
behind until one begins at a former boundary. Usually this is one span.

Intervals of offsets, as far as each segment agrees with the history, are in `EpochIntervals`, which finds the furthest
reaching one in O(log n). Changed ranges of offsets are noted and repaired later (`settle`) in bounded steps, as are the
initial load of the known segments and a log start offset that passes many spans.

Finished segments without a span are `outside`: below the log start offset, of another history, or held by other
segments. They are few, unless they are about to be deleted.

The history may grow, and lose its beginning as the log start offset rises. Neither changes how far a segment agrees
that ends before the former end of the history: two logs that agree at one offset agree below it. The exception is a
segment that was copied after the log start offset had passed its beginning: its metadata give the deleted records the
first epoch that was known, and it agrees only with a history that begins there. Any other change of the history
requires a new layout (`follows`).
"""

from array import array
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, islice
from typing import Final, NamedTuple

from storage.directories.checkpoints import LeaderEpochEntry
from storage.tiered.catalog.epoch_intervals import EpochIntervals
from storage.tiered.catalog.lineage import NO_OFFSET, Lineage
from storage.tiered.catalog.segment_spans import SegmentSpan, preference, share
from storage.tiered.remote_metadata import KnownSegments
from storage.tiered.segment_metadata import RemoteSegment

_END: Final = 2**63 - 1
_FEWEST: Final = 2
"""Minimum number of spans per step: the first one is rebuilt to find the position to resume at."""


class _Piece(NamedTuple):
    """A span in numbers."""

    first: int
    last: int
    row: int


class SpanFigures(NamedTuple):
    """Figures of a span that decide whether its segment is to be compacted."""

    first: int
    last: int
    share_bytes: int
    max_timestamp_ms: int
    compacted_to: int | None


class RemoteLogLayout:
    """A SegmentObserver. Queries are valid after `settle` returned True, until the next event. When `is_of` returns
    False, only `close` may be called.
    """

    def __init__(self, known: KnownSegments, lineage: Lineage, log_start_offset: int) -> None:
        """Observe `known` from now on, instead of any other observer."""
        self._known = known
        self._lineage = lineage
        self._floor = _floor(lineage, log_start_offset)
        self._next_row: int | None = 0  # rows from there on are still to be loaded
        self._compacted = EpochIntervals()
        self._copied = EpochIntervals()
        self._parted: dict[int, int] = {}  # last agreed offset of rows that do not agree to their end
        self._beyond: set[int] = set()  # rows of them that reach beyond the end of the history
        self._firsts, self._lasts = array("q"), array("q")
        self._rows, self._shares = array("i"), array("q")
        self._touched: list[tuple[int, int]] = []
        self.outside: dict[int, int] = {}
        """Rows of finished segments without a span, with their start offsets (or a higher one below the log start
        offset).
        """
        self.size_bytes = 0
        """Size of the layout; each offset counts once."""
        self.finished_bytes = 0
        """Size of all finished segments."""
        known.observer = self

    def close(self) -> None:
        """Stop observing."""
        if self._known.observer is self:
            self._known.observer = None

    def is_of(self, known: KnownSegments) -> bool:
        """Whether this layout has observed all changes of `known`."""
        return self._known is known and known.observer is self

    def follows(self, lineage: Lineage, log_start_offset: int) -> bool:
        """Whether `use` accepts these arguments."""
        before, end = self._lineage, self._lineage.end_offset
        if lineage.end_offset < end or _floor(lineage, log_start_offset) < self._floor:
            return False
        entries = [entry for entry in lineage.entries if entry.start_offset < end]
        return entries == _clipped(before.entries, entries[0].start_offset if entries else end)

    # ---- events

    def on_available(self, row: int, segment: RemoteSegment) -> None:
        """See SegmentObserver."""
        if self._next_row is None or row < self._next_row:
            self._add(row, segment)

    def on_unavailable(self, row: int, segment: RemoteSegment) -> None:
        """See SegmentObserver."""
        if self._next_row is None or row < self._next_row:
            self._remove(row, segment)

    def _add(self, row: int, segment: RemoteSegment) -> None:
        self.finished_bytes += segment.size_bytes
        self.outside[row] = segment.start_offset
        last = self._lineage.agreed_end(segment)
        if last != segment.end_offset:
            self._parted[row] = last
            if segment.end_offset >= self._lineage.end_offset:
                self._beyond.add(row)
        if last != NO_OFFSET:
            self._layer(segment).add(segment.start_offset, last, row, has_aborted=False)
            self._touch(segment.start_offset, last)

    def _remove(self, row: int, segment: RemoteSegment) -> None:
        self.finished_bytes -= segment.size_bytes
        self.outside.pop(row, None)
        self._beyond.discard(row)
        last = self._parted.pop(row, segment.end_offset)
        if last != NO_OFFSET:
            self._layer(segment).remove(segment.start_offset, last, row)
            self._touch(segment.start_offset, last)

    def _layer(self, segment: RemoteSegment) -> EpochIntervals:
        return self._compacted if segment.is_compacted else self._copied

    def _touch(self, first: int, last: int) -> None:
        """Note a changed range; segments mostly change in order, so adjacent ranges are merged."""
        if self._next_row is not None:
            return
        if self._touched:
            begin, end = self._touched[-1]
            if first <= end + 1 and last >= begin - 1:
                self._touched[-1] = min(begin, first), max(end, last)
                return
        self._touched.append((first, last))

    # ---- the log

    def use(self, lineage: Lineage, log_start_offset: int) -> None:
        """Adopt the present state of the log, which this layout must follow (`follows`)."""
        before, self._lineage = self._lineage, lineage
        floor = _floor(lineage, log_start_offset)
        if floor != self._floor:
            self._floor = floor
            self._touch(floor, floor)  # a span may start in its middle now
        if lineage.start_offset != before.start_offset:
            self._add_again([row for row in self._parted if self._is_within(row, lineage.start_offset)])
        if lineage.end_offset != before.end_offset:
            self._add_again(list(self._beyond))

    def _is_within(self, row: int, offset: int | None) -> bool:
        """Whether an offset is one of a segment's, and not its first."""
        first, last = self._known.offsets(row)
        return offset is not None and first < offset <= last

    def _add_again(self, rows: Iterable[int]) -> None:
        """Compare segments with the present history."""
        for row in rows:
            segment = self._known.finished_at(row)
            if segment is not None:
                self._remove(row, segment)
                self._add(row, segment)

    def settle(self, steps: int) -> bool:
        """Repair about `steps` segments; return whether nothing is left. The order matters: spans below the log start
        offset are dropped, not repaired.
        """
        if self._next_row is not None:
            self._read(steps)
        elif self._lasts and self._lasts[0] < self._floor:
            self._drop(steps)
        elif self._touched:
            self._mend(*self._touched.pop(), steps)
        is_done = self._next_row is None and not self._touched and not (self._lasts and self._lasts[0] < self._floor)
        if is_done and not self.outside:
            self.outside = {}  # iterating over a dict that was large once stays slow
        return is_done

    def _read(self, steps: int) -> None:
        assert self._next_row is not None
        page = self._known.page(self._next_row, steps)
        for row, segment in page.segments:
            if self._known.is_finished(row):
                self._add(row, segment)
        self._next_row = page.next_row
        if page.next_row is None:
            self._touched = [(0, _END)]

    def _drop(self, steps: int) -> None:
        """Drop spans below the log start offset."""
        count = min(steps, bisect_left(self._lasts, self._floor))
        gone = self._rows[:count]
        self._replace(0, count, [])
        self._sort_out(gone)

    def _mend(self, first: int, last: int, steps: int) -> None:
        """Rebuild the spans that an interval from `first` to `last` may affect."""
        begin = end = bisect_left(self._lasts, first - 1)
        offset = self._lasts[begin - 1] + 1 if begin else self._floor
        made: list[_Piece] = []
        while True:
            piece = self._piece_at(offset)
            while end < len(self._firsts) and (piece is None or self._firsts[end] < piece.first):
                end += 1
            if piece is None or (piece.first > last and end < len(self._firsts) and self._firsts[end] == piece.first):
                break
            if len(made) >= max(steps, _FEWEST):
                self._touched.append((offset, max(last, offset)))
                break
            made.append(piece)
            offset = piece.last + 1
        rows = self._rows[begin:end]
        self._replace(begin, end, made)
        self._sort_out(chain(rows, (piece.row for piece in made)))

    def _piece_at(self, offset: int) -> _Piece | None:
        """Return the first span at or above an offset at which a span might begin."""
        compacted = self._compacted.from_offset(offset)
        if compacted is not None and compacted[0] <= offset:
            return self._piece(self._compacted, compacted, offset, _END)
        bound = _END if compacted is None else compacted[0] - 1
        copied = self._copied.from_offset(offset)
        if copied is not None and max(copied[0], offset) <= bound:
            return self._piece(self._copied, copied, offset, bound)
        return None if compacted is None else self._piece(self._compacted, compacted, offset, _END)

    def _piece(self, layer: EpochIntervals, interval: tuple[int, int, int], offset: int, bound: int) -> _Piece:
        """Make a span; of several segments with equal offsets choose the preferred one."""
        first, last, row = interval
        twins = list(layer.covered_twins(first, last))
        if twins:
            row = min((row, *twins), key=lambda each: preference(self.finished(each)))
        return _Piece(max(first, offset), min(last, bound), row)

    def _replace(self, begin: int, end: int, pieces: Sequence[_Piece]) -> None:
        shares = [self._share(piece) for piece in pieces]
        self.size_bytes += sum(shares) - sum(self._shares[begin:end])
        self._firsts[begin:end] = array("q", [piece.first for piece in pieces])
        self._lasts[begin:end] = array("q", [piece.last for piece in pieces])
        self._rows[begin:end] = array("i", [piece.row for piece in pieces])
        self._shares[begin:end] = array("q", shares)

    def _share(self, piece: _Piece) -> int:
        segment = self.finished(piece.row)
        return share(segment.size_bytes, segment.start_offset, segment.end_offset, piece.first)

    def _sort_out(self, rows: Iterator[int] | Sequence[int]) -> None:
        """Update `outside` for rows, some of which may by now stand for another segment or none."""
        for row in rows:
            if self._known.is_finished(row) and not self.has_span(row):
                self.outside[row] = self._known.offsets(row)[0]
            else:
                self.outside.pop(row, None)

    # ---- queries

    @property
    def next_offset(self) -> int:
        """The offset after the last span; 0 if there is none."""
        return self._lasts[-1] + 1 if self._lasts else 0

    def span(self, at: int) -> SegmentSpan | None:
        """Return the span at an index."""
        if at >= len(self._rows):
            return None
        return SegmentSpan(self.finished(self._rows[at]), self._firsts[at], self._lasts[at])

    def spans(self) -> Iterator[tuple[int, SegmentSpan]]:
        """Iterate over (row, span) in offset order."""
        for first, last, row in zip(self._firsts, self._lasts, self._rows, strict=True):
            yield row, SegmentSpan(self.finished(row), first, last)

    def spans_from(self, offset: int, most: int) -> list[SegmentSpan]:
        """Return up to `most` spans with offsets at or above `offset`, clipped to it."""
        begin = bisect_left(self._lasts, offset)
        spans = zip(*(column[begin : begin + most] for column in (self._firsts, self._lasts, self._rows)), strict=True)
        return [SegmentSpan(self.finished(row), max(first, offset), last) for first, last, row in spans]

    def figures_from(self, offset: int, most: int) -> Iterator[SpanFigures]:
        """Iterate over the same spans as figures, several times as fast."""
        begin, known = bisect_left(self._lasts, offset), self._known
        columns = (column[begin : begin + most] for column in (self._firsts, self._lasts, self._shares, self._rows))
        for first, last, share_bytes, row in zip(*columns, strict=True):
            yield SpanFigures(
                max(first, offset), last, share_bytes, known.max_timestamp_ms(row), known.compacted_to(row)
            )

    def next_outside(self, most: int) -> dict[int, RemoteSegment]:
        """Return some segments outside, by row; the next call returns others, if there are others."""
        rows = list(islice(self.outside, most))
        if len(rows) < len(self.outside):
            for row in rows:
                self.outside[row] = self.outside.pop(row)
        return {row: self.finished(row) for row in rows}

    def has_span(self, row: int, begin: int = 0) -> bool:
        """Whether a finished segment has a span, among the spans from index `begin` on."""
        start, end = self._known.offsets(row)
        for at in range(max(begin, bisect_left(self._lasts, start)), len(self._firsts)):
            if self._firsts[at] > end:
                return False
            if self._rows[at] == row:
                return True
        return False

    def finished(self, row: int) -> RemoteSegment:
        """Return the segment of a row that is in a span or outside."""
        segment = self._known.finished_at(row)
        assert segment is not None, f"row {row} cannot be read"
        return segment


def _floor(lineage: Lineage, log_start_offset: int) -> int:
    return max(log_start_offset, lineage.start_offset or 0)


def _clipped(entries: Sequence[LeaderEpochEntry], first: int) -> list[LeaderEpochEntry]:
    """Return a history as a log has it that begins at `first`."""
    kept = [entry for entry in entries if entry.start_offset > first]
    present = next((entry for entry in reversed(entries) if entry.start_offset <= first), None)
    return kept if present is None else [LeaderEpochEntry(present.epoch, first), *kept]
