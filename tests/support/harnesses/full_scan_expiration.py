"""Expiration by a full scan of all segments: reference model of `storage.tiered.lifecycle.expiration`.

`decided` returns the product's decision on the same state, with a layout that was just loaded.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields

from protocol.primitives import Uuid
from storage.tiered.catalog.lineage import Lineage
from storage.tiered.catalog.metadata_cache import RemoteLogMetadataCache
from storage.tiered.catalog.remote_log_layout import RemoteLogLayout
from storage.tiered.catalog.segment_spans import SegmentSpan, share, spans_of
from storage.tiered.lifecycle.expiration import (
    MAX_EXAMINED,
    DeletionReason,
    ExpirationResult,
    LocalSegmentRange,
    RemoteLogState,
    SeenCopy,
    SegmentDeletion,
    decide_expiration,
)
from storage.tiered.segment_metadata import RemoteSegment, SegmentState, SegmentUpdate, TopicIdPartition


@dataclass(frozen=True, slots=True, kw_only=True)
class FullScanState:
    """State of an expiration: `RemoteLogState` with all `segments` instead of a layout."""

    segments: Sequence[RemoteSegment]
    lineage: Lineage
    log_start_offset: int
    local_start_offset: int
    high_watermark: int
    local: Sequence[LocalSegmentRange]
    retention_ms: int
    retention_bytes: int
    now_ms: int
    broker_id: int
    grace_ms: int
    leader_epoch: int = 2**31 - 1
    copying: Collection[Uuid] = ()
    outside_since_ms: Mapping[Uuid, int] = field(default_factory=dict)
    copies_seen: Mapping[Uuid, SeenCopy] = field(default_factory=dict)
    monotonic_ms: int = 10_000_000_000_000

    def spans(self) -> list[SegmentSpan]:
        return spans_of(self.segments, self.lineage, self.log_start_offset)

    def known(self) -> RemoteLogState:
        """Return the state without the layout."""
        same = {each.name: getattr(self, each.name) for each in fields(self) if each.name != "segments"}
        unfinished = [one for one in self.segments if one.state is not SegmentState.COPY_FINISHED]
        return RemoteLogState(unfinished=unfinished, count=len(self.segments), **same)


def learn(cache: RemoteLogMetadataCache, segment: RemoteSegment) -> None:
    """Add a segment in any state to `cache`."""
    last = SegmentUpdate(segment.id, segment.state, segment.event_timestamp_ms, segment.broker_id)
    cache.add(segment.updated(last._replace(state=SegmentState.COPY_STARTED)))
    if segment.state is not SegmentState.COPY_STARTED:
        cache.update(last)


def settled_chain(
    cache: RemoteLogMetadataCache, lineage: Lineage, log_start_offset: int, steps: int = 3
) -> RemoteLogLayout:
    chain = RemoteLogLayout(cache, lineage, log_start_offset)
    while not chain.settle(steps):
        pass
    return chain


def decided(tier: FullScanState, most: int = MAX_EXAMINED) -> ExpirationResult:
    """Return the product's decision."""
    partition = TopicIdPartition(Uuid(bytes(16)), "t", 0)
    cache = RemoteLogMetadataCache(tier.segments[0].id.partition if tier.segments else partition)
    for segment in tier.segments:
        learn(cache, segment)
    return decide_expiration(tier.known(), settled_chain(cache, tier.lineage, tier.log_start_offset), most)


