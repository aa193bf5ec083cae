"""Operations on single remote segments: copies and deletions on a pool, with their metadata events.

A plug-in for remote storage may raise anything. Errors are classified here once: RetriableRemoteStorageError for
operations that may succeed later, RemoteStorageError for all others.
"""

import asyncio
from collections.abc import Callable
from functools import partial
from typing import TypeVar

from broker.clock import Clock
from broker.metrics.remote_storage import RemoteStorageMetrics
from broker.runtime.loop.thread_pool import PoolFull, WorkPool
from protocol.ids import BrokerId
from storage.directories.checkpoints import LeaderEpochEntry
from storage.tiered.catalog.lineage import decode_epochs
from storage.tiered.catalog.segment_state import CopyWasFinished
from storage.tiered.errors import (
    CorruptLocalSegment,
    InvalidSegmentTransition,
    LocalDiskError,
    RemoteMetadataNotReady,
    RemoteStorageError,
    RetriableRemoteStorageError,
)
from storage.tiered.remote_metadata import KnownSegments, RemoteLogMetadataManager
from storage.tiered.remote_storage import IndexKind, RemoteStorageManager, SegmentFiles
from storage.tiered.segment_metadata import RemoteSegment, SegmentState, SegmentUpdate
from storage.tiered.segments.local_check import WatchedFiles

T = TypeVar("T")

PASSING_ERRORS = (RemoteStorageError, RemoteMetadataNotReady, InvalidSegmentTransition, TimeoutError, PoolFull)
"""Errors after which a remote log task tries again."""


_ROWS_EXAMINED = 500
"""Rows read at once: about a millisecond on the loop."""


class SegmentRounds:
    """Repeated passes over the known segments of one partition, some segments at a time."""

    def __init__(self) -> None:
        self._row = 0

    def next(
        self, known: KnownSegments, most: int, is_wanted: Callable[[RemoteSegment], bool]
    ) -> tuple[list[RemoteSegment], bool]:
        """Return the next wanted segments, `most` at most and perhaps none, and whether the pass is over."""
        found: list[RemoteSegment] = []
        bound = self._row + _ROWS_EXAMINED
        while self._row < bound and len(found) < most:
            page = known.page(self._row, most - len(found))
            found += (segment for _, segment in page.segments if is_wanted(segment))
            if page.next_row is None:
                self._row = 0
                return found, True
            self._row = page.next_row
        return found, False


