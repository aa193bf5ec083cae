"""Layout of the remote part of a log: spans of segments in offset order, each offset in one span.

Segments overlap: two leaders copied the same offsets, or segments that a compacted one replaces still exist. For each
offset one segment is chosen, by the same rule as in look-ups (`metadata_cache.py`): compacted segments first; of
compacted ones, and of others, the one that reaches further; of two with the same offsets the one that was compacted
further, or is older. Segments outside the layout hold no offset that the layout lacks.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from storage.tiered.catalog.lineage import Lineage
from storage.tiered.segment_metadata import RemoteSegment, SegmentState

_END = 2**63 - 1


class SegmentSpan(NamedTuple):
    """A segment and the offsets, both included, that it serves."""

    segment: RemoteSegment
    first: int
    last: int

    @property
    def share_bytes(self) -> int:
        """Estimated size of the span: an overlap with the previous span does not count."""
        return share(self.segment.size_bytes, self.segment.start_offset, self.segment.end_offset, self.first)


class _Reach(NamedTuple):
    first: int
    last: int
    segment: RemoteSegment


class _Gap(NamedTuple):
    first: int
    last: int


def share(size_bytes: int, start: int, end: int, first: int) -> int:
    """Estimate the bytes of a segment at or above `first`, as if all offsets had equal size."""
    if first <= start:
        return size_bytes
    return size_bytes * max(0, end + 1 - first) // (end + 1 - start) if end >= start else 0


def spans_of(segments: Iterable[RemoteSegment], lineage: Lineage, log_start_offset: int) -> list[SegmentSpan]:
    """Return the spans of finished segments that hold all of a log that remote storage has; a segment has two spans
    where preferred segments hold offsets in its middle. Takes time in proportion to the number of segments, plus
    sorting.
    """
    floor = max(log_start_offset, lineage.start_offset or 0)
    finished = (each for each in segments if each.state is SegmentState.COPY_FINISHED and each.end_offset >= floor)
    reaches = (_Reach(max(each.start_offset, floor), lineage.agreed_end(each), each) for each in finished)
    known = sorted((reach for reach in reaches if reach.last >= reach.first), key=_order)
    compacted = list(_fill([reach for reach in known if reach.segment.is_compacted], [_Gap(floor, _END)]))
    copied = _fill([reach for reach in known if not reach.segment.is_compacted], _gaps(compacted, floor))
    return sorted([*compacted, *copied], key=lambda span: span.first)


def _order(reach: _Reach) -> tuple[int, int, tuple[int, int, bytes]]:
    return reach.segment.start_offset, -reach.last, preference(reach.segment)


def preference(segment: RemoteSegment) -> tuple[int, int, bytes]:
    """Sort key of segments with the same offsets; the lowest is preferred."""
    return -(segment.compacted_to or 0), segment.event_timestamp_ms, segment.id.id


def _gaps(spans: Iterable[SegmentSpan], first: int) -> Iterator[_Gap]:
    for span in spans:
        if span.first > first:
            yield _Gap(first, span.first - 1)
        first = span.last + 1
    yield _Gap(first, _END)


def _fill(known: Sequence[_Reach], gaps: Iterable[_Gap]) -> Iterator[SegmentSpan]:
    """Yield the spans within gaps, which ascend; `known` is sorted."""
    index = 0
    best: _Reach | None = None
    for gap in gaps:
        next_offset = gap.first
        while next_offset <= gap.last:
            while index < len(known) and known[index].first <= next_offset:
                if best is None or known[index].last > best.last:
                    best = known[index]
                index += 1
            if best is not None and best.last >= next_offset:
                yield SegmentSpan(best.segment, next_offset, min(best.last, gap.last))
                next_offset = best.last + 1
            elif index < len(known):
                next_offset = known[index].first  # no segment holds the offsets between
            else:
                return
