"""ListOffsets for logs whose older part is remote (KIP-405, KIP-1005, KIP-1023, KIP-1075).

The tiered and pending-upload offsets are known at once. A timestamp is searched in remote storage first, on the remote
reader threads, and then in the local log. Local segments may become remote meanwhile; the search is repeated then. An
index of timestamps per partition, built once and extended as segments come, yields the remote segments to search.

A hole, offsets that no known segment holds, concerns a look-up only if the hole may hold the record: no record before
it is late enough, and the first record behind it is not older than the timestamp. Such a look-up waits until the
segment appears or the hole may be skipped (`ottla.remote.log.hole.patience.ms`), as a fetch from the hole does.

If a segment is lost or damaged, other finished segments with the same records are searched, as for a fetch, and then a
follower that still has the records in its local log. Followers are asked about holes after some attempts.
"""

import asyncio
from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import Final, NamedTuple, TypeVar

from cachetools import LRUCache, TTLCache

from broker.logs import EventLog
from broker.replication.epochs import UNKNOWN_EPOCH
from broker.runtime.loop.thread_pool import PoolFull, WorkPool
from broker.runtime.loop.waiters import Deadlines
from broker.runtime.partitions import offset_lookup
from broker.runtime.partitions.offset_lookup import NOT_FOUND, FoundOffset, OffsetQuery
from broker.runtime.partitions.partition import Partition
from broker.runtime.partitions.partition_reads import check_reader
from broker.runtime.partitions.reads import UNKNOWN
from broker.runtime.remote_log.locations import Holes, RemoteLocations, SegmentMissing
from broker.runtime.remote_log.outage import RemoteOutage
from broker.runtime.remote_log.replica_lookups import NoReplicaLookups, ReplicaLookup, ReplicaLookups
from protocol.errors import ErrorCode, KafkaError
from protocol.ids import LeaderEpoch
from protocol.primitives import Uuid
from storage.segment import FoundTimestamp
from storage.tiered.catalog.timestamp_index import OffsetGap, TimestampIndex
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
"""Attempts of a look-up that remote storage fails; clients retry themselves."""
MISSING_ATTEMPTS: Final = 4
"""Attempts for a missing segment before followers are asked: metadata may be late, or a deletion under way."""
INDEXES_MAX: Final = 256
REPLICA_LINE_S: Final = 60
"""Time for which further searches of a partition's followers are not logged."""
_ENTRIES_AT_ONCE: Final = 256
"""Index entries added in one turn of the loop."""
_NOT_REMOTE: Final = 2**63 - 1
"""Highest timestamp of a gap that ends at the local log."""

_log = EventLog("broker.remote_offsets")


class TimestampIndexKey(NamedTuple):
    """A partition in one leader epoch; another epoch may have another history."""

    topic_id: Uuid
    partition: int
    leader_epoch: LeaderEpoch


