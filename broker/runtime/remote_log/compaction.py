"""Compaction of the remote log of one partition, one segment per run (rules: `…lifecycle.remote_compaction`).

    survey: is it dirty enough? -> map the keys, segment by segment -> for each group of segments: rewrite it locally,
    publish the new segment, delete the replaced ones

A node compacts one partition at a time, since the key map takes memory (log.cleaner.dedupe.buffer.size), at the rate of
log.cleaner.io.max.bytes.per.second. A retriable error leaves the pass as it is. Any other error and the end of the
term end the pass: published segments stay, unfinished ones are collected like unfinished copies.
"""

import asyncio
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import field
from functools import partial
from itertools import takewhile

from broker.clock import Clock
from broker.logs import EventLog
from broker.metrics.remote_storage import RemoteStorageMetrics
from broker.runtime.loop.thread_pool import PoolFull, WorkPool
from broker.runtime.loop.throttle import Throttle
from broker.runtime.remote_log.copying import CopyQuota
from broker.runtime.remote_log.layout_tracker import RemoteLayoutTracker
from broker.runtime.remote_log.leadership_term import LeadershipTerm
from broker.runtime.remote_log.segments import PASSING_ERRORS, RemoteSegments, with_storage_errors
from broker.runtime.remote_log.settings import RemoteLogSettings
from broker.runtime.remote_log.term_fence import TermFence
from protocol.lazy_dataclass import lazy_dataclass
from protocol.primitives import Uuid
from storage.compaction.offset_map import OffsetMap
from storage.compaction.rules import LastData, last_data_of
from storage.config import LogConfig
from storage.files import FileSystem
from storage.index.transaction import AbortedTxn
from storage.tiered.catalog.lineage import Lineage
from storage.tiered.errors import (
    CorruptRemoteData,
    InvalidSegmentTransition,
    RemoteMetadataNotReady,
    RemoteStorageError,
    RetriableRemoteStorageError,
)
from storage.tiered.lifecycle.compaction_survey import CollectedSpans, CompactionSurvey
from storage.tiered.lifecycle.copying import lineage_of
from storage.tiered.lifecycle.remote_compaction import (
    LEASE_MS,
    SegmentGroup,
    describe_group,
    final_below,
    group_segments,
    is_current,
    plan,
)
from storage.tiered.lifecycle.segment_rewriting import (
    CompactionPass,
    CompactionPassTools,
    PassCancelled,
    RewrittenSegment,
)
from storage.tiered.remote_storage import RemoteStorageManager
from storage.tiered.segment_metadata import RemoteSegment, RemoteSegmentId, TopicIdPartition
from storage.tiered.stores.backoff import Failures

BUSY_PAUSE_MS = 1_000.0
"""Pause before a partition checks again whether the pass over another partition is over."""
REST_FACTOR = 100
"""Factor by which a partition with unreadable data waits longer: the data will be damaged the next time, too."""
_RETRIABLE = (RetriableRemoteStorageError, RemoteMetadataNotReady, TimeoutError, PoolFull)

_log = EventLog("broker.remote")


class OutdatedRewrite(RemoteStorageError):
    """The rewritten segment does not match the present remote log, or the rewriting took too long."""


@lazy_dataclass(slots=True)
class CompactionTools:
    """The collaborators that all partitions share.

    `compacting` maps partitions to their unfinished new segments, which must not be collected. `active` is the task
    whose pass is in progress.
    """

    fs: FileSystem
    directory: str
    storage: RemoteStorageManager
    segments: RemoteSegments
    pool: WorkPool
    quota: CopyQuota
    throttle: Throttle
    dedupe_buffer_bytes: int
    load_factor: float
    clock: Clock
    settings: Callable[[], RemoteLogSettings]
    new_id: Callable[[], Uuid]
    random: Callable[[], float]
    metrics: RemoteStorageMetrics
    compacting: dict[TopicIdPartition, Uuid] = field(default_factory=dict)
    active: "RemoteCompactionTask | None" = None


@lazy_dataclass(slots=True)
class _Pass:
    """A pass. `groups` yields the segment groups after `group` that are to be rewritten; None until keys are mapped."""

    work: CompactionPass
    groups: Iterator[SegmentGroup] | None = None
    group: SegmentGroup | None = None


