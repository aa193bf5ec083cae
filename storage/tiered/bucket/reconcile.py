"""What a bucket holds against what is known of it: which objects nobody will ever read, and which are missing.

Why reading both, one after the other, tells the truth although segments are copied and deleted meanwhile:

1. Whoever copies a segment publishes COPY_STARTED under an id of its own, made for this attempt, and waits until that
   is durable before the first object is written. So *list first, read metadata to its end afterwards*: a listed
   object of which metadata says nothing was written by nobody who is still at it. It is either left of a segment
   whose deletion is finished (a request that arrived late), or of metadata that were lost.
2. An object that is missing in the listing may have been written since. So what is finished by metadata, and not in
   the listing, is asked for one by one *after* reading metadata; and since it may have been deleted meanwhile, too,
   metadata is read again before it counts as missing.
3. DELETE_STARTED cannot be taken back and ids are never used again: what has it may be deleted by anybody, at any
   time, as often as they like.
4. A copy that was begun and neither finished nor deleted is either under way or abandoned, and nothing but time tells
   which. Whoever copies gives up what it began longer ago than the lease (`copy_lease_ms`), so that after a grace
   time longer than that nobody will publish COPY_FINISHED, and DELETE_STARTED may be published by anybody.

Beyond that, caution: metadata may be lost, and then *everything* looks like 1. A partition with whole segments of which
metadata says nothing at all is never touched, nor is a whole segment with offsets that no known segment has.
"""

from bisect import bisect_right
from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum

from storage.tiered.bucket.listing import StoredSegment
from storage.tiered.format.object_keys import ObjectSuffix
from storage.tiered.segment_metadata import RemoteSegment, SegmentState

COPY_LEASE_MS = 30 * 60_000
"""For so long an attempt to copy a segment may go on; afterwards it may not be finished, only be deleted."""


def copy_lease_ms(grace_ms: int) -> int:
    """The lease of brokers that collect after `grace_ms`: theirs must end before that."""
    return min(COPY_LEASE_MS, grace_ms * 3 // 4)


DEFAULT_GRACE_MS = 60 * 60_000
"""How old a leftover must be: the lease, and as much again for clocks that differ and requests that are under way."""


class Finding(Enum):
    """What a segment's objects and its metadata make of each other. The value is what reports call it."""

    LIVE = "live"
    COPYING = "copying"
    DELETING = "deleting"
    RECENT = "recent"
    """Objects without metadata, younger than the grace time."""
    SUSPECT = "suspect"
    """Finished, and an object was not listed: to be asked for."""
    ORPHAN = "orphan"
    """Objects without metadata."""
    ABANDONED = "abandoned copy"
    HALF_DELETED = "half-deleted"
    DANGLING = "dangling"
    """Metadata of a finished segment, and an object is missing."""
    UNRECORDED = "unrecorded"
    """A whole segment without metadata, which metadata may have lost."""


IN_ORDER = frozenset({Finding.LIVE, Finding.COPYING, Finding.DELETING, Finding.RECENT})
COLLECTABLE = frozenset({Finding.ORPHAN, Finding.ABANDONED, Finding.HALF_DELETED})


@dataclass(frozen=True, slots=True)
class AuditedSegment:
    """On one segment; at least one of `objects` and `segment` is there."""

    finding: Finding
    objects: StoredSegment | None
    segment: RemoteSegment | None
    age_ms: int
    missing: tuple[ObjectSuffix, ...] = ()


def classify(
    objects: StoredSegment | None, segment: RemoteSegment | None, *, now_ms: int, grace_ms: int
) -> AuditedSegment:
    """On what was listed first and then read of metadata; either may be absent. Raises ValueError if both are."""
    if segment is None:
        if objects is None:
            raise ValueError("there is nothing to classify")
        age_ms = now_ms - objects.modified_ms
        return AuditedSegment(Finding.ORPHAN if age_ms >= grace_ms else Finding.RECENT, objects, None, age_ms)
    age_ms = now_ms - max(segment.event_timestamp_ms, 0 if objects is None else objects.modified_ms)
    missing = tuple(suffix for suffix in ObjectSuffix if objects is None or suffix not in objects.objects)
    return AuditedSegment(_of_known(segment, missing, age_ms >= grace_ms), objects, segment, age_ms, missing)


def _of_known(segment: RemoteSegment, missing: tuple[ObjectSuffix, ...], is_old: bool) -> Finding:
    match segment.state:
        case SegmentState.COPY_STARTED:
            return Finding.ABANDONED if is_old else Finding.COPYING
        case SegmentState.COPY_FINISHED:
            return Finding.SUSPECT if missing else Finding.LIVE
        case _:
            return Finding.HALF_DELETED if is_old else Finding.DELETING


class Coverage:
    """The offsets that finished segments of a partition hold, from the log start on; what lies below it is deleted."""

    def __init__(self, segments: Iterable[RemoteSegment], log_start_offset: int) -> None:
        self._starts: list[int] = [0]
        self._ends: list[int] = [log_start_offset]
        for segment in segments:
            if segment.state is SegmentState.COPY_FINISHED:
                self._add(segment.start_offset, segment.end_offset + 1)

    def _add(self, start: int, end: int) -> None:
        """Ranges come by their start."""
        if start > self._ends[-1]:
            self._starts.append(start)
            self._ends.append(end)
        else:
            self._ends[-1] = max(self._ends[-1], end)

    def holds(self, start_offset: int, end_offset: int) -> bool:
        """Both included. A whole segment without metadata whose offsets are not held may be their only copy."""
        at = bisect_right(self._starts, start_offset) - 1
        return end_offset < self._ends[at]
