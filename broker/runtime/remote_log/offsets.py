"""ListOffsets of logs whose older part is in remote storage (KIP-405, KIP-1005, KIP-1023, KIP-1075).

The ends of the tiers are known at once. A time is looked for in remote storage first, on the threads that read from it,
and then here; both parts belong to one log, so a segment that leaves the disk meanwhile is looked for again. Where in
remote storage to look is remembered as a chain of pieces per partition, built once and extended as segments come.
"""

import asyncio
from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import Final, NamedTuple, TypeVar

from cachetools import LRUCache

from broker.logs import EventLog
from broker.runtime.loop.thread_pool import PoolFull, WorkPool
from broker.runtime.loop.waiters import Deadlines
from broker.runtime.partitions import offset_lookup
from broker.runtime.partitions.offset_lookup import NOT_FOUND, FoundOffset, OffsetQuery
from broker.runtime.partitions.partition import Partition
from broker.runtime.partitions.partition_reads import check_reader
from broker.runtime.partitions.reads import UNKNOWN
from broker.runtime.remote_log.locations import RemoteLocations, SegmentMissing
from broker.runtime.remote_log.outage import RemoteOutage
from protocol.errors import ErrorCode, KafkaError
from protocol.primitives import Uuid
from storage.segment import FoundTimestamp
from storage.tiered.catalog.timestamp_index import TimestampIndex
from storage.tiered.errors import (
    CorruptRemoteData,
    RemoteMetadataNotReady,
    RemoteResourceNotFound,
    RemoteStorageError,
    RetriableRemoteStorageError,
)
from storage.tiered.remote_metadata import RemoteLogMetadataManager
from storage.tiered.segment_metadata import TopicIdPartition
from storage.tiered.segments.reading import SegmentReader

T = TypeVar("T")

RETRY_MS: Final = 100
ATTEMPTS_MAX: Final = 4
"""Of a look-up that remote storage fails; clients try again themselves."""
CHAINS_MAX: Final = 256
_PIECES_AT_ONCE: Final = 256
"""Then others get their turn: a long chain is built in slices."""

_log = EventLog("broker.remote_offsets")


class TimeChainKey(NamedTuple):
    """Another leader epoch may have another history."""

    topic_id: Uuid
    partition: int
    leader_epoch: int


