"""Which remote segments of a partition may go, and up to where its log start rises for it (KIP-405, "Handle expired
remote segments").

Of all finished segments, a chain is drawn through the log's history, each offset counted once: what retention by time
and size goes by. Segments outside of the chain hold nothing that it lacks: their history is another one, or they are
copies of what other segments have. They go too, though not before they have been outside for a while, so that nothing
is lost to a passing misjudgement. What a crash left half copied is found by its age, what it left half deleted at once.

Nothing here believes how far this broker thinks it has copied: a leader that is new does not know yet.

Kafka walks all segments and stops at the first that may stay, counts overlaps twice, and never collects what lies
outside of the history while nothing expires (KAFKA-15479, KAFKA-17062).
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import NamedTuple

from protocol.primitives import Uuid
from storage.tiered.lineage import Lineage
from storage.tiered.segment_metadata import RemoteSegment, SegmentState


class Reason(Enum):
    """Why a segment goes, in the words of a log line."""

    BELOW_LOG_START = "below the log start offset"
    TIME = "older than retention.ms"
    SIZE = "over retention.bytes"
    UNREFERENCED = "no part of the log, or held by other segments"
    ABANDONED = "its copy was never finished"
    INTERRUPTED = "its deletion was begun before"


class Deletion(NamedTuple):
    segment: RemoteSegment
    reason: Reason


class LocalPart(NamedTuple):
    """A segment on this disk; `end_offset` is its last."""

    base_offset: int
    end_offset: int
    size_bytes: int


class Link(NamedTuple):
    """A segment of the chain, and the offsets, both included, for which it is the one."""

    segment: RemoteSegment
    first: int
    last: int

    @property
    def share_bytes(self) -> int:
        """What of the segment counts: an overlap with the link before does not."""
        return _share(self.segment.size_bytes, self.segment.start_offset, self.segment.end_offset, self.first)


@dataclass(frozen=True, slots=True, kw_only=True)
class Tier:
    """What a leader knows when it looks for what may go. Limits of -1 are none.

    `copying` are the ids that this broker copies now; `outside_since_ms` is from the last look. `grace_ms`: so long a
    segment must have been outside of the chain, and a foreign copy under way.
    """

    segments: Sequence[RemoteSegment]
    lineage: Lineage
    log_start_offset: int
    local_start_offset: int
    high_watermark: int
    local: Sequence[LocalPart]
    retention_ms: int
    retention_bytes: int
    now_ms: int
    broker_id: int
    grace_ms: int
    copying: Collection[Uuid] = ()
    outside_since_ms: Mapping[Uuid, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Expiry:
    """What to do: first raise the log start, so that followers learn of it, then delete, in this order.

    `first_offset` is where anything begins that is still kept anywhere. If it lies above `log_start_offset`, what is
    between them is lost.
    """

    log_start_offset: int
    deletions: tuple[Deletion, ...]
    outside_since_ms: Mapping[Uuid, int]
    first_offset: int
    count: int
    size_bytes: int

    @property
    def deletion_bytes(self) -> int:
        return sum(deletion.segment.size_bytes for deletion in self.deletions)


def decide(tier: Tier) -> Expiry:
    """What may go now. Takes time in proportion to the number of segments."""
    links = chain(tier)
    expired = dict(_expired(tier, links))
    log_start = max([tier.log_start_offset, *(link.last + 1 for link in links[: len(expired)])])
    outside = _outside_since_ms(tier, log_start, {link.segment.id.id for link in links})
    reasons = ((segment, _reason(tier, segment, log_start, expired, outside)) for segment in tier.segments)
    deletions = tuple(Deletion(segment, reason) for segment, reason in reasons if reason is not None)
    gone = {deletion.segment.id.id for deletion in deletions}
    return Expiry(
        log_start_offset=log_start,
        deletions=deletions,
        outside_since_ms=outside,
        first_offset=min([tier.local_start_offset, *(s.start_offset for s in tier.segments if s.id.id not in gone)]),
        count=len(tier.segments),
        size_bytes=sum(one.size_bytes for one in tier.segments if one.state is SegmentState.COPY_FINISHED),
    )


def _reason(
    tier: Tier,
    segment: RemoteSegment,
    log_start_offset: int,
    expired: Mapping[Uuid, Reason],
    outside_since_ms: Mapping[Uuid, int],
) -> Reason | None:
    """Why a segment goes; None if it stays, or if this broker is at work on it already."""
    if segment.id.id in tier.copying:
        return None
    if segment.state is SegmentState.DELETE_STARTED:
        return Reason.INTERRUPTED
    if segment.state is SegmentState.COPY_STARTED:
        return Reason.ABANDONED if _is_abandoned(tier, segment) else None
    if segment.end_offset < log_start_offset:
        return expired.get(segment.id.id, Reason.BELOW_LOG_START)
    if segment.id.id in expired:
        return expired[segment.id.id]
    since_ms = outside_since_ms.get(segment.id.id, tier.now_ms)
    is_outside = segment.id.id in outside_since_ms and tier.now_ms - since_ms >= tier.grace_ms
    return Reason.UNREFERENCED if is_outside else None


def _is_abandoned(tier: Tier, segment: RemoteSegment) -> bool:
    """A process that was this broker before is no more; of another one may still come the end of its copy."""
    return segment.broker_id == tier.broker_id or tier.now_ms - segment.event_timestamp_ms >= tier.grace_ms


def _outside_since_ms(tier: Tier, log_start_offset: int, chosen: Collection[Uuid]) -> dict[Uuid, int]:
    """Since when each segment outside of the chain has been there."""
    return {
        segment.id.id: tier.outside_since_ms.get(segment.id.id, tier.now_ms)
        for segment in tier.segments
        if segment.state is SegmentState.COPY_FINISHED
        and segment.end_offset >= log_start_offset
        and segment.id.id not in chosen
        and _can_be_judged(tier, segment)
    }


def chain(tier: Tier) -> list[Link]:
    """As few finished segments as hold all of the log that remote storage has, in order, no offset twice."""
    floor = max(tier.log_start_offset, tier.lineage.start_offset or 0)
    reach = [
        (max(segment.start_offset, floor), tier.lineage.agreed_end(segment), segment)
        for segment in tier.segments
        if segment.state is SegmentState.COPY_FINISHED and segment.end_offset >= floor
    ]
    reach = [one for one in reach if one[1] >= one[0]]
    reach.sort(key=lambda one: (one[0], -one[1], one[2].event_timestamp_ms, one[2].id.id))
    links: list[Link] = []
    end, index = floor - 1, 0
    while index < len(reach):
        if reach[index][0] > end + 1:
            end = reach[index][0] - 1  # nobody has what is between
        best: tuple[int, int, RemoteSegment] | None = None
        while index < len(reach) and reach[index][0] <= end + 1:
            if reach[index][1] > (end if best is None else best[1]):
                best = reach[index]
            index += 1
        if best is not None:
            links.append(Link(best[2], end + 1, best[1]))
            end = best[1]
    return links


def _expired(tier: Tier, links: Sequence[Link]) -> Iterable[tuple[Uuid, Reason]]:
    """The links that outlived their time, or without which there is still enough: a beginning of the chain."""
    oldest_ms = tier.now_ms - tier.retention_ms
    excess = _total_bytes(tier, links) - tier.retention_bytes
    for link in links:
        if link.last >= tier.high_watermark:
            return
        if tier.retention_ms >= 0 and link.segment.max_timestamp_ms < oldest_ms:
            reason = Reason.TIME
        elif tier.retention_bytes >= 0 and excess >= link.share_bytes:
            reason = Reason.SIZE
        else:
            return
        excess -= link.share_bytes
        yield link.segment.id.id, reason


def _total_bytes(tier: Tier, links: Sequence[Link]) -> int:
    """The log's size, wherever it is."""
    next_offset = links[-1].last + 1 if links else 0
    local = (_share(part.size_bytes, part.base_offset, part.end_offset, next_offset) for part in tier.local)
    return sum(link.share_bytes for link in links) + sum(local)


def _share(size_bytes: int, start: int, end: int, first: int) -> int:
    """What of a segment from `start` to `end` lies at or above `first`, were its offsets equally large."""
    if first <= start:
        return size_bytes
    return size_bytes * max(0, end + 1 - first) // (end + 1 - start) if end >= start else 0


def _can_be_judged(tier: Tier, segment: RemoteSegment) -> bool:
    """Whether the history is known from the segment's beginning on, as far as it is part of the log.

    Where leader epochs were lost with a checkpoint, they are known from the first segment on this disk on alone.
    """
    known_from = tier.lineage.start_offset
    return known_from is not None and known_from <= max(segment.start_offset, tier.log_start_offset)
