"""Planted bugs, each of a kind that Kafka had or nearly had; the simulation must detect all of them."""

import asyncio
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any
from unittest.mock import ANY, patch

from broker.metrics.remote_storage import NO_COPY_LAG, CopyLagFigures, DeleteLagFigures
from broker.runtime.remote_log.copying import CopyAttempt, SegmentCopyTask
from broker.runtime.remote_log.expiration import SegmentExpirationTask
from broker.runtime.remote_log.leadership_term import LeadershipTerm
from broker.runtime.remote_log.segments import RemoteSegments
from broker.runtime.remote_log.term_fence import TermFence
from protocol.ids import LeaderEpoch
from protocol.primitives import Buffer
from storage.log import Log
from storage.recovery import LogLoader
from storage.tiered.bucket.audit import Audit
from storage.tiered.bucket.reconcile import AuditedSegment, Coverage, Finding
from storage.tiered.catalog.metadata_journal import KnownPartition
from storage.tiered.errors import RemoteResourceNotFound, RetriableRemoteStorageError, StoreUnavailable
from storage.tiered.format.object_keys import ObjectSuffix
from storage.tiered.lifecycle import expiration
from storage.tiered.lifecycle.copying import ClosedSegment, CopyLag
from storage.tiered.segment_metadata import RemoteSegment, SegmentEpoch
from storage.tiered.segments import batch_stream, local_check, stored_log
from storage.tiered.segments.reading import ReadRange, RemoteBatches, SegmentReader
from storage.tiered.segments.store import ObjectSegmentStore
from storage.tiered.segments.writer import SegmentWriter

Planted = Callable[[], Iterator[None]]


def local_deletion_before_copy_finished() -> Iterator[None]:
    """Delete a local segment once its copy has begun."""
    advance = SegmentCopyTask._advance

    async def eager(self: SegmentCopyTask, attempt: CopyAttempt) -> None:
        self._term.partition.log.highest_remote_offset = attempt.segment.end_offset
        await advance(self, attempt)

    with patch.object(SegmentCopyTask, "_advance", eager):
        yield


def copy_beyond_the_last_stable_offset() -> Iterator[None]:
    """Copy any closed segment, committed or not."""

    def at_once(segment: ClosedSegment, last_stable_offset: int, lag: CopyLag, now_ms: int) -> bool:
        return True

    with patch("broker.runtime.remote_log.copying.may_be_copied", at_once):
        yield


def expiration_without_raising_the_log_start() -> Iterator[None]:
    """Delete expired segments without raising the log start offset."""

    def keep(self: SegmentExpirationTask, offset: int) -> None:
        return

    with patch.object(SegmentExpirationTask, "_raise_log_start", keep):
        yield


def size_retention_counts_too_much() -> Iterator[None]:
    """Count segments twice that are local and remote, as Kafka does for a leader that does not know the highest remote
    offset; and once more, since the retained size may be half.
    """
    once = expiration.total_bytes

    def often(*facts: Any) -> int:
        return 3 * once(*facts)

    with patch.object(expiration, "total_bytes", often):
        yield


def crashed_copies_stay() -> Iterator[None]:
    """Leave unfinished copies to retention, as Kafka does."""
    with patch("storage.tiered.lifecycle.expiration._is_abandoned", lambda tier, segment: False):
        yield


def failed_copies_stay() -> Iterator[None]:
    """Publish the deletion of a failed copy without deleting it."""

    async def forget(self: RemoteSegments, segment: RemoteSegment) -> None:
        return

    with patch.object(RemoteSegments, "discard", forget):
        yield


def checksums_are_not_compared() -> Iterator[None]:
    """Return the store's bytes without comparing checksums."""
    with patch.object(batch_stream, "crc32c", lambda data: ANY), patch.object(stored_log, "crc32c", lambda data: ANY):
        yield