class RemoteSegments:
    """The segments of all partitions of this broker. `pool` runs the calls of `storage`; the owner stops it last."""

    def __init__(
        self,
        broker_id: BrokerId,
        metadata: RemoteLogMetadataManager,
        storage: RemoteStorageManager,
        pool: WorkPool,
        clock: Clock,
        metrics: RemoteStorageMetrics,
    ) -> None:
        self.broker_id = broker_id
        self.metadata = metadata
        self._storage = storage
        self._pool = pool
        self._clock = clock
        self._metrics = metrics

    async def announce(self, segment: RemoteSegment) -> None:
        """Publish COPY_STARTED; raises as `RemoteLogMetadataManager.add`."""
        await self.metadata.add(segment)

    async def upload(
        self, segment: RemoteSegment, files: SegmentFiles, watch: WatchedFiles | None = None
    ) -> bytes | None:
        """Copy a segment's files and return the custom metadata; `watch` checks what is read.

        Raises RemoteStorageError and its kinds: CorruptLocalSegment and LocalDiskError for what `watch` found.
        """
        meters = self._metrics.topic(segment.id.partition.topic)
        meters.copy_requests += 1
        try:
            custom = await self._submit(partial(self._copy, segment, files, watch))
        except RemoteStorageError as error:
            meters.copy_errors += 1
            meters.corrupt_segments += isinstance(error, CorruptLocalSegment)
            raise
        meters.copy_bytes += segment.size_bytes
        return custom

    def _copy(self, segment: RemoteSegment, files: SegmentFiles, watch: WatchedFiles | None) -> bytes | None:
        try:
            custom = self._storage.copy_segment(segment, files)
            if watch is not None:
                watch.finish()
        except Exception as error:
            if watch is not None and watch.disk_error is not None:  # a plug-in may have wrapped the error of the read
                raise LocalDiskError(watch.disk_error) from error
            if watch is not None and watch.fault is not None:
                raise watch.fault from error
            raise
        return custom

    async def finish(self, segment: RemoteSegment, custom_metadata: bytes | None) -> None:
        """Publish COPY_FINISHED; raises as `RemoteLogMetadataManager.update`."""
        await self._publish(segment, SegmentState.COPY_FINISHED, custom_metadata)

    async def delete(self, segment: RemoteSegment, *, only_unfinished: bool = False) -> None:
        """Publish DELETE_STARTED unless it was published, delete the objects, and publish DELETE_FINISHED.

        A segment that is deleted already is no error. Raises RemoteStorageError, RemoteMetadataNotReady, TimeoutError;
        the deletion can be repeated then, on any broker. Raises CopyWasFinished, an InvalidSegmentTransition, with
        `only_unfinished` for a segment whose copy was finished before the event: nothing is deleted.
        """
        if segment.state is not SegmentState.DELETE_STARTED:
            await self.begin_deletion(segment, only_unfinished=only_unfinished)
        await self.end_deletion(segment)

    async def begin_deletion(self, segment: RemoteSegment, *, only_unfinished: bool = False) -> None:
        """Publish DELETE_STARTED; raises as `delete`."""
        try:
            await self._publish(segment, SegmentState.DELETE_STARTED, only_unfinished=only_unfinished)
        except CopyWasFinished:
            raise
        except InvalidSegmentTransition:
            return  # another broker has deleted it, though perhaps before a late upload
        except TimeoutError:
            self._metrics.topic(segment.id.partition.topic).delete_errors += 1
            raise

    async def end_deletion(self, segment: RemoteSegment) -> None:
        """Delete the objects of a segment in DELETE_STARTED, and publish DELETE_FINISHED; raises as `delete`."""
        meters = self._metrics.topic(segment.id.partition.topic)
        meters.delete_requests += 1
        try:
            if not segment.is_given_up_mark:
                await self.discard(segment)
            await self._publish(segment, SegmentState.DELETE_FINISHED)
        except InvalidSegmentTransition:
            return  # another broker has deleted it meanwhile
        except (RemoteStorageError, TimeoutError):
            meters.delete_errors += 1
            raise

    async def discard(self, segment: RemoteSegment) -> None:
        """Delete the objects without any event."""
        await self._submit(partial(self._storage.delete_segment, segment))

    async def leader_epochs(self, segment: RemoteSegment) -> list[LeaderEpochEntry]:
        """Return the leader epochs up to the segment's end, as copied with the segment. Raises RemoteStorageError."""
        return await self._submit(lambda: decode_epochs(self._storage.read_index(segment, IndexKind.LEADER_EPOCH)))

    async def _publish(
        self,
        segment: RemoteSegment,
        state: SegmentState,
        custom_metadata: bytes | None = None,
        *,
        only_unfinished: bool = False,
    ) -> None:
        now_ms = self._clock.now_ms()
        update = SegmentUpdate(segment.id, state, now_ms, self.broker_id, custom_metadata, only_unfinished)
        await self.metadata.update(update)

    def _submit(self, work: Callable[[], T]) -> "asyncio.Future[T]":
        try:
            return self._pool.submit(partial(with_storage_errors, work))
        except PoolFull as error:
            raise RetriableRemoteStorageError(str(error)) from error


def with_storage_errors(work: Callable[[], T]) -> T:
    """Run `work`; turn any error of a plug-in that is no RemoteStorageError into one. For calls on a pool."""
    try:
        return work()
    except RemoteStorageError:
        raise
    except Exception as error:
        raise RemoteStorageError(f"remote storage failed: {error!r}") from error
