"""Deletion of remote segments by retention, and of segments that are of no use any more (KIP-405).

    decide -> look for later terms -> raise the log start offset -> store it locally and beside the segments -> wait
    until live followers have it, so that none of them becomes leader with an older one -> look for later terms before
    each segment -> delete it, with its events

A decision is carried out over several runs; a failure leaves the rest to later runs. A decision costs time in
proportion to what has changed and what is deleted; only the first one of a term reads all known segments, in slices.
"""

import asyncio
from collections.abc import Callable, Iterable

from broker.clock import Clock
from broker.logs import EventLog
from broker.metrics.remote_storage import NO_DELETE_LAG, DeleteLagFigures, RetentionUse
from broker.runtime.loop.loop_slices import LoopSlices
from broker.runtime.loop.thread_pool import WorkPool
from broker.runtime.remote_log.layout_tracker import RemoteLayoutTracker
from broker.runtime.remote_log.leadership_term import LeadershipTerm
from broker.runtime.remote_log.log_starts import LogStarts, keep_log_start, kept_log_start
from broker.runtime.remote_log.segments import PASSING_ERRORS, RemoteSegments
from broker.runtime.remote_log.settings import RemoteLogSettings
from broker.runtime.remote_log.term_fence import TermFence
from protocol.ids import BrokerId, Offset
from protocol.lazy_dataclass import lazy_dataclass
from protocol.primitives import Uuid
from storage.log import Log
from storage.tiered.catalog.remote_log_layout import RemoteLogLayout
from storage.tiered.catalog.segment_state import CopyWasFinished
from storage.tiered.errors import RemoteMetadataNotReady, RemoteStorageError
from storage.tiered.lifecycle.copying import lineage_of
from storage.tiered.lifecycle.expiration import (
    DeletionReason,
    ExpirationResult,
    LocalSegmentRange,
    RemoteLogState,
    SegmentDeletion,
    decide_expiration,
    given_up_offsets,
    offset_above_deletions,
    total_bytes,
)
from storage.tiered.segment_metadata import RemoteSegment
from storage.tiered.stores.backoff import Failures

DELETIONS_A_TURN = 10
FOLLOWER_PATIENCE_MS = 30_000
"""Longest wait of a deletion for live followers to learn the log start offset; they fetch at least twice a second."""

_log = EventLog("broker.remote")


@lazy_dataclass(frozen=True, slots=True)
class ExpirationTools:
    """The collaborators that all partitions share.

    `remember_start` writes a log start offset to the local disk; `copying` returns the segments of unfinished attempts.
    """

    segments: RemoteSegments
    pool: WorkPool
    log_starts: LogStarts
    remember_start: Callable[[Log], "asyncio.Future[None]"]
    clock: Clock
    settings: Callable[[], RemoteLogSettings]
    random: Callable[[], float]
    copying: Callable[[], Iterable[Uuid]]
    slices: LoopSlices

    @property
    def fence(self) -> TermFence:
        return TermFence(self.segments.metadata, self.log_starts, self.pool)


