"""Copying the closed segments of one partition to remote storage, one per run (KIP-405, "Copy log segments").

    COPY_STARTED, acknowledged -> upload -> COPY_FINISHED, acknowledged -> the local segment may be deleted

An attempt has an id of its own, and uploads once (KIP-405: a new id "even when it retries"): a late request of a failed
upload must not touch the objects of a finished one. A failed attempt is deleted under its own id before the next one
begins; an outage leaves one metadata record and not one per minute. Only events are published again for the same
attempt.

An attempt has a lease of `copy_lease_ms`. While bytes move, the attempt publishes COPY_STARTED again, with a new time,
and thereby renews the lease: a segment may take hours over a slow uplink. When the lease is over, the attempt may only
be deleted: other brokers collect it some time later. A copy that is in progress when leadership is lost is finished:
the copied records are committed, so the copy is valid for the next leader. If the process ends, unfinished copies are
found by their age, or by this broker when it leads again (`storage.tiered.lifecycle.expiration`).

A segment that is damaged on the local disk is not copied (`local_check.py`). The partition stays online, as in Kafka
after a checksum error, but copying stops before the segment, and so does local deletion on all replicas: intact ones
keep the records. Another leader copies from its own disk; this one looks again after a while.

An error of the local disk takes the log directory offline, as everywhere; errors of remote storage never do. A file
that is missing because its segment was deleted or its replica moved meanwhile is no error of the disk.
"""

import asyncio
from collections.abc import Callable
from dataclasses import field, replace

from broker.clock import Clock
from broker.logs import EventLog
from broker.metrics.remote_storage import NO_COPY_LAG, CopyBlock, CopyLagFigures, RemoteStorageMetrics
from broker.runtime.loop.throttle import SHORTEST_PAUSE_MS
from broker.runtime.remote_log.copy_bandwidth import PAUSE_MS, CopyBandwidth
from broker.runtime.remote_log.leadership_term import LeadershipTerm, learn_remote_end
from broker.runtime.remote_log.segments import PASSING_ERRORS, RemoteSegments
from broker.runtime.remote_log.settings import RemoteLogSettings
from protocol.lazy_dataclass import lazy_dataclass
from protocol.primitives import Uuid
from storage.files import FileSystem
from storage.log import Log
from storage.segment import LogSegment
from storage.tiered.bucket.reconcile import copy_lease_ms
from storage.tiered.catalog.segment_state import CopyWasFinished
from storage.tiered.errors import (
    CorruptLocalSegment,
    InvalidSegmentTransition,
    LocalDiskError,
    RemoteMetadataNotReady,
    RemoteStorageError,
)
from storage.tiered.lifecycle.copying import (
    Backlog,
    ClosedSegment,
    CopyBacklog,
    CopyLag,
    closed,
    describe,
    files_of,
    may_be_copied,
)
from storage.tiered.remote_storage import SegmentFiles
from storage.tiered.segment_metadata import RemoteSegment, RemoteSegmentId, TopicIdPartition
from storage.tiered.segments.local_check import WatchedFiles
from storage.tiered.stores.backoff import Failures
from storage.tiered.stores.byte_rate import TokenBucket

RENEWALS_PER_LEASE = 4
REST_FACTOR = 100
"""Number of task intervals after which a damaged local segment is read again; its disk will not heal soon."""

_log = EventLog("broker.remote")


class CopyQuota:
    """The rate limit for copies of all partitions (`remote.log.manager.copy.max.bytes.per.second`, KIP-956)."""

    def __init__(self, clock: Clock, settings: Callable[[], RemoteLogSettings], metrics: RemoteStorageMetrics) -> None:
        self._clock = clock
        self._settings = settings
        self._metrics = metrics
        now = settings()
        self._bucket = TokenBucket(now.copy_bytes_per_second, now.copy_quota_window_ms, clock.monotonic_ms())

    def delay_ms(self) -> float:
        """Return the milliseconds that the next copy has to wait; 0 if it may start."""
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


@lazy_dataclass(slots=True)
class CopyAttempt:
    """One copy of one segment, and its progress. `is_failed`: the upload failed, and everything under this id goes.

    `is_doomed`: the metadata have its DELETE_STARTED.
    """

    log: Log
    local: LogSegment
    segment: RemoteSegment
    files: SegmentFiles
    watch: WatchedFiles
    began_ms: float
    """Start of the lease: when COPY_STARTED was last published, by the monotonic clock."""
    renewed_bytes: int = 0
    is_collected: bool = False
    is_announced: bool = False
    is_uploaded: bool = False
    is_failed: bool = False
    is_doomed: bool = False
    custom_metadata: bytes | None = None


