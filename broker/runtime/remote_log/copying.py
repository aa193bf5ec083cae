"""Copies the closed segments of one partition to remote storage, one a turn (KIP-405, "Copy log segments").

    COPY_STARTED, waited for -> the upload -> COPY_FINISHED, waited for -> the segment may leave this disk

An attempt has an id of its own. If its upload or an event fails in a way that may pass, the same attempt goes on later
where it stood: an outage leaves one record behind and not one a minute. If the upload fails for good, or the attempt is
not over within `copy_lease_ms`, after which others may collect it, what it left is deleted and the next attempt begins
anew. A copy that is under way when leadership is lost is finished: what it copied is committed, so it holds for the
next leader too. If the process ends, what was begun is found by its age, or by this broker when it leads again
(`storage.tiered.lifecycle.expiration`).
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field

from broker.clock import Clock
from broker.logs import EventLog
from broker.metrics.remote_storage import RemoteStorageMetrics
from broker.runtime.loop.throttle import SHORTEST_PAUSE_MS
from broker.runtime.remote_log.leadership_term import LeadershipTerm, learn_remote_end
from broker.runtime.remote_log.segments import PASSING_ERRORS, RemoteSegments
from broker.runtime.remote_log.settings import RemoteLogSettings
from protocol.primitives import Uuid
from storage.files import FileSystem
from storage.segment import LogSegment
from storage.tiered.bucket.reconcile import copy_lease_ms
from storage.tiered.errors import (
    InvalidSegmentTransition,
    RemoteMetadataNotReady,
    RemoteStorageError,
    RetriableRemoteStorageError,
)
from storage.tiered.lifecycle.copying import (
    ClosedSegment,
    CopyLag,
    backlog_of,
    closed,
    describe,
    files_of,
    may_be_copied,
)
from storage.tiered.remote_storage import SegmentFiles
from storage.tiered.segment_metadata import RemoteSegment, RemoteSegmentId, TopicIdPartition
from storage.tiered.stores.backoff import Failures
from storage.tiered.stores.byte_rate import TokenBucket

_log = EventLog("broker.remote")


class CopyQuota:
    """`remote.log.manager.copy.max.bytes.per.second` over all partitions (KIP-956)."""

    def __init__(self, clock: Clock, settings: Callable[[], RemoteLogSettings], metrics: RemoteStorageMetrics) -> None:
        self._clock = clock
        self._settings = settings
        self._metrics = metrics
        now = settings()
        self._bucket = TokenBucket(now.copy_bytes_per_second, now.copy_quota_window_ms, clock.monotonic_ms())

    def delay_ms(self) -> float:
        """How long a copy has to wait, 0 for not at all."""
        now_ms, rate = self._clock.monotonic_ms(), self._settings().copy_bytes_per_second
        if rate != self._bucket.bytes_per_second:
            self._bucket.change(rate, now_ms)
        delay_ms = self._bucket.delay_ms(now_ms)
        if delay_ms:
            delay_ms = max(delay_ms, SHORTEST_PAUSE_MS)
            self._metrics.copy_quota.waited(delay_ms)
        return delay_ms

    def take(self, size_bytes: int) -> None:
        self._bucket.take(size_bytes, self._clock.monotonic_ms())
        self._metrics.copy_quota.used(size_bytes)


@dataclass(slots=True)
class CopyAttempt:
    """One copy of one segment, and how far it has come."""

    local: LogSegment
    segment: RemoteSegment
    files: SegmentFiles
    began_ms: float
    is_announced: bool = False
    is_uploaded: bool = False
    custom_metadata: bytes | None = None


class CopyTooOld(RemoteStorageError):
    """An attempt was begun so long ago that others may take it for abandoned, and collect what it uploaded."""


class CustomMetadataTooLarge(RemoteStorageError):
    """Remote storage returned more than `remote.log.metadata.custom.metadata.max.bytes`."""


@dataclass(frozen=True, slots=True)
class CopyTools:
    """What all partitions share. `copying` has the attempts that are not over, one for a partition at most: they must
    not be collected.
    """

    fs: FileSystem
    segments: RemoteSegments
    quota: CopyQuota
    clock: Clock
    settings: Callable[[], RemoteLogSettings]
    new_id: Callable[[], Uuid]
    random: Callable[[], float]
    copying: dict[TopicIdPartition, Uuid] = field(default_factory=dict)


class SegmentCopyTask:
    """The turns of one term of a leader. When the term is over it must have one more, to leave in good order; then
    `on_over` is called, perhaps twice.
    """

    def __init__(self, term: LeadershipTerm, tools: CopyTools, on_over: Callable[[LeadershipTerm], None]) -> None:
        self._term = term
        self._tools = tools
        self._on_over = on_over
        self._failures = Failures()
        self._attempt: CopyAttempt | None = None
        self._is_seeded = False

    async def run_once(self) -> float | None:
        """See RecurringTask: copies one segment, or goes on with one."""
        delay_ms = await self._attempt_one()
        if self._term.is_over():
            self._on_over(self._term)
        return delay_ms

    async def _attempt_one(self) -> float | None:
        try:
            delay_ms = await self._step()
        except (*PASSING_ERRORS, OSError) as error:
            return self._after_failure(error)
        except asyncio.CancelledError:
            self._let_go()
            raise
        self._failures.clear()
        return delay_ms

    def _after_failure(self, error: Exception) -> float | None:
        delay_ms = self._failures.next_delay_ms(self._tools.settings().backoff, self._tools.random)
        if not isinstance(error, RemoteMetadataNotReady):
            _log.warning("could not copy a segment", partition=self._term, reason=error, failures=self._failures.count)
        if self._term.is_over():
            self._let_go()
            return None
        return delay_ms

    async def _step(self) -> float | None:
        term = self._term
        if self._attempt is not None and (term.is_over() or not self._is_there(self._attempt)):
            await self._leave(self._attempt)
        if term.is_over() or term.is_blocked or not term.partition.log.is_copied_to_tier:
            return None
        if self._attempt is None:
            wait_ms = self._begin()
            if wait_ms is not None:
                return wait_ms
        assert self._attempt is not None
        await self._go_on(self._attempt)
        return None if term.is_over() else 0.0

    # ---- what is next

    def _begin(self) -> float | None:
        """Begins an attempt; if there is none to begin, how long to wait. Raises RemoteMetadataNotReady, OSError."""
        term, tools = self._term, self._tools
        interval_ms = float(tools.settings().task_interval_ms)
        if not term.may_touch_log():
            return interval_ms
        if term.id in tools.copying:
            return float(tools.settings().backoff.initial_ms)  # the last of an earlier term
        log = term.partition.log
        if not self._is_seeded:
            learn_remote_end(term, tools.segments.metadata)
            self._is_seeded = True
        backlog = backlog_of(log, log.highest_remote_offset)
        lag = {"copy_lag_bytes": backlog.size_bytes, "copy_lag_segments": len(backlog.segments)}
        term.figures = term.figures._replace(**lag)
        if not backlog.segments:
            return interval_ms
        facts = closed(log, backlog.segments[0], backlog)
        if not may_be_copied(facts, log.last_stable_offset, CopyLag.of(log.config), tools.clock.now_ms()):
            return interval_ms
        if throttled_ms := tools.quota.delay_ms():
            return throttled_ms
        self._start(backlog.segments[0], facts)
        return None

    def _start(self, local: LogSegment, facts: ClosedSegment) -> None:
        term, tools = self._term, self._tools
        segment = describe(
            term.partition.log,
            local,
            facts,
            RemoteSegmentId(term.id, tools.new_id()),
            broker_id=tools.segments.broker_id,
            now_ms=tools.clock.now_ms(),
        )
        tools.quota.take(facts.size_bytes)
        tools.copying[term.id] = segment.id.id
        self._attempt = CopyAttempt(
            local, segment, files_of(tools.fs, term.partition.log, local, facts), tools.clock.monotonic_ms()
        )

    def _is_there(self, attempt: CopyAttempt) -> bool:
        """Whether the segment is still on this disk: deleted records may have taken it along."""
        return self._term.partition.log.segments.floor(attempt.segment.start_offset) is attempt.local

    # ---- one attempt

    async def _go_on(self, attempt: CopyAttempt) -> None:
        """From where it stands to its end. Errors that may pass leave it as it is."""
        try:
            await self._advance(attempt)
        except (RetriableRemoteStorageError, RemoteMetadataNotReady, TimeoutError):
            raise
        except InvalidSegmentTransition:
            self._let_go()  # collected by another leader: what was uploaded since must go too
            await self._tools.segments.discard(attempt.segment)
            raise
        except RemoteStorageError:
            await self._leave(attempt)
            raise
        self._let_go()
        if not self._term.is_over():
            self._term.partition.log.highest_remote_offset = attempt.segment.end_offset
        _log.info("copied a segment", partition=self._term, segment=attempt.segment.id, base=attempt.local.base_offset)

    async def _advance(self, attempt: CopyAttempt) -> None:
        segments = self._tools.segments
        self._check_age(attempt)
        if not attempt.is_announced:
            await segments.announce(attempt.segment)
            attempt.is_announced = True
        if not attempt.is_uploaded:
            attempt.custom_metadata = await segments.upload(attempt.segment, attempt.files)
            self._check_size(attempt.custom_metadata or b"")
            attempt.is_uploaded = True
        self._check_age(attempt)
        await segments.finish(attempt.segment, attempt.custom_metadata)

    def _is_too_old(self, attempt: CopyAttempt) -> bool:
        """By the wall clock, as others judge, and by one that nobody sets."""
        clock = self._tools.clock
        told_ms = clock.now_ms() - attempt.segment.event_timestamp_ms
        return max(told_ms, clock.monotonic_ms() - attempt.began_ms) >= copy_lease_ms(self._tools.settings().grace_ms)

    def _check_age(self, attempt: CopyAttempt) -> None:
        if self._is_too_old(attempt):
            raise CopyTooOld(f"the copy of {attempt.segment.id} was begun too long ago to be finished")

    def _check_size(self, custom_metadata: bytes) -> None:
        limit = self._tools.settings().custom_metadata_max_bytes
        if len(custom_metadata) > limit:
            self._term.is_blocked = True
            raise CustomMetadataTooLarge(
                f"remote storage attaches {len(custom_metadata)} bytes to a segment, and "
                f"remote.log.metadata.custom.metadata.max.bytes is {limit}: nothing more is copied of {self._term} "
                "until another broker leads it or this one restarts"
            )

    async def _leave(self, attempt: CopyAttempt) -> None:
        """Nothing of it is to remain, unless all but the last word is said. What fails here is collected later."""
        try:
            if attempt.is_uploaded and not self._is_too_old(attempt):
                await self._tools.segments.finish(attempt.segment, attempt.custom_metadata)
            else:
                await self._tools.segments.delete(attempt.segment)
        finally:
            self._let_go()

    def _let_go(self) -> None:
        """The attempt is over, or nobody goes on with it: from now on it may be collected."""
        if self._attempt is not None:
            self._tools.copying.pop(self._term.id, None)
            self._attempt = None