def lost_segments_are_passed_over() -> Iterator[None]:
    """Take lost segments for ranges emptied by compaction."""
    batches = SegmentReader.batches

    def lenient(self: SegmentReader, segment: RemoteSegment, wanted: ReadRange) -> RemoteBatches:
        try:
            return batches(self, segment, wanted)
        except RemoteResourceNotFound:
            return RemoteBatches(memoryview(b""), segment.end_offset + 1)

    with patch.object(SegmentReader, "batches", lenient):
        yield


def failed_puts_count_as_done() -> Iterator[None]:
    """Take a failed put for one whose response was lost."""
    put = SegmentWriter._put

    def hopeful(self: SegmentWriter, segment: RemoteSegment, suffix: ObjectSuffix, parts: Iterable[Buffer]) -> None:
        try:
            put(self, segment, suffix, parts)
        except StoreUnavailable:
            return

    with patch.object(SegmentWriter, "_put", hopeful):
        yield


def manifests_are_deleted_last() -> Iterator[None]:
    """Delete a segment's objects in the order of their upload."""

    def delete(self: ObjectSegmentStore, segment: RemoteSegment) -> None:
        self._store.delete([self._key(segment, suffix) for suffix in (ObjectSuffix.LOG, ObjectSuffix.INDEXES)])
        self._store.delete([self._key(segment, ObjectSuffix.MANIFEST)])

    with patch.object(ObjectSegmentStore, "_delete_objects", delete):
        yield


def listings_are_believed() -> Iterator[None]:
    """Trust stale listings: an unlisted object is treated as missing."""

    def missing(self: Audit, verdict: AuditedSegment, known: KnownPartition) -> AuditedSegment:
        return replace(verdict, finding=Finding.ABANDONED)

    with patch.object(Audit, "_asked_for", missing):
        yield


def log_start_is_not_durable_before_deletion() -> Iterator[None]:
    """Delete remote segments below a log start offset that is in memory and beside the segments only."""
    store_start = SegmentExpirationTask._store_start

    async def forgetful(self: SegmentExpirationTask, *, at_once: bool) -> bool:
        tools = self._tools
        self._tools = replace(tools, remember_start=_forget)
        try:
            return await store_start(self, at_once=at_once)
        finally:
            self._tools = tools

    with patch.object(SegmentExpirationTask, "_store_start", forgetful):
        yield


def _forget(log: Log) -> "asyncio.Future[None]":
    done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    done.set_result(None)
    return done


def terms_are_looked_up_once() -> Iterator[None]:
    """Look for later leaders before the first deletion of a term only."""
    may_delete = TermFence.may_delete
    asked: list[LeadershipTerm] = []

    async def once(self: TermFence, term: LeadershipTerm) -> bool:
        if any(term is each for each in asked):
            return not term.is_over()
        asked.append(term)
        return await may_delete(self, term)

    def unknown(self: TermFence, term: LeadershipTerm) -> bool:
        return term.is_over()

    with (
        patch.object(TermFence, "may_delete", once),
        patch.object(TermFence, "knows_later_term", unknown),
        patch("storage.tiered.format.log_start_object.has_later_leader", lambda *_: False),
    ):
        yield


def foreign_epochs_are_judged() -> Iterator[None]:
    """Judge segments with records of later leaders, and look for claims of later leaders once."""
    with patch.object(expiration, "is_of_later_term", lambda *_: False):
        yield from terms_are_looked_up_once()


def retries_reuse_the_segment_id() -> Iterator[None]:
    """Repeat a failed upload under the same segment id."""
    advance = SegmentCopyTask._advance

    async def again(self: SegmentCopyTask, attempt: CopyAttempt) -> None:
        for _ in range(3):
            try:
                return await advance(self, attempt)
            except RetriableRemoteStorageError:
                await asyncio.sleep(5)
        return await advance(self, attempt)

    with patch.object(SegmentCopyTask, "_advance", again):
        yield


def leases_are_not_renewed() -> Iterator[None]:
    """Give up copies that take longer than their lease, although bytes move."""

    async def never(self: SegmentCopyTask, attempt: CopyAttempt) -> None:
        return

    with patch.object(SegmentCopyTask, "_renew", never):
        yield


