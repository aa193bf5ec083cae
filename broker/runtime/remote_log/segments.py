"""Segments in remote storage, one at a time: copied and deleted on a pool, with the events that tell everybody.

Whatever implements remote storage is loaded by name and may raise anything. What it does is told apart here once: what
may succeed later (RetriableRemoteStorageError) and what did not (RemoteStorageError).
"""

import asyncio
from collections.abc import Callable
from functools import partial
from typing import TypeVar

from broker.clock import Clock
from broker.metrics.remote_storage import RemoteStorageMetrics
from broker.runtime.loop.thread_pool import PoolFull, WorkPool
from storage.directories.checkpoints import EpochEntry
from storage.tiered.catalog.lineage import decode_epochs
from storage.tiered.errors import (
    InvalidSegmentTransition,
    RemoteMetadataNotReady,
    RemoteStorageError,
    RetriableRemoteStorageError,
)
from storage.tiered.remote_metadata import KnownSegments, RemoteLogMetadataManager
from storage.tiered.remote_storage import IndexKind, RemoteStorageManager, SegmentFiles
from storage.tiered.segment_metadata import RemoteSegment, SegmentState, SegmentUpdate

T = TypeVar("T")

PASSING_ERRORS = (RemoteStorageError, RemoteMetadataNotReady, InvalidSegmentTransition, TimeoutError, PoolFull)
"""What a task that works with remote storage may meet, and tries again after."""


_ROWS_EXAMINED = 500
"""At once, about a millisecond on the loop."""


class SegmentRounds:
    """Goes through all that is known of one partition, over and over, some segments at a time."""

    def __init__(self) -> None:
        self._row = 0

    def next(
        self, known: KnownSegments, most: int, is_wanted: Callable[[RemoteSegment], bool]
    ) -> tuple[list[RemoteSegment], bool]:
        """The next ones that are wanted, `most` at most, and whether the round is over; perhaps none."""
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
    """`storage` is called on `pool`, which must not be stopped before this is of no use any more."""

    def __init__(
        self,
        broker_id: int,
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
        """COPY_STARTED; raises as `RemoteLogMetadataManager.add`."""
        await self.metadata.add(segment)

    async def upload(self, segment: RemoteSegment, files: SegmentFiles) -> bytes | None:
        """Copies files; returns the custom metadata. Raises RemoteStorageError and its kinds."""
        meters = self._metrics.topic(segment.id.partition.topic)
        meters.copy_requests += 1
        try:
            custom = await self._do(partial(self._storage.copy_segment, segment, files))
        except RemoteStorageError:
            meters.copy_errors += 1
            raise
        meters.copy_bytes += segment.size_bytes
        return custom

    async def finish(self, segment: RemoteSegment, custom_metadata: bytes | None) -> None:
        """COPY_FINISHED. Raises as `RemoteLogMetadataManager.update`."""
        await self._tell(segment, SegmentState.COPY_FINISHED, custom_metadata)

    async def delete(self, segment: RemoteSegment) -> None:
        """DELETE_STARTED unless that was said, the objects, DELETE_FINISHED. One that is gone already is no error.

        Raises RemoteStorageError, RemoteMetadataNotReady, TimeoutError; it can be repeated then, here or elsewhere.
        """
        meters = self._metrics.topic(segment.id.partition.topic)
        meters.delete_requests += 1
        try:
            if segment.state is not SegmentState.DELETE_STARTED:
                await self._tell(segment, SegmentState.DELETE_STARTED)
            await self.discard(segment)
            await self._tell(segment, SegmentState.DELETE_FINISHED)
        except InvalidSegmentTransition:
            await self.discard(segment)  # somebody else was faster, though perhaps not faster than a late upload
        except (RemoteStorageError, TimeoutError):
            meters.delete_errors += 1
            raise

    async def discard(self, segment: RemoteSegment) -> None:
        """Deletes the objects and tells nobody."""
        await self._do(partial(self._storage.delete_segment, segment))

    async def leader_epochs(self, segment: RemoteSegment) -> list[EpochEntry]:
        """The history of the log up to the segment's end, as it was copied with it. Raises RemoteStorageError."""
        return await self._do(lambda: decode_epochs(self._storage.read_index(segment, IndexKind.LEADER_EPOCH)))

    async def _tell(self, segment: RemoteSegment, state: SegmentState, custom_metadata: bytes | None = None) -> None:
        update = SegmentUpdate(segment.id, state, self._clock.now_ms(), self.broker_id, custom_metadata)
        await self.metadata.update(update)

    def _do(self, work: Callable[[], T]) -> "asyncio.Future[T]":
        try:
            return self._pool.submit(partial(judged, work))
        except PoolFull as error:
            raise RetriableRemoteStorageError(str(error)) from error


def judged(work: Callable[[], T]) -> T:
    """On the pool: whatever a foreign implementation raises becomes an error of remote storage."""
    try:
        return work()
    except RemoteStorageError:
        raise
    except Exception as error:
        raise RemoteStorageError(f"remote storage failed: {error!r}") from error
