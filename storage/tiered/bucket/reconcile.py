"""Comparison of a bucket with its metadata: orphaned objects and missing objects.

A listing and the metadata are read one after the other while segments are copied and deleted. Four facts make the
comparison sound:

1. A copier publishes COPY_STARTED under a new segment id and waits until the event is durable before it writes the
   first object. So *list first, then read the metadata to their end*: no running copy owns a listed object without
   metadata. Such an object is left from a finished deletion (a delayed request), or its metadata were lost.
2. An object that is missing in the listing may have been written since. So objects of finished segments that were not
   listed are requested one by one *after* the metadata were read. Since a segment may have been deleted meanwhile, the
   metadata are read again before an object counts as missing.
3. DELETE_STARTED is final and segment ids are never reused: anyone may delete the objects, at any time, repeatedly.
4. A copy that was started and neither finished nor deleted is either running or abandoned; only its age tells. A copier
   renews its lease (`copy_lease_ms`) by another COPY_STARTED while bytes move, and gives up when the lease is over.
   After a longer grace time no COPY_FINISHED can follow, and anyone may publish DELETE_STARTED with `only_unfinished`:
   it has no effect after a COPY_FINISHED that the publisher has not read.

Lost metadata would make *every* segment look like case 1. Therefore a partition with complete segments but without any
metadata is never touched, nor is a complete segment with records that no known segment holds: the same offsets of
another leader epoch are other records.
"""

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable
from enum import Enum

from protocol.ids import LeaderEpoch
from protocol.lazy_dataclass import lazy_dataclass
from storage.tiered.bucket.listing import StoredSegment
from storage.tiered.catalog.lineage import epoch_ranges
from storage.tiered.format.object_keys import ObjectSuffix
from storage.tiered.segment_metadata import RemoteSegment, SegmentState

COPY_LEASE_MS = 30 * 60_000
"""Maximum time of a copy attempt since its last COPY_STARTED; then it may only be deleted, not finished."""


def copy_lease_ms(grace_ms: int) -> int:
    """Return the copy lease for brokers that collect after `grace_ms`; it ends before the grace time."""
    return min(COPY_LEASE_MS, grace_ms * 3 // 4)


DEFAULT_GRACE_MS = 60 * 60_000
"""Minimum age of a leftover: the lease, and the same again for clock differences and requests in flight."""


_MAX_OFFSET = 2**63 - 1


class Finding(Enum):
    """Result of comparing a segment's objects with its metadata. The value appears in reports."""

    LIVE = "live"
    COPYING = "copying"
    DELETING = "deleting"
    RECENT = "recent"
    """Objects without metadata, younger than the grace time."""
    SUSPECT = "suspect"
    """A finished segment with an object that was not listed; to be checked."""
    ORPHAN = "orphan"
    """Objects without metadata, older than the grace time."""
    ABANDONED = "abandoned copy"
    HALF_DELETED = "half-deleted"
    DANGLING = "dangling"
    """Metadata of a finished segment whose object is missing."""
    UNRECORDED = "unrecorded"
    """A complete segment without metadata, which the metadata may have lost."""


IN_ORDER = frozenset({Finding.LIVE, Finding.COPYING, Finding.DELETING, Finding.RECENT})
COLLECTABLE = frozenset({Finding.ORPHAN, Finding.ABANDONED, Finding.HALF_DELETED})


@lazy_dataclass(frozen=True, slots=True)
class AuditedSegment:
    """Finding about one segment; at least one of `objects` and `segment` is set."""

    finding: Finding
    objects: StoredSegment | None
    segment: RemoteSegment | None
    age_ms: int
    missing: tuple[ObjectSuffix, ...] = ()


def classify(
    objects: StoredSegment | None, segment: RemoteSegment | None, *, now_ms: int, grace_ms: int
) -> AuditedSegment:
    """Classify a segment by its listing and its later metadata; one may be absent. Raises ValueError if both are."""
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
            return Finding.HALF_DELETED if is_old and not segment.is_given_up_mark else Finding.DELETING


class Coverage:
    """Records that finished segments of a partition hold, and the deleted offsets below the log start offset.

    Records are told apart by leader epoch and offset: after an unclean election two histories have different records
    at one offset, and a segment of one history is no copy of a segment of the other (KIP-101).
    """

    def __init__(self, segments: Iterable[RemoteSegment], log_start_offset: int) -> None:
        self._log_start_offset = log_start_offset
        parts: dict[int, list[tuple[int, int]]] = defaultdict(list)
        for segment in segments:
            if segment.state is SegmentState.COPY_FINISHED:
                for epoch, first, last in epoch_ranges(segment):
                    parts[epoch].append((first, last))
        self._held = {epoch: _merged(sorted(ranges)) for epoch, ranges in parts.items()}

    def holds(self, segment: RemoteSegment) -> bool:
        """Whether every record of a segment is held. An unrecorded segment that is not may be their only copy."""
        return all(
            self._holds_range(epoch, max(first, self._log_start_offset), last)
            for epoch, first, last in epoch_ranges(segment)
            if last >= self._log_start_offset
        )

    def _holds_range(self, epoch: LeaderEpoch, first: int, last: int) -> bool:
        ranges = self._held.get(epoch, [])
        at = bisect_right(ranges, (first, _MAX_OFFSET)) - 1
        return at >= 0 and last <= ranges[at][1]


def _merged(ranges: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """Join sorted ranges that touch or overlap."""
    merged: list[tuple[int, int]] = []
    for first, last in ranges:
        if merged and first <= merged[-1][1] + 1:
            merged[-1] = merged[-1][0], max(merged[-1][1], last)
        else:
            merged.append((first, last))
    return merged