class RemoteCompactionTask:
    """The compaction of one partition during one leadership term.

    After the term, the task must run once more, or `stop` be called.
    """

    def __init__(
        self, term: LeadershipTerm, tools: CompactionTools, layout: RemoteLayoutTracker, fence: TermFence
    ) -> None:
        self._term = term
        self._tools = tools
        self._layout = layout
        self._fence = fence
        self._failures = Failures()
        self._pass: _Pass | None = None
        self._is_stopped = False

    def stop(self) -> None:
        """Make work on a thread end soon."""
        self._is_stopped = True

    def _is_wanted(self) -> bool:
        return not (self._is_stopped or self._term.is_over())

    async def run_once(self) -> float | None:
        """See RecurringTask: survey the log, map a segment, or replace a group of segments."""
        try:
            return await self._step()
        except _RETRIABLE as error:
            if not isinstance(error, RemoteMetadataNotReady):
                self._note_failure(error)
            return self._failures.next_delay_ms(self._tools.settings().backoff, self._tools.random)
        except PASSING_ERRORS as error:
            return self._after_failure(error)
        except asyncio.CancelledError:
            self.stop()
            self._close_pass()
            raise

    def _after_failure(self, error: Exception) -> float | None:
        """End the pass; return the milliseconds until the next survey."""
        self._close_pass()
        if isinstance(error, PassCancelled):
            return 0.0
        self._note_failure(error)
        if isinstance(error, CorruptRemoteData):
            return float(self._tools.settings().task_interval_ms * REST_FACTOR)
        return self._failures.next_delay_ms(self._tools.settings().backoff, self._tools.random)

    def _note_failure(self, error: Exception) -> None:
        self._tools.metrics.topic(self._term.id.topic).compaction_errors += 1
        _log.warning("could not compact remote segments", partition=self._term, reason=error)

    async def _step(self) -> float | None:
        if not self._is_wanted():
            self._close_pass()
            return None
        if not self._term.may_touch_log():
            return BUSY_PAUSE_MS
        if self._pass is None:
            return await self._survey()
        now = self._pass
        if now.work.is_mapped and (throttled_ms := self._tools.quota.delay_ms()):
            return throttled_ms
        moved_bytes = now.work.stats.bytes_moved
        await self._advance(now)
        self._failures.clear()
        return self._tools.throttle.pause_ms(now.work.stats.bytes_moved - moved_bytes)

    def _close_pass(self) -> None:
        """End the pass, if there is one, and let other partitions begin theirs."""
        if self._pass is not None:
            self._pass.work.close()
            self._pass = None
        if self._tools.active is self:
            self._tools.active = None

    # ---- the next pass

    async def _survey(self) -> float:
        """Begin a pass if the log is dirty enough. Raises RemoteMetadataNotReady, PoolFull."""
        term, tools = self._term, self._tools
        interval_ms = float(tools.settings().task_interval_ms)
        config = term.partition.log.config
        if not config.is_compacted or config.remote_log_copy_disable or self._fence.knows_later_term(term):
            return interval_ms
        if tools.active is not None:
            return BUSY_PAUSE_MS
        tools.active = self
        try:
            if await self._is_worth_it(config):
                await self._begin(config)
        finally:
            if self._pass is None:
                tools.active = None
        return interval_ms if self._pass is None else 0.0

    async def _is_worth_it(self, config: LogConfig) -> bool:
        survey = CompactionSurvey(config, self._tools.clock.now_ms())
        if await self._layout.walk(survey.step) is None:
            return False
        self._term.figures = self._term.figures._replace(dirty_bytes=survey.dirty_bytes)
        return survey.is_worth_it(config.min_cleanable_dirty_ratio)

    async def _begin(self, config: LogConfig) -> None:
        """Begin a pass; work proportional to the remote log runs on the pool or in slices."""
        log, tools = self._term.partition.log, self._tools
        spans = CollectedSpans(self._term.id)
        if await self._layout.walk(spans.step) is None:
            return
        now = await tools.pool.submit(
            partial(
                self._prepared,
                spans,
                lineage_of(log),
                config,
                [txn for segment in log.segments for txn in segment.txn_index.entries],
                last_data_of(log.producers.entries.values()),
            )
        )
        if now is None:
            return
        self._pass = now
        _log.info("compacting the remote part of a log", partition=self._term, first_dirty=now.work.plan.first_dirty,
                  end=now.work.plan.end, dirty_bytes=self._term.figures.dirty_bytes)  # fmt: skip

    def _prepared(
        self,
        spans: CollectedSpans,
        lineage: Lineage,
        config: LogConfig,
        local_aborted: Sequence[AbortedTxn],
        producers: Mapping[int, LastData],
    ) -> _Pass | None:
        """Return a pass, or None if nothing is dirty any more; runs on the pool."""
        tools = self._tools
        found = plan(spans, config, tools.clock.now_ms())
        if found.first_dirty == found.end:
            return None
        return _Pass(
            CompactionPass(
                found,
                lineage,
                config,
                OffsetMap.within(tools.dedupe_buffer_bytes, tools.load_factor),
                CompactionPassTools(tools.fs, tools.directory, tools.storage, self._is_wanted),
                local_aborted=local_aborted,
                producers=producers,
            )
        )

    # ---- a pass

    async def _advance(self, now: _Pass) -> None:
        """Map a segment, or replace a group; the last group ends the pass."""
        work, log = now.work, self._term.partition.log
        if not work.is_mapped:
            await self._tools.pool.submit(partial(with_storage_errors, work.map_next))
            return
        if now.groups is None:
            to = work.compacted_to
            spans = takewhile(lambda span: span.first < to, work.plan.spans)
            now.groups = group_segments(spans, log.config, log.local_log_start_offset)
            now.group = await self._next_group(now.groups)
        if now.group is not None:
            await self._replace(work, now.group)
            now.group = None
            now.group = await self._next_group(now.groups)
        if now.group is None:
            _log.info("compacted the remote part of a log", partition=self._term, to=work.compacted_to,
                      stats=work.stats)  # fmt: skip
            self._close_pass()

    async def _next_group(self, groups: Iterator[SegmentGroup]) -> SegmentGroup | None:
        """Return the next group; runs on the pool, since a group may have very many spans."""
        return await self._tools.pool.submit(partial(next, groups, None))

    async def _replace(self, work: CompactionPass, group: SegmentGroup) -> None:
        """Rewrite a group and publish the result. After PASSING_ERRORS it can be repeated, unless it is outdated."""
        tools = self._tools
        began_ms = tools.clock.monotonic_ms()
        if not is_current(group, work.lineage, tools.segments.metadata):
            raise OutdatedRewrite(f"another broker has compacted {self._term} meanwhile")
        unfinished = tools.segments.metadata.known(self._term.id).unfinished()
        below = final_below(unfinished, group, self._term.partition.log.local_log_start_offset)
        rewrite = partial(work.rewrite, group, now_ms=tools.clock.now_ms(), final_below=below)
        rewritten = await tools.pool.submit(partial(with_storage_errors, rewrite))
        tools.quota.take(rewritten.size_bytes)
        segment = self._described(work, group, rewritten)
        tools.compacting[self._term.id] = segment.id.id
        try:
            await self._publish(work, group, segment, rewritten, began_ms)
        finally:
            tools.compacting.pop(self._term.id, None)
        work.accept()
        meters = tools.metrics.topic(self._term.id.topic)
        meters.compaction_read_bytes += group.size_bytes
        meters.compaction_written_bytes += segment.size_bytes
        await self._delete_replaced(group)

    def _described(self, work: CompactionPass, group: SegmentGroup, rewritten: RewrittenSegment) -> RemoteSegment:
        return describe_group(
            group,
            work.lineage,
            RemoteSegmentId(self._term.id, self._tools.new_id()),
            compacted_to=work.compacted_to,
            size_bytes=rewritten.size_bytes,
            max_timestamp_ms=rewritten.max_timestamp_ms,
            txn_index_empty=rewritten.txn_index_empty,
            broker_id=self._tools.segments.broker_id,
            now_ms=self._tools.clock.now_ms(),
        )

    async def _publish(
        self,
        work: CompactionPass,
        group: SegmentGroup,
        segment: RemoteSegment,
        rewritten: RewrittenSegment,
        began_ms: float,
    ) -> None:
        """Publish a segment, from COPY_STARTED to COPY_FINISHED; delete it after a failure before the last event."""
        segments = self._tools.segments
        await segments.announce(segment)
        try:
            custom_metadata = await segments.upload(segment, rewritten.files)
            if len(custom_metadata or b"") > self._tools.settings().custom_metadata_max_bytes:
                raise RemoteStorageError(f"remote storage attaches {len(custom_metadata or b'')} bytes to a segment")
            await self._check_publishable(work, group, began_ms)
        except PASSING_ERRORS:
            await self._delete(segment)
            raise
        try:
            await segments.finish(segment, custom_metadata)
        except InvalidSegmentTransition:
            await segments.discard(segment)  # collected by another leader, perhaps before the upload ended
            raise

    async def _check_publishable(self, work: CompactionPass, group: SegmentGroup, began_ms: float) -> None:
        if not await self._fence.may_delete(self._term):
            raise OutdatedRewrite(f"another broker leads {self._term} now")
        if self._tools.clock.monotonic_ms() - began_ms > LEASE_MS:
            raise OutdatedRewrite(f"a segment of {self._term} took too long to be rewritten")
        if not is_current(group, work.lineage, self._tools.segments.metadata):
            raise OutdatedRewrite(f"another broker has compacted {self._term} meanwhile")

    async def _delete(self, segment: RemoteSegment) -> None:
        try:
            await self._tools.segments.delete(segment)
        except PASSING_ERRORS as error:
            _log.info("a rewritten segment is left to be collected", segment=segment.id, reason=error)

    async def _delete_replaced(self, group: SegmentGroup) -> None:
        """Delete the replaced segments. Those that remain, after a failure or the end of the term, are collected."""
        for segment in group.replaced:
            try:
                if not await self._fence.may_delete(self._term):
                    return
                await self._tools.segments.delete(segment)
            except PASSING_ERRORS as error:
                _log.info("a replaced segment is left to be collected", segment=segment.id, reason=error)
