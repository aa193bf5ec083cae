"""What a pass of compaction would do, found out link by link, so that a look at many of them can be had in pieces.

`remote_compaction.py` says what dirty means. Links come in the order of their offsets and none of them twice.
"""

from array import array
from bisect import bisect_left
from collections.abc import Iterator
from typing import Final

from storage.config import LogConfig
from storage.tiered.catalog.live_chain import LinkFigures, LiveChain
from storage.tiered.catalog.segment_chain import Link
from storage.tiered.catalog.segment_table import SegmentTable
from storage.tiered.segment_metadata import TopicIdPartition

LINKS_A_STEP: Final = 1_000
"""About a millisecond."""
GATHERED_A_STEP: Final = 150
"""The same, where segments are made of the figures."""


class CompactionSurvey:
    """`count` links hold all from the log's start to below `end`, without holes, and are old enough to be compacted;
    everything below `first_dirty` was compared with everything else below it.
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
        """Whether something dirty has waited for longer than max.compaction.lag.ms."""
        self._dirty_end: int | None = None

    @property
    def first_dirty(self) -> int:
        return self._clean_end or 0

    @property
    def end(self) -> int:
        return self.first_dirty if self._dirty_end is None else self._dirty_end

    @property
    def ratio(self) -> float:
        """Of dirty bytes to all of them."""
        return self.dirty_bytes / self.all_bytes if self.all_bytes else 0.0

    def is_worth_it(self, min_ratio: float) -> bool:
        return self.dirty_bytes > 0 and (self.is_overdue or self.ratio > min_ratio)

    def step(self, chain: LiveChain) -> bool:
        """Goes on where it stopped; whether this was all."""
        if not self.count:
            first = chain.links_from(0, 1)
            if not first or not self.add(figures_of(taken_whole(first[0]))):
                return True
        before = self.count
        goes_on = all(self.add(link) for link in chain.figures_from(self._next_offset, LINKS_A_STEP))
        return not goes_on or self.count == before

    def add(self, link: LinkFigures) -> bool:
        """Whether the link is one of those, and what follows on it may be."""
        if self.count and link.first != self._next_offset:
            return False
        is_dirty = self._is_dirty(link)
        if is_dirty and self._oldest_young_ms is not None and link.max_timestamp_ms > self._oldest_young_ms:
            return False
        self.count += 1
        self._next_offset = link.last + 1
        self.all_bytes += link.share_bytes
        if is_dirty:
            self.dirty_bytes += link.share_bytes
            self._dirty_end = link.last + 1
            self.is_overdue = self.is_overdue or link.max_timestamp_ms < self._overdue_before_ms
        return True

    def _is_dirty(self, link: LinkFigures) -> bool:
        """Whether something of it is. What is clean ends where the first link begins that is not compacted, or before,
        where one was not compacted further; never before a link that is clean, so that is what it stays.
        """
        if self._clean_end is None or link.first < self._clean_end:
            reached = link.first if link.compacted_to is None else max(link.compacted_to, link.first)
            self._clean_end = reached if self._clean_end is None else min(self._clean_end, reached)
        return link.last >= self._clean_end


class GatheredLinks:
    """All links of a chain, the first whole, in numbers: some 100 bytes each and nothing for the garbage collector to
    visit, where objects would take 900, and hold up the loop for every collection.
    """

    def __init__(self, partition: TopicIdPartition) -> None:
        self._segments = SegmentTable(partition)
        self._firsts, self._lasts = array("q"), array("q")

    def __len__(self) -> int:
        return len(self._lasts)

    def __getitem__(self, at: int) -> Link:
        """Made anew each time. Raises IndexError."""
        return Link(self._segments.segment(range(len(self))[at]), self._firsts[at], self._lasts[at])

    def __iter__(self) -> Iterator[Link]:
        return (self[at] for at in range(len(self)))

    def count_below(self, offset: int) -> int:
        """How many links end below an offset."""
        return bisect_left(self._lasts, offset)

    def step(self, chain: LiveChain) -> bool:
        """Goes on where it stopped; whether this was all."""
        more = chain.links_from(self._lasts[-1] + 1 if self._lasts else 0, GATHERED_A_STEP)
        for link in more:
            self._append(link if self._lasts else taken_whole(link))
        return len(more) < GATHERED_A_STEP

    def _append(self, link: Link) -> None:
        self._segments.append(link.segment)
        self._firsts.append(link.first)
        self._lasts.append(link.last)


def taken_whole(link: Link) -> Link:
    """The first link of all, whatever of it is below the log's start by now: who leads next may not know of that."""
    return link._replace(first=link.segment.start_offset)


def figures_of(link: Link) -> LinkFigures:
    segment = link.segment
    return LinkFigures(link.first, link.last, link.share_bytes, segment.max_timestamp_ms, segment.compacted_to)