def decided_by_scan(tier: FullScanState) -> ExpirationResult:
    """Return the decision by a full scan."""
    links = tier.spans()
    over = list(_expired(tier, links))
    needed = {link.segment.id.id for link in links[len(over) :]}
    expired = {id: reason for id, reason in over if id not in needed}
    log_start = max([tier.log_start_offset, *(link.last + 1 for link in links[: len(over)])])
    outside = _outside_since_ms(tier, log_start, {link.segment.id.id for link in links})
    reasons = ((segment, _reason(tier, segment, log_start, expired, outside)) for segment in tier.segments)
    deletions = tuple(SegmentDeletion(segment, reason) for segment, reason in reasons if reason is not None)
    gone = {deletion.segment.id.id for deletion in deletions}
    return ExpirationResult(
        log_start_offset=log_start,
        deletions=deletions,
        outside_since_ms=outside,
        copies_seen={
            one.id.id: tier.copies_seen.get(one.id.id, SeenCopy(one.event_timestamp_ms, tier.monotonic_ms))
            for one in tier.segments
            if one.state is SegmentState.COPY_STARTED and one.broker_id != tier.broker_id
        },
        first_offset=min([tier.local_start_offset, *(s.start_offset for s in tier.segments if s.id.id not in gone)]),
        count=len(tier.segments),
        size_bytes=sum(one.size_bytes for one in tier.segments if one.state is SegmentState.COPY_FINISHED),
    )


def _expired(tier: FullScanState, links: Sequence[SegmentSpan]) -> Iterable[tuple[Uuid, DeletionReason]]:
    oldest_ms = tier.now_ms - tier.retention_ms
    excess = _total_bytes(tier, links) - tier.retention_bytes
    for link in links:
        if link.last >= tier.high_watermark or link.segment.leader_epochs[-1].epoch > tier.leader_epoch:
            return
        if tier.retention_ms >= 0 and link.segment.max_timestamp_ms < oldest_ms:
            reason = DeletionReason.TIME
        elif tier.retention_bytes >= 0 and excess >= link.share_bytes:
            reason = DeletionReason.SIZE
        else:
            return
        excess -= link.share_bytes
        yield link.segment.id.id, reason


def _total_bytes(tier: FullScanState, links: Sequence[SegmentSpan]) -> int:
    next_offset = links[-1].last + 1 if links else 0
    local = (share(part.size_bytes, part.base_offset, part.end_offset, next_offset) for part in tier.local)
    return sum(link.share_bytes for link in links) + sum(local)


def _reason(
    tier: FullScanState,
    segment: RemoteSegment,
    log_start_offset: int,
    expired: Mapping[Uuid, DeletionReason],
    outside_since_ms: Mapping[Uuid, int],
) -> DeletionReason | None:
    if segment.id.id in tier.copying or segment.leader_epochs[-1].epoch > tier.leader_epoch:
        return None
    if segment.state is SegmentState.DELETE_STARTED:
        return DeletionReason.INTERRUPTED
    if segment.state is SegmentState.COPY_STARTED:
        is_ours = segment.broker_id == tier.broker_id
        age_ms = tier.now_ms - segment.event_timestamp_ms
        seen = tier.copies_seen.get(segment.id.id)
        seen_ms = 0 if seen is None else tier.monotonic_ms - seen.since_ms
        is_old = seen_ms >= tier.grace_ms * (2 if 0 <= age_ms < tier.grace_ms else 1)
        return DeletionReason.ABANDONED if is_ours or is_old else None
    if segment.end_offset < log_start_offset:
        return expired.get(segment.id.id, DeletionReason.BELOW_LOG_START)
    if segment.id.id in expired:
        return expired[segment.id.id]
    since_ms = outside_since_ms.get(segment.id.id)
    is_old = since_ms is not None and tier.monotonic_ms - since_ms >= tier.grace_ms
    return DeletionReason.UNREFERENCED if is_old else None


def _outside_since_ms(tier: FullScanState, log_start_offset: int, chosen: Collection[Uuid]) -> dict[Uuid, int]:
    known_from = tier.lineage.start_offset
    if known_from is None and 0 < tier.log_start_offset == tier.lineage.end_offset:
        known_from = tier.log_start_offset  # no offset belongs to the log
    return {
        segment.id.id: tier.outside_since_ms.get(segment.id.id, tier.monotonic_ms)
        for segment in tier.segments
        if segment.state is SegmentState.COPY_FINISHED
        and segment.end_offset >= log_start_offset
        and segment.id.id not in chosen
        and known_from is not None
        and known_from <= max(segment.start_offset, tier.log_start_offset)
    }
