"""Expiration of remote segments: the segments to delete and the resulting log start offset (KIP-405, "Handle expired
remote segments").

The finished segments form a layout along the log's history that counts each offset once (`segment_spans.py`); retention
by time and size applies to it. Segments outside of the layout hold no offset that it lacks: they belong to another
history, or duplicate other segments. They are deleted after they have been outside for a grace time, so that a passing
misjudgement loses nothing. Interrupted deletions are resumed at once.

A copy of another broker is abandoned after the leader has seen it without any event for the grace time, by its own
monotonic clock: the copier's lease ends earlier, by the copier's monotonic clock. The age by the two wall clocks alone
would take a running copy for an old one after a step. That age can only delay the deletion, by the grace time at most.

A decision takes time in proportion to the segments to delete, not to all segments: the layout is maintained elsewhere
(`remote_log_layout.py`). If there are many, one decision covers some of them, and the next one more.

Decisions do not use the broker's copied offset, because a new leader does not know it yet.

Kafka walks all segments and stops at the first that may stay, counts overlaps twice, and never collects segments
outside of the history while nothing expires (KAFKA-15479, KAFKA-17062).

A segment with records of a later leader epoch than the deciding leader's is never judged: it proves that the leader was
deposed, and what looks unreferenced or beyond the end of the log from here is the successor's log.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import field
from enum import Enum
from itertools import islice
from typing import Final, NamedTuple

from protocol.ids import BrokerId, LeaderEpoch, Offset
from protocol.lazy_dataclass import lazy_dataclass
from protocol.primitives import Uuid
from storage.tiered.catalog.lineage import Lineage
from storage.tiered.catalog.remote_log_layout import RemoteLogLayout
from storage.tiered.catalog.segment_spans import SegmentSpan, share
from storage.tiered.lifecycle.later_terms import is_of_later_term
from storage.tiered.segment_metadata import RemoteSegment, SegmentState

MAX_EXAMINED: Final = 500
"""Maximum number of expired spans, and of segments outside of the layout, per decision; about 5 microseconds each."""


class DeletionReason(Enum):
    """Reason for deleting a segment, as logged."""

    BELOW_LOG_START = "below the log start offset"
    TIME = "older than retention.ms"
    SIZE = "over retention.bytes"
    UNREFERENCED = "no part of the log, or held by other segments"
    ABANDONED = "its copy was never finished"
    INTERRUPTED = "its deletion was begun before"


class SegmentDeletion(NamedTuple):
    segment: RemoteSegment
    reason: DeletionReason


class SeenCopy(NamedTuple):
    """A copy of another broker that the leader has seen without a new event since `since_ms`."""

    event_timestamp_ms: int
    since_ms: int


class LocalSegmentRange(NamedTuple):
    """A segment on the local disk; `end_offset` is its last offset."""

    base_offset: int
    end_offset: int
    size_bytes: int


@lazy_dataclass(frozen=True, slots=True, kw_only=True)
class RemoteLogState:
    """Inputs of a decision. Limits of -1 are disabled.

    `unfinished` are the unreadable segments by start offset; `count` is the number of all segments. `local` are the
    local segments that reach above the layout. `copying` are ids that this broker copies now; `outside_since_ms` is the
    result of the last decision, and so is `copies_seen`. `monotonic_ms` belongs to the leader's monotonic clock, and so
    do the times in these two. `grace_ms`: minimum time outside of the layout, and minimum age of another broker's copy.
    `leader_epoch` is the deciding leader's.
    """

    leader_epoch: LeaderEpoch
    unfinished: Sequence[RemoteSegment]
    count: int
    lineage: Lineage
    log_start_offset: Offset
    local_start_offset: Offset
    high_watermark: Offset
    local: Sequence[LocalSegmentRange]
    retention_ms: int
    retention_bytes: int
    now_ms: int
    monotonic_ms: int
    broker_id: BrokerId
    grace_ms: int
    copying: Collection[Uuid] = ()
    outside_since_ms: Mapping[Uuid, int] = field(default_factory=dict)
    copies_seen: Mapping[Uuid, SeenCopy] = field(default_factory=dict)


@lazy_dataclass(frozen=True, slots=True, kw_only=True)
class ExpirationResult:
    """Decision: raise the log start offset first, so that followers learn it, then delete the segments in this order.

    `first_offset` is the lowest offset that is still stored anywhere. If it is above `log_start_offset`, the offsets
    between are lost. `is_cut`: another decision may delete more.
    """

    log_start_offset: int
    deletions: tuple[SegmentDeletion, ...]
    outside_since_ms: Mapping[Uuid, int]
    copies_seen: Mapping[Uuid, SeenCopy]
    first_offset: int
    count: int
    size_bytes: int
    is_cut: bool = False


class _Over(NamedTuple):
    """An expired span at the beginning of the layout."""

    row: int
    span: SegmentSpan
    reason: DeletionReason


def decide_expiration(state: RemoteLogState, layout: RemoteLogLayout, most: int = MAX_EXAMINED) -> ExpirationResult:
    """Decide what to delete now. `layout` is settled and of the same log; its order of segments outside changes."""
    over = list(islice(_over(state, layout), most))
    log_start = max([state.log_start_offset, *(each.span.last + 1 for each in over)])
    expired = {each.span.segment: each.reason for each in over if not layout.has_span(each.row, len(over))}
    examined = layout.next_outside(most)
    outside_since_ms = _outside_since_ms(state, log_start, examined.values())
    deletions = tuple(_deletions(state, log_start, expired, examined.values(), outside_since_ms))
    gone = {deletion.segment.id.id for deletion in deletions}
    is_cut = len(examined) < len(layout.outside)
    if is_cut:
        outside_since_ms = _with_unexamined(state, examined.values(), outside_since_ms)
    kept = [each for each in (*expired, *state.unfinished) if each.id.id not in gone and not each.is_given_up_mark]
    rest = layout.span(len(over))
    return ExpirationResult(
        log_start_offset=log_start,
        deletions=deletions,
        outside_since_ms=outside_since_ms,
        copies_seen=dict(_copies_seen(state)),
        first_offset=min(
            [
                state.local_start_offset,
                *(each.start_offset for each in kept),
                *_starts_outside(layout, {row for row, segment in examined.items() if segment.id.id in gone}),
                *([] if rest is None else [rest.segment.start_offset]),
            ]
        ),
        count=state.count,
        size_bytes=layout.finished_bytes,
        is_cut=is_cut or len(over) == most,
    )


def total_bytes(layout: RemoteLogLayout, local: Iterable[LocalSegmentRange]) -> int:
    """Return the size of the log, local and remote; each offset counts once."""
    above = (share(part.size_bytes, part.base_offset, part.end_offset, layout.next_offset) for part in local)
    return layout.size_bytes + sum(above)


def given_up_offsets(unfinished: Iterable[RemoteSegment], log_start_offset: int) -> int:
    """Return the number of offsets from `log_start_offset` on that an operator gave up; each counts once."""
    count, next_offset = 0, log_start_offset
    for mark in sorted((each for each in unfinished if each.is_given_up_mark), key=lambda each: each.start_offset):
        count += max(0, mark.end_offset + 1 - max(next_offset, mark.start_offset))
        next_offset = max(next_offset, mark.end_offset + 1)
    return count


def offset_above_deletions(state: RemoteLogState, log_start_offset: int) -> int:
    """Return the log start offset after all interrupted deletions, from `log_start_offset` on."""
    doomed = [
        segment
        for segment in state.unfinished
        if segment.state is SegmentState.DELETE_STARTED and state.lineage.agreed_end(segment) == segment.end_offset
    ]
    for segment in sorted(doomed, key=lambda each: each.start_offset):
        if segment.start_offset <= log_start_offset:
            log_start_offset = max(log_start_offset, segment.end_offset + 1)
    return log_start_offset


def _deletions(
    state: RemoteLogState,
    log_start_offset: int,
    expired: Mapping[RemoteSegment, DeletionReason],
    outside: Iterable[RemoteSegment],
    outside_since_ms: Mapping[Uuid, int],
) -> Iterator[SegmentDeletion]:
    reasons = {segment.id.id: reason for segment, reason in expired.items()}
    for segment in sorted(
        [*expired, *outside, *state.unfinished], key=lambda each: (each.start_offset, each.end_offset)
    ):
        reason = _reason(state, segment, log_start_offset, reasons, outside_since_ms)
        if reason is not None:
            yield SegmentDeletion(segment, reason)


def _reason(
    state: RemoteLogState,
    segment: RemoteSegment,
    log_start_offset: int,
    expired: Mapping[Uuid, DeletionReason],
    outside_since_ms: Mapping[Uuid, int],
) -> DeletionReason | None:
    """Return the reason to delete a segment; None if it stays or this broker is processing it."""
    if segment.id.id in state.copying or is_of_later_term(segment, state.leader_epoch):
        return None
    if segment.state is SegmentState.DELETE_STARTED:
        is_needed = segment.is_given_up_mark and segment.end_offset >= log_start_offset
        return None if is_needed else DeletionReason.INTERRUPTED
    if segment.state is SegmentState.COPY_STARTED:
        return DeletionReason.ABANDONED if _is_abandoned(state, segment) else None
    if segment.end_offset < log_start_offset:
        return expired.get(segment.id.id, DeletionReason.BELOW_LOG_START)
    if segment.id.id in expired:
        return expired[segment.id.id]
    since_ms = outside_since_ms.get(segment.id.id, state.monotonic_ms)
    is_outside = segment.id.id in outside_since_ms and state.monotonic_ms - since_ms >= state.grace_ms
    return DeletionReason.UNREFERENCED if is_outside else None


def _is_abandoned(state: RemoteLogState, segment: RemoteSegment) -> bool:
    """Whether a copy is abandoned: by a former process of this broker, or by another broker after the grace time."""
    if segment.broker_id == state.broker_id:
        return True
    is_young = 0 <= state.now_ms - segment.event_timestamp_ms < state.grace_ms
    seen_ms = state.monotonic_ms - _seen(state, segment).since_ms
    return seen_ms >= (2 * state.grace_ms if is_young else state.grace_ms)


def _seen(state: RemoteLogState, segment: RemoteSegment) -> SeenCopy:
    """Return since when a copy has had its last event; a new event is a new observation."""
    seen = state.copies_seen.get(segment.id.id)
    if seen is not None and seen.event_timestamp_ms == segment.event_timestamp_ms:
        return seen
    return SeenCopy(segment.event_timestamp_ms, state.monotonic_ms)


def _copies_seen(state: RemoteLogState) -> Iterator[tuple[Uuid, SeenCopy]]:
    for segment in state.unfinished:
        if segment.state is SegmentState.COPY_STARTED and segment.broker_id != state.broker_id:
            yield segment.id.id, _seen(state, segment)


def _outside_since_ms(
    state: RemoteLogState, log_start_offset: int, outside: Iterable[RemoteSegment]
) -> dict[Uuid, int]:
    """Return since when each segment has been outside of the layout."""
    return {
        segment.id.id: state.outside_since_ms.get(segment.id.id, state.monotonic_ms)
        for segment in outside
        if segment.end_offset >= log_start_offset and _can_be_judged(state, segment)
    }


def _with_unexamined(
    state: RemoteLogState, examined: Iterable[RemoteSegment], outside_since_ms: Mapping[Uuid, int]
) -> dict[Uuid, int]:
    """Add the known times of segments that this decision did not examine."""
    again = {segment.id.id for segment in examined}
    known = {id: since_ms for id, since_ms in state.outside_since_ms.items() if id not in again}
    return {**known, **outside_since_ms}


def _starts_outside(layout: RemoteLogLayout, gone: Collection[int]) -> Iterator[int]:
    """Yield the start offsets of segments outside of the layout, without the deleted rows."""
    return (start for row, start in layout.outside.items() if row not in gone)


def _over(state: RemoteLogState, layout: RemoteLogLayout) -> Iterator[_Over]:
    """Yield the expired spans: beyond retention by time or size, at the beginning of the layout."""
    oldest_ms = state.now_ms - state.retention_ms
    excess = total_bytes(layout, state.local) - state.retention_bytes
    for row, span in layout.spans():
        if span.last >= state.high_watermark or is_of_later_term(span.segment, state.leader_epoch):
            return
        if state.retention_ms >= 0 and span.segment.max_timestamp_ms < oldest_ms:
            reason = DeletionReason.TIME
        elif state.retention_bytes >= 0 and excess >= span.share_bytes:
            reason = DeletionReason.SIZE
        else:
            return
        excess -= span.share_bytes
        yield _Over(row, span, reason)


def _can_be_judged(state: RemoteLogState, segment: RemoteSegment) -> bool:
    """Whether the history covers the segment from its start, as far as it belongs to the log.

    If leader epochs were lost with a checkpoint, they are known only from the first local segment on. An empty log
    contains no segment, whatever its history; but a log at offset 0 may be on a disk that was lost.
    """
    known_from = state.lineage.start_offset
    if known_from is None:
        return 0 < state.log_start_offset == state.lineage.end_offset
    return known_from <= max(segment.start_offset, state.log_start_offset)