class SegmentExpirationTask:
    """The expiration of one partition's remote segments during one leadership term."""

    def __init__(self, term: LeadershipTerm, tools: ExpirationTools, layout: RemoteLayoutTracker) -> None:
        self._term = term
        self._tools = tools
        self._layout = layout
        self._fence = tools.fence
        self._failures = Failures()
        self._is_cut = False
        self._decided_ms = 0.0
        self._due: tuple[SegmentDeletion, ...] = ()
        """The deletions of the last decision, also those that are done."""
        self._spared: set[Uuid] = set()
        """Segments of the last decision that are not deleted, because their copies were finished."""
        term.report_delete_lag(self._delete_lag)
        term.report_retention(self._retention_use)

    async def run_once(self) -> float | None:
        """See RecurringTask: decide what to delete, or delete some of it."""
        if self._term.is_over():
            return None
        settings = self._tools.settings()
        try:
            if not self._term.pending:
                await self._decide()
            if self._must_wait_for_followers():
                return float(settings.backoff.initial_ms)
            await self._delete_some()
        except PASSING_ERRORS as error:
            if not isinstance(error, RemoteMetadataNotReady):
                _log.warning("could not delete expired segments", partition=self._term, reason=error)
            return self._failures.next_delay_ms(settings.backoff, self._tools.random)
        self._failures.clear()
        if self._term.is_over():
            return None
        return 0.0 if self._term.pending or self._is_cut else float(settings.task_interval_ms)

    async def _decide(self) -> None:
        """Decide what to delete, and raise the log start offset accordingly. Raises PASSING_ERRORS."""
        term, tools = self._term, self._tools
        self._is_cut = False
        if not term.may_touch_log() or self._fence.knows_later_term(term):
            return
        await self._restore_epochs()
        began_ms = tools.clock.monotonic_ms()
        layout = await self._layout.settled()
        if layout is None:
            return
        state = self._state(layout)
        expiry = decide_expiration(state, layout)
        took_ms = tools.clock.monotonic_ms() - began_ms
        self._due = expiry.deletions
        self._spared.clear()
        start = await self._start_after(state, expiry)
        if expiry.deletions or start > state.log_start_offset:
            await self._fence.may_delete(term)
        if not term.may_touch_log() or term.is_deposed:
            return
        term.outside_since_ms = dict(expiry.outside_since_ms)
        term.copies_seen = expiry.copies_seen
        self._raise_log_start(start)
        term.figures = term.figures._replace(
            missing_offsets=max(0, expiry.first_offset - start),
            given_up_offsets=given_up_offsets(state.unfinished, start),
            log_metadata_count=expiry.count,
            log_size_bytes=expiry.size_bytes,
            log_size_computation_ms=round(took_ms),
        )
        if await self._store_start(at_once=bool(expiry.deletions)) and not term.is_over():
            term.pending.extend(expiry.deletions)
            self._is_cut = expiry.is_cut and bool(expiry.deletions)
            self._decided_ms = tools.clock.monotonic_ms()

    def _retention_use(self) -> RetentionUse:
        """Return the size of the log beside its limits; remote segments as of the last decision, 0 before the first."""
        log, layout = self._term.partition.log, self._layout.latest
        return RetentionUse(
            0 if layout is None else total_bytes(layout, local_parts(log, layout.next_offset)),
            log.config.total_retention_bytes,
            log.size_bytes,
            log.config.effective_local_retention_bytes,
        )

    async def _restore_epochs(self) -> None:
        """Restore leader epochs that were lost with their file.

        Without them, the local log knows only the epochs of its local records, and nobody can read the remote ones. The
        remote segment that holds the first local record, or the one before, was copied with all earlier epochs.
        """
        term, segments, log = self._term, self._tools.segments, self._term.partition.log
        lineage = lineage_of(log)
        if lineage.start_offset is None or lineage.start_offset <= log.log_start_offset:
            return
        epoch, first = lineage.entries[0]
        candidates = (segments.metadata.segment_for(term.id, epoch, offset) for offset in (first, first - 1))
        segment = next((one for one in candidates if one is not None), None)
        if segment is None:
            return
        try:
            history = await segments.leader_epochs(segment)
        except RemoteStorageError as error:
            _log.warning("could not read lost leader epochs from remote storage", partition=term, reason=error)
            return
        if term.may_touch_log() and log.epochs.restore_below(history):
            log.epochs.truncate_from_start(log.log_start_offset)
            _log.info("restored leader epochs from remote storage", partition=term, segment=segment.id)

    def _state(self, layout: RemoteLogLayout) -> RemoteLogState:
        """Return the state to decide by. Raises RemoteMetadataNotReady."""
        term, log, tools = self._term, self._term.partition.log, self._tools
        config, settings = log.config, tools.settings()
        known = tools.segments.metadata.known(term.id)
        return RemoteLogState(
            leader_epoch=term.epoch,
            unfinished=known.unfinished(),
            count=len(known),
            lineage=lineage_of(log),
            log_start_offset=Offset(log.log_start_offset),
            local_start_offset=Offset(log.local_log_start_offset),
            high_watermark=Offset(log.high_watermark),
            local=local_parts(log, layout.next_offset),
            retention_ms=config.retention_ms if config.is_deleting else -1,
            retention_bytes=config.retention_bytes if config.is_deleting else -1,
            now_ms=tools.clock.now_ms(),
            monotonic_ms=round(tools.clock.monotonic_ms()),
            broker_id=BrokerId(tools.segments.broker_id),
            grace_ms=settings.grace_ms,
            copying=frozenset(tools.copying()),
            outside_since_ms=term.outside_since_ms,
            copies_seen=term.copies_seen,
        )

    # ---- the log start offset

    async def _start_after(self, state: RemoteLogState, expiry: ExpirationResult) -> int:
        """Return the new log start offset: where retention puts it, but not above offsets that are merely missing.

        After a crash a log may have an old log start offset, and the segments above it may have been deleted by another
        leader. But missing offsets may also have lost their metadata, or their metadata may be late, while the objects
        exist: a higher log start offset would delete for good what `ottla remote recover` could bring back. So the
        offset passes only what is known to be given up: up to the log start offset that a leader stored beside the
        segments before it deleted, and over segments whose deletion the metadata has begun, which cannot be undone.
        Other missing offsets stay in the log although they cannot be read: consumers wait, and skip them after a while
        (`locations.py`). The log and a metric report them; an operator recovers them, or gives them up with
        DeleteRecords.
        """
        term = self._term
        start: int = max(expiry.log_start_offset, state.log_start_offset)
        if expiry.first_offset > start:
            kept = await kept_log_start(self._tools.log_starts, self._tools.pool, term.id)
            start = min(offset_above_deletions(state, max(start, kept or 0)), expiry.first_offset)
        missing = expiry.first_offset - start
        if missing > 0 and not term.has_gap:
            _log.error(
                "the first offsets of the log are neither local nor remote: `ottla remote recover --metadata-only`"
                " recovers segments without metadata, DeleteRecords gives the offsets up",
                partition=term,
                log_start=start,
                first=expiry.first_offset,
            )
        term.has_gap = missing > 0
        return start

    def _raise_log_start(self, offset: int) -> None:
        partition = self._term.partition
        before = partition.log.log_start_offset
        if partition.log.maybe_increment_log_start_offset(min(offset, partition.log.high_watermark)):
            _log.info("raised the log start", partition=self._term, before=before, now=partition.log.log_start_offset)
            partition.on_log_start_moved()

    async def _store_start(self, *, at_once: bool) -> bool:
        """Store the log start offset where it survives this process, before segments are deleted.

        Return false if a later leader has stored one.
        """
        term, tools, log = self._term, self._tools, self._term.partition.log
        if at_once:
            await tools.remember_start(log)
        return await keep_log_start(
            tools.log_starts, tools.pool, term.id, term.epoch, Offset(log.log_start_offset), at_once=at_once
        )

    def _must_wait_for_followers(self) -> bool:
        """Whether a live follower does not have the log start offset yet; wait `FOLLOWER_PATIENCE_MS` at most."""
        partition = self._term.partition
        if not self._term.pending or not partition.is_leader:
            return False
        waited_ms = self._tools.clock.monotonic_ms() - self._decided_ms
        return waited_ms < FOLLOWER_PATIENCE_MS and partition.low_watermark() < partition.log.log_start_offset

    # ---- deletion

    async def _delete_some(self) -> None:
        """Delete some of the decided segments. After PASSING_ERRORS the rest is decided again."""
        term = self._term
        try:
            for _ in range(DELETIONS_A_TURN):
                if not term.pending or not await self._fence.may_delete(term):
                    break
                segment, reason = term.pending[0]
                is_done = await self._delete(segment, reason)
                if term.pending:
                    term.pending.popleft()
                if is_done:
                    _log_deletion(segment.id, segment.start_offset, reason)
                else:
                    self._spared.add(segment.id.id)
        except PASSING_ERRORS:
            self._drop_decision()
            raise
        if term.is_deposed:
            self._drop_decision()

    async def _delete(self, segment: RemoteSegment, reason: DeletionReason) -> bool:
        """Delete a segment; return False if its copy was not abandoned, but has been continued or finished."""
        is_abandoned = reason is DeletionReason.ABANDONED
        if is_abandoned and self._has_moved_on(segment):
            return False
        try:
            await self._tools.segments.delete(segment, only_unfinished=is_abandoned)
        except CopyWasFinished:
            _log.info("kept a remote copy that was finished just before its deletion", segment=segment.id)
            return False
        return True

    def _has_moved_on(self, segment: RemoteSegment) -> bool:
        """Whether a copy was continued or finished after the decision that it is abandoned: replicas may rely on it."""
        return segment not in tuple(self._tools.segments.metadata.known(self._term.id).unfinished())

    def _drop_decision(self) -> None:
        self._term.pending.clear()
        self._is_cut = False

    def _delete_lag(self) -> DeleteLagFigures:
        """Return the segments of the last decision that the metadata still have, whether the store is there or not."""
        if self._term.is_deposed or not self._due:
            return NO_DELETE_LAG
        try:
            known = self._tools.segments.metadata.known(self._term.id)
        except RemoteMetadataNotReady:
            return NO_DELETE_LAG
        ids = {each.segment.id.id for each in self._due} - self._spared
        sizes = [found.size_bytes for found in map(known.get, ids) if found is not None]
        return DeleteLagFigures(sum(sizes), len(sizes))


def local_parts(log: Log, offset: int) -> list[LocalSegmentRange]:
    """Return the local segments of a log that reach up to `offset` or beyond."""
    found = list(log.segments.from_offset(offset))
    ends = [*(segment.base_offset for segment in found[1:]), log.log_end_offset]
    return [LocalSegmentRange(each.base_offset, end - 1, each.size) for each, end in zip(found, ends, strict=True)]


def _log_deletion(segment: object, base: int, reason: DeletionReason) -> None:
    _log.info("deleted a remote segment", segment=segment, base=base, reason=reason.value)