class CopyTooOld(RemoteStorageError):
    """The copy's lease is over: other brokers may collect what the attempt uploaded."""


class CustomMetadataTooLarge(RemoteStorageError):
    """Remote storage returned more than `remote.log.metadata.custom.metadata.max.bytes`."""


@lazy_dataclass(frozen=True, slots=True)
class CopyTools:
    """The collaborators that all partitions share.

    `copying` maps partitions to the segments of unfinished attempts, one at most per partition; they must not be
    collected.
    """

    fs: FileSystem
    segments: RemoteSegments
    quota: CopyQuota
    clock: Clock
    settings: Callable[[], RemoteLogSettings]
    new_id: Callable[[], Uuid]
    random: Callable[[], float]
    copying: dict[TopicIdPartition, Uuid] = field(default_factory=dict)
    bandwidth: CopyBandwidth = field(default_factory=CopyBandwidth)

    def copies_at_once(self) -> int:
        """Return the number of copies at once that threads and bandwidth allow."""
        return self.bandwidth.limit(self.clock.monotonic_ms(), self.settings().copier_threads)


class SegmentCopyTask:
    """The copying of one partition during one leadership term.

    The task must run once more after the term, to finish or delete an unfinished copy; it calls `on_over` then, perhaps
    twice.
    """

    def __init__(self, term: LeadershipTerm, tools: CopyTools, on_over: Callable[[LeadershipTerm], None]) -> None:
        self._term = term
        self._tools = tools
        self._on_over = on_over
        self._failures = Failures()
        self._attempt: CopyAttempt | None = None
        self._is_seeded = False
        self._rests_until_ms = 0.0
        self._turned_away_by: CopyBlock | None = None
        self._tracked = CopyBacklog(term.partition.log)
        term.report_copy_lag(self._copy_lag)

    @property
    def blocked_by(self) -> CopyBlock | None:
        """The reason why the next segment is not copied although there is one; None during a copy."""
        if self._copy_lag() == NO_COPY_LAG:
            return None
        if self._term.is_blocked:
            return CopyBlock.CUSTOM_METADATA
        if self._tools.clock.monotonic_ms() < self._rests_until_ms:
            return CopyBlock.DAMAGED_SEGMENT
        if self._attempt is not None and not self._attempt.is_failed:
            return None
        return CopyBlock.STORE if self._failures.count else self._turned_away_by

    async def run_once(self) -> float | None:
        """See RecurringTask: copy one segment, or continue a copy."""
        delay_ms = await self._attempt_one()
        if self._term.is_over():
            self._on_over(self._term)
        return delay_ms

    async def _attempt_one(self) -> float | None:
        try:
            delay_ms = await self._step()
        except PASSING_ERRORS as error:
            return self._after_failure(error)
        except asyncio.CancelledError:
            self._release()
            raise
        self._failures.clear()
        return delay_ms

    def _after_failure(self, error: Exception) -> float | None:
        delay_ms = self._failures.next_delay_ms(self._tools.settings().backoff, self._tools.random)
        if not isinstance(error, RemoteMetadataNotReady):
            _log.warning("could not copy a segment", partition=self._term, reason=error, failures=self._failures.count)
        if self._term.is_over():
            self._release()
            return None
        return delay_ms

    async def _step(self) -> float | None:
        term = self._term
        if self._attempt is not None and (term.is_over() or not self._is_local(self._attempt)):
            await self._close(self._attempt)
        if self._attempt is not None and self._attempt.is_failed:
            await self._delete(self._attempt)
        if term.is_over() or term.is_blocked or not term.partition.log.is_copied_to_remote:
            return None
        if self._attempt is None:
            wait_ms = self._begin_on_disk(term.partition.log)
            if wait_ms is not None:
                return wait_ms
        assert self._attempt is not None
        await self._run(self._attempt)
        return None if term.is_over() else 0.0

    # ---- the next segment

    def _begin_on_disk(self, log: Log) -> float | None:
        """Begin as `_begin`; an error of the disk takes the log directory offline."""
        try:
            return self._begin()
        except OSError as error:
            self._term.partition.offline(log.fail(error))
            return float(self._tools.settings().task_interval_ms)

    def _begin(self) -> float | None:
        """Begin an attempt, or return the milliseconds to wait for one. Raises RemoteMetadataNotReady, OSError."""
        term, tools = self._term, self._tools
        self._turned_away_by = None
        interval_ms = float(tools.settings().task_interval_ms)
        if not term.may_touch_log():
            return interval_ms
        if tools.clock.monotonic_ms() < self._rests_until_ms:
            return interval_ms
        if term.id in tools.copying:
            return float(tools.settings().backoff.initial_ms)  # the last copy of an earlier term
        log = term.partition.log
        if not self._is_seeded:
            learn_remote_end(term, tools.segments.metadata)
            self._is_seeded = True
        backlog = self._backlog()
        if not backlog.segments:
            return interval_ms
        facts = closed(log, backlog.segments[0], backlog)
        if not may_be_copied(facts, log.last_stable_offset, CopyLag.of(log.config), tools.clock.now_ms()):
            return interval_ms
        if throttled_ms := tools.quota.delay_ms():
            self._turned_away_by = CopyBlock.QUOTA
            return throttled_ms
        now_ms, most = tools.clock.monotonic_ms(), tools.settings().copier_threads
        if not tools.bandwidth.may_begin(term.id, facts.size_bytes, now_ms, most):
            self._turned_away_by = CopyBlock.BANDWIDTH
            return PAUSE_MS
        self._start(backlog.segments[0], facts)
        return None

    def _backlog(self) -> Backlog:
        log = self._term.partition.log
        if self._tracked.log is not log:
            self._tracked = CopyBacklog(log)
        return self._tracked.at(log.highest_remote_offset)

    def _copy_lag(self) -> CopyLagFigures:
        """Return the lag as it is now, whatever the task is waiting for; 0 until the remote end is known."""
        log = self._term.partition.log
        if not self._is_seeded or not log.is_copied_to_remote:
            return NO_COPY_LAG
        backlog = self._backlog()
        return CopyLagFigures(backlog.size_bytes, len(backlog.segments))

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
        files = files_of(tools.fs, term.partition.log, local, facts)
        epochs_known_from = term.partition.log.epochs.entries[0].start_offset
        watch, watched = WatchedFiles.over(tools.fs, segment, files.log, epochs_known_from)
        tools.bandwidth.begin(term.id, facts.size_bytes, lambda: watch.bytes_read, tools.clock.monotonic_ms())
        self._attempt = CopyAttempt(
            term.partition.log, local, segment, replace(files, fs=watched), watch, tools.clock.monotonic_ms()
        )

    def _is_local(self, attempt: CopyAttempt) -> bool:
        """Whether the segment is still on this disk; DeleteRecords may have removed it."""
        log = self._term.partition.log
        return log is attempt.log and log.segments.floor(attempt.segment.start_offset) is attempt.local

    # ---- one attempt

    async def _run(self, attempt: CopyAttempt) -> None:
        """Run an attempt to its end. Errors of events leave the attempt as it is, errors of the upload doom it."""
        try:
            await self._advance(attempt)
        except InvalidSegmentTransition:
            self._release()  # another leader has collected the segment; later uploads must be deleted, too
            await self._tools.segments.discard(attempt.segment)
            raise
        except RemoteStorageError as error:
            attempt.is_failed = True
            if isinstance(error, CorruptLocalSegment):
                self._note_damage(attempt, error)
            elif isinstance(error, LocalDiskError):
                self._note_disk_error(attempt, error.cause)
            await self._delete(attempt)
            raise
        self._release()
        if not self._term.is_over():
            log = self._term.partition.log
            log.highest_remote_offset = max(log.highest_remote_offset, attempt.segment.end_offset)
        _log.info("copied a segment", partition=self._term, segment=attempt.segment.id, base=attempt.local.base_offset)

    def _note_damage(self, attempt: CopyAttempt, error: CorruptLocalSegment) -> None:
        """Report a damaged local segment, and copy nothing until `REST_FACTOR` intervals have passed."""
        tools = self._tools
        self._rests_until_ms = tools.clock.monotonic_ms() + tools.settings().task_interval_ms * REST_FACTOR
        _log.error(
            "a local segment is damaged and is not copied to remote storage: move the leadership to an intact replica "
            "and let this one be replicated again; local retention waits on all replicas until the segment is copied",
            partition=self._term,
            base=attempt.local.base_offset,
            reason=error,
        )

    def _note_disk_error(self, attempt: CopyAttempt, error: OSError) -> None:
        """Take the log directory offline, unless a missing file was deleted or renamed during the copy."""
        is_expected = isinstance(error, FileNotFoundError) and (self._term.is_over() or not self._is_local(attempt))
        if not is_expected:
            self._term.partition.offline(attempt.log.fail(error))

    async def _advance(self, attempt: CopyAttempt) -> None:
        segments = self._tools.segments
        self._check_age(attempt)
        if not attempt.is_announced:
            await segments.announce(attempt.segment)
            attempt.is_announced = True
        if not attempt.is_uploaded:
            attempt.custom_metadata = await self._upload(attempt)
            self._check_size(attempt.custom_metadata or b"")
            attempt.is_uploaded = True
        self._check_age(attempt)
        await segments.finish(attempt.segment, attempt.custom_metadata)

    async def _upload(self, attempt: CopyAttempt) -> bytes | None:
        """Upload, and renew the lease while bytes move."""
        tools = self._tools
        upload = asyncio.ensure_future(tools.segments.upload(attempt.segment, attempt.files, attempt.watch))
        try:
            while True:
                lease_s = copy_lease_ms(tools.settings().grace_ms) / 1000
                await asyncio.wait((upload,), timeout=lease_s / RENEWALS_PER_LEASE)
                if upload.done():
                    return upload.result()
                await self._renew(attempt)
        finally:
            upload.cancel()

    async def _renew(self, attempt: CopyAttempt) -> None:
        """Renew the lease if bytes have moved since it began. A failure leaves the lease as it is.

        A lease that is over is not renewed: the attempt may be deleted already, and would come back to life.
        """
        now_ms, moved = self._tools.clock.monotonic_ms(), attempt.watch.bytes_read
        if attempt.is_collected or moved == attempt.renewed_bytes or self._is_too_old(attempt):
            return
        renewed = replace(attempt.segment, event_timestamp_ms=self._tools.clock.now_ms())
        try:
            await self._tools.segments.announce(renewed)
        except InvalidSegmentTransition:
            attempt.is_collected = True  # the upload fails at its last event
            return
        except PASSING_ERRORS as error:
            _log.info("could not renew the lease of a copy", partition=self._term, reason=error)
            return
        attempt.segment, attempt.began_ms, attempt.renewed_bytes = renewed, now_ms, moved

    def _is_too_old(self, attempt: CopyAttempt) -> bool:
        """Whether the lease is over, by the wall clock, which other brokers use, or by the monotonic clock."""
        clock = self._tools.clock
        age_ms = clock.now_ms() - attempt.segment.event_timestamp_ms
        return max(age_ms, clock.monotonic_ms() - attempt.began_ms) >= copy_lease_ms(self._tools.settings().grace_ms)

    def _check_age(self, attempt: CopyAttempt) -> None:
        if self._is_too_old(attempt):
            raise CopyTooOld(f"the lease of the copy of {attempt.segment.id} is over; the segment will be copied again")

    def _check_size(self, custom_metadata: bytes) -> None:
        limit = self._tools.settings().custom_metadata_max_bytes
        if len(custom_metadata) > limit:
            self._term.is_blocked = True
            raise CustomMetadataTooLarge(
                f"remote storage attaches {len(custom_metadata)} bytes to a segment of {self._term}, and "
                f"remote.log.metadata.custom.metadata.max.bytes is {limit}: copying of the partition stops until "
                "another broker leads it or this broker restarts; raise the limit"
            )

    async def _close(self, attempt: CopyAttempt) -> None:
        """Finish an uploaded copy, delete any other. What fails here is collected later."""
        try:
            if attempt.is_uploaded and not (attempt.is_failed or self._is_too_old(attempt)):
                await self._tools.segments.finish(attempt.segment, attempt.custom_metadata)
            else:
                await self._delete(attempt)
        finally:
            self._release()

    async def _delete(self, attempt: CopyAttempt) -> None:
        """Delete everything under the id of a failed attempt. After PASSING_ERRORS it can be repeated.

        An attempt whose COPY_FINISHED was published with an unknown outcome may be finished: then it stays.
        """
        if not attempt.is_doomed:
            try:
                await self._tools.segments.begin_deletion(attempt.segment, only_unfinished=True)
            except CopyWasFinished:
                self._release()
                return
            attempt.is_doomed = True
        await self._tools.segments.end_deletion(attempt.segment)
        self._release()

    def _release(self) -> None:
        """Drop the attempt; from now on, it may be collected."""
        if self._attempt is not None:
            self._tools.copying.pop(self._term.id, None)
            self._tools.bandwidth.end(self._term.id, self._tools.clock.monotonic_ms())
            self._attempt = None