class RemoteOffsets:
    """All look-ups of a broker.

    `timeout_ms` returns `remote.list.offsets.request.timeout.ms`, for requests without a timeout. `expired` counts
    look-ups that timed out, by topic and partition; `waiting` is the number of unanswered ones.
    """

    def __init__(
        self,
        reader: SegmentReader,
        metadata: RemoteLogMetadataManager,
        pool: WorkPool,
        loop: asyncio.AbstractEventLoop,
        deadlines: Deadlines,
        timeout_ms: Callable[[], int],
        holes: Holes,
    ) -> None:
        self.expired: Counter[tuple[str, int]] = Counter()
        self.waiting = 0
        self._reader = reader
        self._metadata = metadata
        self._locations = RemoteLocations(metadata, holes)
        self._pool = pool
        self._loop = loop
        self._deadlines = deadlines
        self._timeout_ms = timeout_ms
        self._outage = RemoteOutage()
        self._indexes: LRUCache[TimestampIndexKey, TimestampIndex] = LRUCache(INDEXES_MAX)
        self._on_replicas: TTLCache[TimestampIndexKey, bool] = TTLCache(INDEXES_MAX, REPLICA_LINE_S, loop.time)
        self._replicas: ReplicaLookups = NoReplicaLookups()

    def use_replicas(self, replicas: ReplicaLookups) -> None:
        """Search other replicas for lost and damaged records from now on."""
        self._replicas = replicas

    def covers(self, partition: Partition) -> bool:
        """Whether a part of the partition is or may become remote."""
        log = partition.log
        return log.is_tiered or log.log_start_offset < log.local_log_start_offset

    def list_offset(
        self, partition: Partition, query: OffsetQuery, timeout_ms: int
    ) -> "FoundOffset | asyncio.Future[FoundOffset]":
        """Look an offset up in the whole log, local and remote; a future where remote storage must be searched.

        `timeout_ms` is the request's, 0 if it has none. Raises KafkaError, or the future does: REQUEST_TIMED_OUT,
        KAFKA_STORAGE_ERROR, CORRUPT_MESSAGE, and errors of the partition.
        """
        check_reader(partition, query.current_leader_epoch, needs_leader=query.needs_leader)
        if query.timestamp == offset_lookup.LATEST_TIERED:
            return self._latest_tiered(partition)
        if query.timestamp == offset_lookup.EARLIEST_PENDING_UPLOAD:
            return self._earliest_pending_upload(partition)
        log = partition.log
        is_timestamp = query.timestamp >= 0 or query.timestamp == offset_lookup.MAX_TIMESTAMP
        if not is_timestamp or log.log_start_offset >= log.local_log_start_offset:
            return offset_lookup.list_offset(partition, query)
        return self._begin(partition, query, timeout_ms if timeout_ms > 0 else self._timeout_ms())

    # ---- ends of the remote log

    def _latest_tiered(self, partition: Partition) -> FoundOffset:
        """Return the last remote offset. Raises KafkaError while it is unknown; an empty remote log has none."""
        highest = self._highest(partition)
        if highest is None:
            raise KafkaError(ErrorCode.OFFSET_NOT_AVAILABLE)
        return NOT_FOUND if highest < 0 else self._end(partition, highest)

    def _earliest_pending_upload(self, partition: Partition) -> FoundOffset:
        """Return the first offset that is not remote; not found while it is unknown, which followers wait out."""
        highest = self._highest(partition)
        if highest is None:
            return NOT_FOUND
        return self._end(partition, max(highest + 1, partition.log.log_start_offset))

    def _highest(self, partition: Partition) -> int | None:
        """Return the highest remote offset; None while it is unknown, even for an empty log."""
        if not self._metadata.is_ready(TopicIdPartition(partition.topic_id, partition.topic, partition.index)):
            return None
        try:
            return self._locations.highest_offset(partition)
        except RemoteMetadataNotReady:
            return None

    def _end(self, partition: Partition, offset: int) -> FoundOffset:
        epoch = partition.log.epochs.epoch_for_offset(offset)
        return FoundOffset(UNKNOWN, offset, UNKNOWN_EPOCH if epoch is None else epoch)

    # ---- timestamps

    def _begin(self, partition: Partition, query: OffsetQuery, timeout_ms: int) -> "asyncio.Future[FoundOffset]":
        future: asyncio.Future[FoundOffset] = self._loop.create_future()
        task = asyncio.Task(self._answer(partition, query, future), loop=self._loop)
        deadline = self._deadlines.after_ms(timeout_ms, partial(self._expire, partition, future))
        self.waiting += 1

        def on_done(_: "asyncio.Future[FoundOffset]") -> None:
            """Clean up after an answer, a timeout, or a closed connection."""
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
        """Search until there is a result; missing metadata may arrive soon. Raises KafkaError."""
        failures = missing = 0
        while True:
            try:
                if query.timestamp == offset_lookup.MAX_TIMESTAMP:
                    found = await self._latest(partition)
                else:
                    asks_replicas = missing >= MISSING_ATTEMPTS
                    found = await self._first_at_or_after(partition, query.timestamp, asks_replicas=asks_replicas)
            except (RemoteMetadataNotReady, PoolFull):
                pass
            except SegmentMissing:
                missing += 1
            except Exception as error:  # noqa: BLE001  a plug-in may raise anything; the error is logged
                failures += 1
                self._note_failure(partition, error, is_last=failures == ATTEMPTS_MAX)
            else:
                if found is not None:
                    return found
                continue
            await self._pause(RETRY_MS << min(failures, 4))

    def _note_failure(self, partition: Partition, error: Exception, *, is_last: bool) -> None:
        """Raise KafkaError after the last attempt, and for errors of the local partition."""
        if isinstance(error, KafkaError):
            raise error
        if isinstance(error, RemoteResourceNotFound):  # the segment may have been deleted
            self._indexes.pop(_key(partition), None)
        if is_last:
            self._log_failure(partition, error)
            is_damaged = isinstance(error, CorruptRemoteData)
            raise KafkaError(ErrorCode.CORRUPT_MESSAGE if is_damaged else ErrorCode.KAFKA_STORAGE_ERROR) from error

    def _log_failure(self, partition: Partition, error: Exception) -> None:
        """Log a retriable error once per outage, any other as an error; an unexpected one with its traceback."""
        event = "Searching remote storage for a timestamp failed"
        if not isinstance(error, RetriableRemoteStorageError):
            unexpected = None if isinstance(error, RemoteStorageError) else error
            _log.error(event, unexpected, partition=partition, reason=error)
        elif self._outage.failed(self._loop.time() * 1000):
            _log.warning(event, partition=partition, reason=error)

    async def _first_at_or_after(
        self, partition: Partition, timestamp: int, *, asks_replicas: bool
    ) -> FoundOffset | None:
        """Search remote storage, then the local log. Return None if local segments were deleted meanwhile."""
        log = partition.log
        local_start = log.local_log_start_offset
        index = await self._index(partition, local_start)
        search_gaps = partial(self._search_gaps, partition, timestamp=timestamp, asks_replicas=asks_replicas)
        for start in index.candidates(timestamp, log.log_start_offset, local_start):
            found = await self._search_segment(partition, start, timestamp)
            if found is not None:
                return FoundOffset(*(await search_gaps(index.gaps(log.log_start_offset, found.offset)) or found))
        gaps = index.gaps(log.log_start_offset, local_start)
        in_gap = await search_gaps([*gaps, *self._last_gap(partition, index, local_start)])
        if in_gap is not None:
            return FoundOffset(*in_gap)
        if log.local_log_start_offset != local_start:
            return None
        return offset_lookup.found_here(partition, timestamp)

    async def _latest(self, partition: Partition) -> FoundOffset | None:
        """Return the first record with the greatest timestamp; None if local segments were deleted meanwhile."""
        log = partition.log
        local_start = log.local_log_start_offset
        index = await self._index(partition, local_start)
        local = offset_lookup.found_here(partition, offset_lookup.MAX_TIMESTAMP)
        if local == NOT_FOUND:
            await self._search_gaps(partition, self._last_gap(partition, index, local_start), 0, asks_replicas=False)
        for greatest, start in index.latest(log.log_start_offset, local_start):
            local = offset_lookup.found_here(partition, offset_lookup.MAX_TIMESTAMP)
            if greatest < local.timestamp:
                break
            found = await self._search_segment(partition, start, greatest)
            if found is not None:
                return FoundOffset(*found)
        if log.local_log_start_offset != local_start:
            return None
        return offset_lookup.found_here(partition, offset_lookup.MAX_TIMESTAMP)

    async def _search_segment(self, partition: Partition, start: int, timestamp: int) -> FoundTimestamp | None:
        """Return the first record with at least the timestamp in the segment that holds offset `start`."""
        found = self._locations.next_held(partition, start)
        if found is None or found[0] != start:  # the segment was deleted
            self._indexes.pop(_key(partition), None)
            raise SegmentMissing(f"no known remote segment of {partition} holds offset {start}")
        located, failed = found[1], set[Uuid]()
        at, upper = max(start, partition.log.log_start_offset), located.last_offset + 1
        while True:
            end = min(located.last_offset + 1, upper)
            search = partial(self._reader.first_at_or_after, located.segment, timestamp, at, end)
            try:
                record = await self._pool.submit(search)
            except (CorruptRemoteData, RemoteResourceNotFound) as error:
                failed.add(located.segment.id.id)
                reason = error
            else:
                if record is not None or end == upper:
                    return record
                at = end
            other = self._locations.other_copy(partition, at, failed)
            if other is None:
                return (await self._search_replicas(partition, timestamp, OffsetGap(at, upper, 0), reason)).found
            located = other

    async def _search_replicas(
        self, partition: Partition, timestamp: int, gap: OffsetGap, reason: Exception
    ) -> ReplicaLookup:
        """Search the followers for the records of a gap. Raise `reason` if none of them has all."""
        result = await self._replicas.first_at_or_after(partition, timestamp, gap.first, gap.next_offset)
        if result is None:
            raise reason
        key = _key(partition)
        if key not in self._on_replicas:
            self._on_replicas[key] = True
            event = "A remote segment cannot be searched; the local log of a follower is searched"
            _log.error(event, partition=partition, offset=gap.first, reason=reason)
        return result

    # ---- holes

    def _last_gap(self, partition: Partition, index: TimestampIndex, local_start: int) -> list[OffsetGap]:
        """Return the gap between remote and local log, if there is one."""
        first = max(index.next_offset, partition.log.log_start_offset)
        return [OffsetGap(first, local_start, _NOT_REMOTE)] if first < local_start else []

    async def _search_gaps(
        self, partition: Partition, gaps: list[OffsetGap], timestamp: int, *, asks_replicas: bool
    ) -> FoundTimestamp | None:
        """Return the first record of `timestamp` or later in a gap that a follower has; None if there is none.

        Raise SegmentMissing if a gap may hold the record.
        """
        for gap in gaps:
            first = max(gap.first, partition.log.log_start_offset)
            if gap.max_timestamp < timestamp or await self._is_older(partition, gap, timestamp):
                continue
            if self._locations.is_held(partition, first):
                self._indexes.pop(_key(partition), None)
            elif self._locations.may_skip_hole(partition, first):
                continue
            missing = SegmentMissing(f"no known remote segment of {partition} holds offset {first}")
            if not asks_replicas:
                raise missing
            result = await self._search_replicas(partition, timestamp, gap._replace(first=first), missing)
            if result.found is not None:
                return result.found
        return None

    async def _is_older(self, partition: Partition, gap: OffsetGap, timestamp: int) -> bool:
        """Whether the first record behind a gap is older than `timestamp`."""
        if gap.max_timestamp == _NOT_REMOTE:
            behind: FoundTimestamp | FoundOffset | None = offset_lookup.found_here(partition, 0)
        else:
            behind = await self._search_segment(partition, gap.next_offset, 0)
        return behind is not None and UNKNOWN < behind.timestamp < timestamp

    # ---- the timestamp index

    async def _index(self, partition: Partition, below: int) -> TimestampIndex:
        """Return the index of a partition's segments up to `below`. Raises RemoteMetadataNotReady."""
        index = self._indexes.setdefault(_key(partition), TimestampIndex())
        added = 0
        while (offset := max(index.next_offset, partition.log.log_start_offset)) < below:
            held = self._locations.next_held(partition, offset)
            if held is None:
                break
            start, (segment, last_offset) = held
            index.append(start, last_offset, segment.max_timestamp_ms, gap_from=offset)
            added += 1
            if added % _ENTRIES_AT_ONCE == 0:
                await self._pause(0)
        return index

    async def _pause(self, pause_ms: float) -> None:
        over: asyncio.Future[None] = self._loop.create_future()
        deadline = self._deadlines.after_ms(pause_ms, partial(over.set_result, None))
        try:
            await over
        finally:
            deadline.cancel()


def _key(partition: Partition) -> TimestampIndexKey:
    return TimestampIndexKey(partition.topic_id, partition.index, partition.leader_epoch)
