"""Which remote segments of a partition may go, and up to where its log start rises for it (KIP-405, "Handle expired
remote segments").

Of all finished segments, a layout is drawn through the log's history, each offset counted once (`segment_spans.py`):
what retention by time and size goes by. Segments outside of the layout hold nothing that it lacks: their history is
another one, or they are copies of what other segments have. They go too, though not before they have been outside for
a while, so that nothing is lost to a passing misjudgement. What a crash left half copied is found by its age, what it
left half deleted at once.

A look takes time in proportion to what goes, not to what is there: the layout is kept up to date elsewhere
(`remote_log_layout.py`). Where much is to go, one look decides on so much of it, and the next one on more.

Nothing here believes how far this broker thinks it has copied: a leader that is new does not know yet.

Kafka walks all segments and stops at the first that may stay, counts overlaps twice, and never collects what lies
outside of the history while nothing expires (KAFKA-15479, KAFKA-17062).
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from itertools import islice
from typing import Final, NamedTuple

from protocol.primitives import Uuid
from storage.tiered.catalog.lineage import Lineage
from storage.tiered.catalog.remote_log_layout import RemoteLogLayout
from storage.tiered.catalog.segment_spans import SegmentSpan, share
from storage.tiered.segment_metadata import RemoteSegment, SegmentState

MAX_EXAMINED: Final = 500
"""Links that may go, and segments outside of the layout, each; some 5 microseconds for one."""


class DeletionReason(Enum):
    """Why a segment goes, in the words of a log line."""

    BELOW_LOG_START = "below the log start offset"
    TIME = "older than retention.ms"
    SIZE = "over retention.bytes"
    UNREFERENCED = "no part of the log, or held by other segments"
    ABANDONED = "its copy was never finished"
    INTERRUPTED = "its deletion was begun before"


class SegmentDeletion(NamedTuple):
    segment: RemoteSegment
    reason: DeletionReason


class LocalSegmentRange(NamedTuple):
    """A segment on this disk; `end_offset` is its last."""

    base_offset: int
    end_offset: int
    size_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoteLogState:
    """What a leader knows when it looks for what may go. Limits of -1 are none.

    `unfinished` are the segments that cannot be read, by start offset; `count` is how many there are of all. `local`
    are those that reach above the layout. `copying` are the ids that this broker copies now; `outside_since_ms` is from
    the last look. `grace_ms`: so long a segment must have been outside of the layout, and a foreign copy under way.
    """

    unfinished: Sequence[RemoteSegment]
    count: int
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
    copying: Collection[Uuid] = ()
    outside_since_ms: Mapping[Uuid, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpirationResult:
    """What to do: first raise the log start, so that followers learn of it, then delete, in this order.

    `first_offset` is where anything begins that is still kept anywhere. If it lies above `log_start_offset`, what is
    between them is lost. `is_cut`: there may be more to decide_expiration.
    """

    log_start_offset: int
    deletions: tuple[SegmentDeletion, ...]
    outside_since_ms: Mapping[Uuid, int]
    first_offset: int
    count: int
    size_bytes: int
    is_cut: bool = False


class _Over(NamedTuple):
    """A span at the beginning of the layout that is not to be kept."""

    row: int
    span: SegmentSpan
    reason: DeletionReason


def decide_expiration(state: RemoteLogState, layout: RemoteLogLayout, most: int = MAX_EXAMINED) -> ExpirationResult:
    """What may go now. `layout` is settled, and of the same log; what is outside of it changes its order."""
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
    kept = [each for each in (*expired, *state.unfinished) if each.id.id not in gone]
    rest = layout.span(len(over))
    return ExpirationResult(
        log_start_offset=log_start,
        deletions=deletions,
        outside_since_ms=outside_since_ms,
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


def offset_above_deletions(state: RemoteLogState, log_start_offset: int) -> int:
    """Where the log begins, from `log_start_offset` on, once the segments are gone whose deletion was begun."""
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
    """Why a segment goes; None if it stays, or if this broker is at work on it already."""
    if segment.id.id in state.copying:
        return None
    if segment.state is SegmentState.DELETE_STARTED:
        return DeletionReason.INTERRUPTED
    if segment.state is SegmentState.COPY_STARTED:
        return DeletionReason.ABANDONED if _is_abandoned(state, segment) else None
    if segment.end_offset < log_start_offset:
        return expired.get(segment.id.id, DeletionReason.BELOW_LOG_START)
    if segment.id.id in expired:
        return expired[segment.id.id]
    since_ms = outside_since_ms.get(segment.id.id, state.now_ms)
    is_outside = segment.id.id in outside_since_ms and state.now_ms - since_ms >= state.grace_ms
    return DeletionReason.UNREFERENCED if is_outside else None


def _is_abandoned(state: RemoteLogState, segment: RemoteSegment) -> bool:
    """A process that was this broker before is no more; of another one may still come the end of its copy."""
    return segment.broker_id == state.broker_id or state.now_ms - segment.event_timestamp_ms >= state.grace_ms


def _outside_since_ms(
    state: RemoteLogState, log_start_offset: int, outside: Iterable[RemoteSegment]
) -> dict[Uuid, int]:
    """Since when each segment outside of the layout has been there."""
    return {
        segment.id.id: state.outside_since_ms.get(segment.id.id, state.now_ms)
        for segment in outside
        if segment.end_offset >= log_start_offset and _can_be_judged(state, segment)
    }


def _with_unexamined(
    state: RemoteLogState, examined: Iterable[RemoteSegment], outside_since_ms: Mapping[Uuid, int]
) -> dict[Uuid, int]:
    """With what is known of those whose turn comes later."""
    again = {segment.id.id for segment in examined}
    known = {id: since_ms for id, since_ms in state.outside_since_ms.items() if id not in again}
    return {**known, **outside_since_ms}


def _starts_outside(layout: RemoteLogLayout, gone: Collection[int]) -> Iterator[int]:
    """Where segments outside of the layout begin, but for the rows that go."""
    return (start for row, start in layout.outside.items() if row not in gone)


def _over(state: RemoteLogState, layout: RemoteLogLayout) -> Iterator[_Over]:
    """The spans that outlived their time, or without which there is still enough: a beginning of the layout."""
    oldest_ms = state.now_ms - state.retention_ms
    excess = _total_bytes(state, layout) - state.retention_bytes
    for row, span in layout.spans():
        if span.last >= state.high_watermark:
            return
        if state.retention_ms >= 0 and span.segment.max_timestamp_ms < oldest_ms:
            reason = DeletionReason.TIME
        elif state.retention_bytes >= 0 and excess >= span.share_bytes:
            reason = DeletionReason.SIZE
        else:
            return
        excess -= span.share_bytes
        yield _Over(row, span, reason)


def _total_bytes(state: RemoteLogState, layout: RemoteLogLayout) -> int:
    """The log's size, wherever it is."""
    local = (share(part.size_bytes, part.base_offset, part.end_offset, layout.next_offset) for part in state.local)
    return layout.size_bytes + sum(local)


def _can_be_judged(state: RemoteLogState, segment: RemoteSegment) -> bool:
    """Whether the history is known from the segment's beginning on, as far as it is part of the log.

    Where leader epochs were lost with a checkpoint, they are known from the first segment on this disk on alone. No
    segment is part of a log that begins where it ends, whatever its history; but at 0 it may be a disk that was lost.
    """
    known_from = state.lineage.start_offset
    if known_from is None:
        return 0 < state.log_start_offset == state.lineage.end_offset
    return known_from <= max(segment.start_offset, state.log_start_offset)