class RemoteOffsets:
    """`timeout_ms`: `remote.list.offsets.request.timeout.ms`, for requests that name no time of their own.

    `expired` counts look-ups whose time was over, by topic and partition; `waiting` those that are not answered yet.
    """

    def __init__(
        self,
        reader: SegmentReader,
        metadata: RemoteLogMetadataManager,
        pool: WorkPool,
        loop: asyncio.AbstractEventLoop,
        deadlines: Deadlines,
        timeout_ms: Callable[[], int],
    ) -> None:
        self.expired: Counter[tuple[str, int]] = Counter()
        self.waiting = 0
        self._reader = reader
        self._metadata = metadata
        self._locations = RemoteLocations(metadata)
        self._pool = pool
        self._loop = loop
        self._deadlines = deadlines
        self._timeout_ms = timeout_ms
        self._outage = RemoteOutage()
        self._chains: LRUCache[TimeChainKey, TimestampIndex] = LRUCache(CHAINS_MAX)

    def covers(self, partition: Partition) -> bool:
        """Whether a partition has, or may come to have, a part in remote storage."""
        log = partition.log
        return log.is_tiered or log.log_start_offset < log.local_log_start_offset

    def list_offset(
        self, partition: Partition, query: OffsetQuery, timeout_ms: int
    ) -> "FoundOffset | asyncio.Future[FoundOffset]":
        """As `offset_lookup.list_offset`, with all there is; in a while where remote storage is asked.

        `timeout_ms` is the request's, 0 if it has none. Raises KafkaError, or the future does: REQUEST_TIMED_OUT,
        KAFKA_STORAGE_ERROR, CORRUPT_MESSAGE, and what may be wrong with the partition by then.
        """
        check_reader(partition, query.current_leader_epoch, needs_leader=query.needs_leader)
        if query.timestamp == offset_lookup.LATEST_TIERED:
            return self._latest_tiered(partition)
        if query.timestamp == offset_lookup.EARLIEST_PENDING_UPLOAD:
            return self._earliest_pending_upload(partition)
        log = partition.log
        is_a_time = query.timestamp >= 0 or query.timestamp == offset_lookup.MAX_TIMESTAMP
        if not is_a_time or log.log_start_offset >= log.local_log_start_offset:
            return offset_lookup.list_offset(partition, query)
        return self._begin(partition, query, timeout_ms if timeout_ms > 0 else self._timeout_ms())

    # ---- the ends

    def _latest_tiered(self, partition: Partition) -> FoundOffset:
        """Raises KafkaError while it is unknown what was copied, which "nothing was" would not be told from."""
        highest = self._highest(partition)
        if highest is None:
            raise KafkaError(ErrorCode.OFFSET_NOT_AVAILABLE)
        return NOT_FOUND if highest < 0 else self._end(partition, highest)

    def _earliest_pending_upload(self, partition: Partition) -> FoundOffset:
        """The log's start if nothing was copied; unknown while it is unknown what was, which followers wait out."""
        highest = self._highest(partition)
        if highest is None:
            return NOT_FOUND
        return self._end(partition, max(highest + 1, partition.log.log_start_offset))

    def _highest(self, partition: Partition) -> int | None:
        """None while that is unknown, also where the log is empty, and nothing would be looked up for it."""
        if not self._metadata.is_ready(TopicIdPartition(partition.topic_id, partition.topic, partition.index)):
            return None
        try:
            return self._locations.highest_offset(partition)
        except RemoteMetadataNotReady:
            return None

    def _end(self, partition: Partition, offset: int) -> FoundOffset:
        epoch = partition.log.epochs.epoch_for_offset(offset)
        return FoundOffset(UNKNOWN, offset, UNKNOWN if epoch is None else epoch)

    # ---- times

    def _begin(self, partition: Partition, query: OffsetQuery, timeout_ms: int) -> "asyncio.Future[FoundOffset]":
        future: asyncio.Future[FoundOffset] = self._loop.create_future()
        task = asyncio.Task(self._answer(partition, query, future), loop=self._loop)
        deadline = self._deadlines.after_ms(timeout_ms, partial(self._expire, partition, future))
        self.waiting += 1

        def on_done(_: "asyncio.Future[FoundOffset]") -> None:
            """Answered, out of time, or nobody waits any more."""
            self.waiting -= 1
            deadline.cancel()
            task.cancel()

        future.add_done_callback(on_done)
        return future

    def _expire(self, partition: Partition, future: "asyncio.Future[FoundOffset]") -> None:
        if not future.done():
            self.expired[partition.topic, partition.index] += 1
            future.set_exception(KafkaError(ErrorCode.REQUEST_TIMED_OUT))

    async def _answer(self, partition: Partition, query: OffsetQuery, future: "asyncio.Future[FoundOffset]") -> None:
        try:
            found = await self._find(partition, query)
            check_reader(partition, query.current_leader_epoch, needs_leader=query.needs_leader)
            answer = offset_lookup.visible(partition, query, found)
        except KafkaError as error:
            if not future.done():
                future.set_exception(error)
        else:
            if not future.done():
                future.set_result(answer)

    async def _find(self, partition: Partition, query: OffsetQuery) -> FoundOffset:
        """Until there is an answer. What is not known here yet may be in a moment. Raises KafkaError."""
        failures = 0
        while True:
            try:
                if query.timestamp == offset_lookup.MAX_TIMESTAMP:
                    found = await self._latest(partition)
                else:
                    found = await self._first_at_or_after(partition, query.timestamp)
            except (RemoteMetadataNotReady, SegmentMissing, PoolFull):
                pass
            except Exception as error:  # noqa: BLE001  remote storage may be anybody's code; what it raised is logged
                failures += 1
                self._note_failure(partition, error, is_last=failures == ATTEMPTS_MAX)
            else:
                if found is not None:
                    return found
                continue
            await self._pause(RETRY_MS << min(failures, 4))

    def _note_failure(self, partition: Partition, error: Exception, *, is_last: bool) -> None:
        """Raises KafkaError at the last, and for what is wrong here and not in remote storage."""
        if isinstance(error, KafkaError):
            raise error
        if isinstance(error, RemoteResourceNotFound):  # its segment was deleted, perhaps
            self._chains.pop(_key(partition), None)
        if is_last:
            self._tell(partition, error)
            is_damaged = isinstance(error, CorruptRemoteData)
            raise KafkaError(ErrorCode.CORRUPT_MESSAGE if is_damaged else ErrorCode.KAFKA_STORAGE_ERROR) from error

    def _tell(self, partition: Partition, error: Exception) -> None:
        """Of what may pass, once in a while; as an error only of what needs an operator."""
        event = "Looking for a time in remote storage failed"
        if not isinstance(error, RetriableRemoteStorageError):
            unexpected = None if isinstance(error, RemoteStorageError) else error
            _log.error(event, unexpected, partition=partition, reason=error)
        elif self._outage.failed(self._loop.time() * 1000):
            _log.warning(event, partition=partition, reason=error)

    async def _first_at_or_after(self, partition: Partition, timestamp: int) -> FoundOffset | None:
        """In remote storage, then here. None if segments left this disk meanwhile."""
        log = partition.log
        local_start = log.local_log_start_offset
        chain = await self._chain(partition, local_start)
        for start in chain.candidates(timestamp, log.log_start_offset, local_start):
            found = await self._look_into(partition, start, timestamp)
            if found is not None:
                return FoundOffset(*found)
        if log.local_log_start_offset != local_start:
            return None
        return offset_lookup.found_here(partition, timestamp)

    async def _latest(self, partition: Partition) -> FoundOffset | None:
        """The first record with the greatest timestamp of both parts. None if segments left this disk meanwhile."""
        log = partition.log
        local_start = log.local_log_start_offset
        chain = await self._chain(partition, local_start)
        for greatest, start in chain.latest(log.log_start_offset, local_start):
            here = offset_lookup.found_here(partition, offset_lookup.MAX_TIMESTAMP)
            if greatest < here.timestamp:
                break
            found = await self._look_into(partition, start, greatest)
            if found is not None:
                return FoundOffset(*found)
        if log.local_log_start_offset != local_start:
            return None
        return offset_lookup.found_here(partition, offset_lookup.MAX_TIMESTAMP)

    async def _look_into(self, partition: Partition, start: int, timestamp: int) -> FoundTimestamp | None:
        """The first record of a time in the piece that starts at `start`."""
        segment, last_offset = self._locations.locate(partition, start)
        first = max(start, partition.log.log_start_offset)
        return await self._pool.submit(
            partial(self._reader.first_at_or_after, segment, timestamp, first, last_offset + 1)
        )

    # ---- the chain

    async def _chain(self, partition: Partition, below: int) -> TimestampIndex:
        """The pieces of a partition up to `below`. Raises SegmentMissing, RemoteMetadataNotReady."""
        key = _key(partition)
        chain = self._chains.setdefault(key, TimestampIndex())
        added = 0
        while (offset := max(chain.next_offset, partition.log.log_start_offset)) < below:
            segment, last_offset = self._locations.locate(partition, offset)
            chain.append(offset, last_offset, segment.max_timestamp_ms)
            added += 1
            if added % _PIECES_AT_ONCE == 0:
                await self._pause(0)
        return chain

    async def _pause(self, pause_ms: float) -> None:
        over: asyncio.Future[None] = self._loop.create_future()
        deadline = self._deadlines.after_ms(pause_ms, partial(over.set_result, None))
        try:
            await over
        finally:
            deadline.cancel()


def _key(partition: Partition) -> TimeChainKey:
    return TimeChainKey(partition.topic_id, partition.index, partition.leader_epoch)
