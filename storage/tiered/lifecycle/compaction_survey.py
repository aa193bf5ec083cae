"""Estimate of a compaction pass, span by span, so that many spans are examined in bounded steps.

`remote_compaction.py` defines dirty. Spans are passed in offset order, each once.
"""

from array import array
from bisect import bisect_left
from collections.abc import Iterator
from typing import Final

from storage.config import LogConfig
from storage.tiered.catalog.remote_log_layout import RemoteLogLayout, SpanFigures
from storage.tiered.catalog.segment_spans import SegmentSpan
from storage.tiered.catalog.segment_table import SegmentTable
from storage.tiered.segment_metadata import TopicIdPartition

SPANS_PER_STEP: Final = 1_000
"""Number of spans per step: about a millisecond."""
COLLECTED_PER_STEP: Final = 150
"""Number of spans per step if segments are built: about a millisecond."""


class CompactionSurvey:
    """Spans to compact: the first `count` spans hold everything from the log start to below `end` without holes, and
    are old enough. Everything below `first_dirty` was already compacted against everything else below it.
    """

    def __init__(self, config: LogConfig, now_ms: int) -> None:
        self._oldest_young_ms = now_ms - config.min_compaction_lag_ms if config.min_compaction_lag_ms > 0 else None
        self._overdue_before_ms = now_ms - config.max_compaction_lag_ms
        self._clean_end: int | None = None
        self._next_offset = 0
        self.count = 0
        self.dirty_bytes = 0
        self.all_bytes = 0
        self.is_overdue = False
        """Whether dirty records waited for longer than max.compaction.lag.ms."""
        self._dirty_end: int | None = None

    @property
    def first_dirty(self) -> int:
        return self._clean_end or 0

    @property
    def end(self) -> int:
        return self.first_dirty if self._dirty_end is None else self._dirty_end

    @property
    def ratio(self) -> float:
        """Ratio of dirty bytes to all bytes."""
        return self.dirty_bytes / self.all_bytes if self.all_bytes else 0.0

    def is_worth_it(self, min_ratio: float) -> bool:
        return self.dirty_bytes > 0 and (self.is_overdue or self.ratio > min_ratio)

    def step(self, layout: RemoteLogLayout) -> bool:
        """Examine the next spans; return whether all were examined."""
        if not self.count:
            first = layout.spans_from(0, 1)
            if not first or not self.add(figures_of(taken_whole(first[0]))):
                return True
        before = self.count
        goes_on = all(self.add(span) for span in layout.figures_from(self._next_offset, SPANS_PER_STEP))
        return not goes_on or self.count == before

    def add(self, span: SpanFigures) -> bool:
        """Add a span; return whether it belongs to the pass, and the next one may, too."""
        if self.count and span.first != self._next_offset:
            return False
        is_dirty = self._is_dirty(span)
        if is_dirty and self._oldest_young_ms is not None and span.max_timestamp_ms > self._oldest_young_ms:
            return False
        self.count += 1
        self._next_offset = span.last + 1
        self.all_bytes += span.share_bytes
        if is_dirty:
            self.dirty_bytes += span.share_bytes
            self._dirty_end = span.last + 1
            self.is_overdue = self.is_overdue or span.max_timestamp_ms < self._overdue_before_ms
        return True

    def _is_dirty(self, span: SpanFigures) -> bool:
        """Whether some of the span is dirty. The clean part ends at the first span that is not compacted, or earlier,
        at the lowest `compacted_to`; never before a clean span, so a clean span stays clean.
        """
        if self._clean_end is None or span.first < self._clean_end:
            reached = span.first if span.compacted_to is None else max(span.compacted_to, span.first)
            self._clean_end = reached if self._clean_end is None else min(self._clean_end, reached)
        return span.last >= self._clean_end


class CollectedSpans:
    """All spans of a layout as numbers: about 100 bytes each and none for the garbage collector, where objects would
    take 900 and delay the loop at every collection.
    """

    def __init__(self, partition: TopicIdPartition) -> None:
        self._segments = SegmentTable(partition)
        self._firsts, self._lasts = array("q"), array("q")

    def __len__(self) -> int:
        return len(self._lasts)

    def __getitem__(self, at: int) -> SegmentSpan:
        """Build a span. Raises IndexError."""
        return SegmentSpan(self._segments.segment(range(len(self))[at]), self._firsts[at], self._lasts[at])

    def __iter__(self) -> Iterator[SegmentSpan]:
        return (self[at] for at in range(len(self)))

    def count_below(self, offset: int) -> int:
        """Return the number of spans that end below an offset."""
        return bisect_left(self._lasts, offset)

    def step(self, layout: RemoteLogLayout) -> bool:
        """Collect the next spans; return whether all were collected."""
        more = layout.spans_from(self._lasts[-1] + 1 if self._lasts else 0, COLLECTED_PER_STEP)
        for span in more:
            self._append(span if self._lasts else taken_whole(span))
        return len(more) < COLLECTED_PER_STEP

    def _append(self, span: SegmentSpan) -> None:
        self._segments.append(span.segment)
        self._firsts.append(span.first)
        self._lasts.append(span.last)


def taken_whole(span: SegmentSpan) -> SegmentSpan:
    """Return the first span with its whole segment: the next leader may not know the log start offset yet."""
    return span._replace(first=span.segment.start_offset)


def figures_of(span: SegmentSpan) -> SpanFigures:
    segment = span.segment
    return SpanFigures(span.first, span.last, span.share_bytes, segment.max_timestamp_ms, segment.compacted_to)