def local_checksums_are_not_compared() -> Iterator[None]:
    """Copy damaged local segments."""
    with patch.object(local_check, "crc32c", lambda data: ANY):
        yield


def local_epochs_are_not_compared() -> Iterator[None]:
    """Copy local segments with wrong leader epochs."""
    with patch.object(local_check, "NO_LEADER_EPOCH", ANY):
        yield


def segments_behind_rot_stay() -> Iterator[None]:
    """Keep the segments behind a batch that is cut off below the recovery point, as Kafka does."""
    ends_log = LogLoader._ends_log

    def keep(loader: LogLoader, *args: Any, is_suspect: bool, **kwargs: Any) -> bool:
        return is_suspect and ends_log(loader, *args, is_suspect=is_suspect, **kwargs)

    with patch.object(LogLoader, "_ends_log", keep):
        yield


class _OffsetCoverage(Coverage):
    """Offsets that segments hold, whatever the leader epoch."""

    def __init__(self, segments: Iterable[RemoteSegment], log_start_offset: int) -> None:
        super().__init__(map(_of_one_epoch, segments), log_start_offset)

    def holds(self, segment: RemoteSegment) -> bool:
        return super().holds(_of_one_epoch(segment))


def _of_one_epoch(segment: RemoteSegment) -> RemoteSegment:
    return replace(segment, leader_epochs=(SegmentEpoch(LeaderEpoch(0), segment.start_offset),))


def collection_ignores_lineage() -> Iterator[None]:
    """Collect a segment without metadata if another history has its offsets."""
    with patch("storage.tiered.bucket.audit.Coverage", _OffsetCoverage):
        yield


def recovery_ignores_lineage() -> Iterator[None]:
    """Recover no segment whose offsets another history has."""
    with patch("storage.tiered.bucket.recovery_plan.Coverage", _OffsetCoverage):
        yield


def copy_lag_is_frozen() -> Iterator[None]:
    """Report the copy lag as it was at the last step of the copy task, as Kafka does."""
    step, read = SegmentCopyTask._step, SegmentCopyTask._copy_lag
    frozen: dict[SegmentCopyTask, CopyLagFigures] = {}

    async def stepped(self: SegmentCopyTask) -> float | None:
        frozen[self] = read(self)
        return await step(self)

    with (
        patch.object(SegmentCopyTask, "_step", stepped),
        patch.object(SegmentCopyTask, "_copy_lag", lambda self: frozen.get(self, NO_COPY_LAG)),
    ):
        yield


def delete_lag_is_frozen() -> Iterator[None]:
    """Leave the delete lag as it was at the decision."""

    def decided(self: SegmentExpirationTask) -> DeleteLagFigures:
        return DeleteLagFigures(sum(each.segment.size_bytes for each in self._due), len(self._due))

    with patch.object(SegmentExpirationTask, "_delete_lag", decided):
        yield


PLANTED: dict[str, Planted] = {
    each.__name__: each
    for each in (
        local_deletion_before_copy_finished,
        copy_beyond_the_last_stable_offset,
        expiration_without_raising_the_log_start,
        size_retention_counts_too_much,
        crashed_copies_stay,
        failed_copies_stay,
        checksums_are_not_compared,
        lost_segments_are_passed_over,
        failed_puts_count_as_done,
        manifests_are_deleted_last,
        listings_are_believed,
        log_start_is_not_durable_before_deletion,
        terms_are_looked_up_once,
        foreign_epochs_are_judged,
        retries_reuse_the_segment_id,
        leases_are_not_renewed,
        local_checksums_are_not_compared,
        local_epochs_are_not_compared,
        segments_behind_rot_stay,
        collection_ignores_lineage,
        recovery_ignores_lineage,
        copy_lag_is_frozen,
        delete_lag_is_frozen,
    )
}


@contextmanager
def planted(name: str) -> Iterator[None]:
    yield from PLANTED[name]()
