"""Background reads of records that only remote storage holds (KIP-405), on the threads of the remote reader pool.

A read belongs to a position in a partition, not to a request. All requests for that position wait for the same read;
when the time of a request is over, the read goes on, and the next request finds its result. So readers advance even if
the store is slower than any request, and a reader that gives up costs one read at most. The number of open reads is
limited (`remote.log.reader.threads` and `remote.log.reader.max.pending.tasks` together), and so are the bytes and the
age of results.

A reader that returns where its last read ended reads sequentially. A sequential read brings a large block, in parts for
the requests to come; the next one begins when the first part is delivered; and near the end of a segment the next
segment is prepared. Prefetching begins only if there is room for it beside the reads that requests wait for.

A read that fails is retried, with growing pauses, for as long as a request waits for it. A request gets the error only
when its time is over: clients retry at once after an error, and would load a store that is down.

If a segment is lost or damaged, another finished segment with the same records is read: segments overlap after changes
of the leader. If there is none, the leader reads from the local log of a follower that still has the records.

    cause                                 response when the time of the request is over
    the store is slow, the quota is used  empty
    too many reads                        empty
    metadata is not loaded, or has a hole REPLICA_NOT_AVAILABLE
    the store fails                       KAFKA_STORAGE_ERROR
    the stored data are damaged           CORRUPT_MESSAGE

librdkafka, the Java client and franz-go keep their position at the first two errors, refresh metadata, leave a
follower for the leader, and retry. UNKNOWN_SERVER_ERROR would surface in applications, and OFFSET_OUT_OF_RANGE would
reset them. CORRUPT_MESSAGE does surface, as in Kafka: damaged data do not recover by themselves. The log reports an
outage once, and uses the error level only for failures that need an operator.
"""

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Final, TypeVar

from cachetools import LRUCache, TTLCache

from broker.clock import Clock
from broker.fetch.remote_reads.failure_log import MISSING_ATTEMPTS, FailureLog
from broker.fetch.remote_reads.figures import RemoteReadFigures
from broker.fetch.remote_reads.quota import UNLIMITED, RemoteReadQuota
from broker.fetch.remote_reads.read import ReadKey, RemoteRead, RemoteReadResult, SegmentPosition, read_result
from broker.fetch.remote_reads.replica_copies import NoReplicaCopies, ReplicaCopies
from broker.fetch.remote_reads.results import KeptResults
from broker.runtime.loop.thread_pool import PoolFull, WorkPool
from broker.runtime.loop.waiters import Deadlines, Watches
from broker.runtime.partitions.partition import Partition
from broker.runtime.partitions.partition_reads import FetchParams, bound_of
from broker.runtime.partitions.reads import FetchIsolation, FetchTarget
from broker.runtime.remote_log.locations import Holes, Located, RemoteLocations, SegmentMissing
from protocol.errors import ErrorCode
from protocol.lazy_dataclass import lazy_dataclass
from protocol.primitives import Uuid
from storage.index.transaction import AbortedTxn
from storage.tiered.errors import CorruptRemoteData, RemoteMetadataNotReady, RemoteResourceNotFound
from storage.tiered.remote_metadata import RemoteLogMetadataManager
from storage.tiered.segment_metadata import RemoteSegment
from storage.tiered.segments.batch_stream import ReadRange, RemoteBatches, RemoteBlock, block_of
from storage.tiered.segments.reading import SegmentReader, merged

T = TypeVar("T")

RETRY_MS: Final = 100
"""Pause after the first failure; doubled after each further one, up to `RETRY_MAX_MS`."""
RETRY_MAX_MS: Final = 2_000
DELIVERED_MS: Final = 1_000
"""Time for which a delivered result stays for other readers of the position, such as a second group in lockstep."""
BLOCK_BYTES: Final = 4 * 1024 * 1024
"""Limit for one sequential read."""
PREPARE_BYTES: Final = BLOCK_BYTES
"""Distance from the end of a segment at which the next one is prepared."""
UNREADABLE_MS: Final = 60_000
"""Time for which another copy is read before a segment that was lost or damaged is tried again."""
POSITIONS_MAX: Final = 1_000
"""Number of readers whose next position is remembered."""


@lazy_dataclass(frozen=True, slots=True, kw_only=True)
class RemoteReadSettings:
    """Settings of the reads.

    `wait_max_ms` is `remote.fetch.max.wait.ms`; `reads_max` is `remote.log.reader.threads` and `….max.pending.tasks`
    together; `bytes_per_second` is `remote.log.manager.fetch.max.bytes.per.second`. Results that are not delivered
    are kept for `kept_ms`, and all results together up to `kept_bytes`. Holes in the remote log are skipped after
    `hole_patience_ms`; -1: never.
    """

    wait_max_ms: int = 500
    reads_max: int = 110
    bytes_per_second: int = 2**63 - 1
    kept_ms: int = 30_000
    kept_bytes: int = 64 * 1024 * 1024
    hole_patience_ms: int = 600_000


class _NotReadableYet(Exception):
    """The records at the position lie above the offset up to which the reader may read."""


class RemoteReads:
    """All remote reads of a broker. `settings` is called for every use, since most settings are dynamic."""

    def __init__(
        self,
        reader: SegmentReader,
        metadata: RemoteLogMetadataManager,
        pool: WorkPool,
        loop: asyncio.AbstractEventLoop,
        deadlines: Deadlines,
        clock: Clock,
        settings: Callable[[], RemoteReadSettings],
        *,
        quota_window_ms: int = 11_000,
    ) -> None:
        self.figures = RemoteReadFigures()
        self.freed = Watches()
        """Fires for one refused request at a time when another read may begin."""
        self.quota = RemoteReadQuota(clock, quota_window_ms)
        self._reader = reader
        self.holes = Holes(clock, lambda: settings().hole_patience_ms)
        """The holes in remote logs that reads have met."""
        self._locations = RemoteLocations(metadata, self.holes)
        self._pool = pool
        self._loop = loop
        self._deadlines = deadlines
        self._clock = clock
        self._settings = settings
        self._open: dict[ReadKey, RemoteRead] = {}
        self._kept: KeptResults[ReadKey, RemoteRead] = KeptResults(deadlines)
        self._positions: LRUCache[ReadKey, SegmentPosition] = LRUCache(POSITIONS_MAX)
        self._prepared: LRUCache[Uuid, bool] = LRUCache(POSITIONS_MAX)
        self._unreadable: TTLCache[Uuid, bool] = TTLCache(POSITIONS_MAX, UNREADABLE_MS, clock.monotonic_ms)
        self._failures = FailureLog(clock)
        self._replicas: ReplicaCopies = NoReplicaCopies()
        self._is_closed = False

    def use_replicas(self, replicas: ReplicaCopies) -> None:
        """Read lost and damaged records from other replicas from now on."""
        self._replicas = replicas

    # ---- facts

    @property
    def wait_max_ms(self) -> int:
        """Return the time for which a request waits for its reads."""
        return self._settings().wait_max_ms

    @property
    def open_count(self) -> int:
        """The number of reads without a result."""
        return len(self._open)

    @property
    def kept_bytes(self) -> int:
        """Memory of the results that are kept for requests."""
        return self._kept.size_bytes

    # ---- readers

    def find_or_begin(self, partition: Partition, target: FetchTarget, reader: FetchParams) -> RemoteRead | None:
        """Return the read from the target's offset, and begin it if necessary; None if too many are open."""
        key = ReadKey(
            partition.topic_id, partition.index, partition.leader_epoch, target.fetch_offset, reader.isolation
        )
        read = self._kept.get(key) or self._open.get(key)
        if read is not None:
            read.is_prefetch = False
            return read
        if self._is_closed or len(self._open) >= self._settings().reads_max:
            self.figures.refused += 1
            return None
        return self._begin(self._read(key, partition, target.max_bytes), self._positions.pop(key, None))

    def _on_delivered(self, read: RemoteRead) -> None:
        """Prefetch the next position of a sequential reader; remember it for any other, to recognize a sequential one.

        The delivered result is the first to be evicted, and stays for `DELIVERED_MS` at most.
        """
        self._kept.delivered(read.key, read, DELIVERED_MS)
        if read.next is None:
            return
        key, position = read.next
        read.next = None
        is_local = key.offset >= read.partition.log.local_log_start_offset
        if is_local or key in self._kept or key in self._open:
            return
        if read.position is None or not self._has_room_to_prefetch():
            self._positions[key] = position
            return
        prefetch = self._read(key, read.partition, read.max_bytes)
        prefetch.is_prefetch = True
        self._begin(prefetch, position)

    def _read(self, key: ReadKey, partition: Partition, max_bytes: int) -> RemoteRead:
        return RemoteRead(key, partition, max_bytes, self._on_delivered)

    def _begin(self, read: RemoteRead, position: SegmentPosition | None) -> RemoteRead:
        self._open[read.key] = read
        self.figures.requests += 1
        read.partition.traffic.remote_fetch_requests += 1
        read.position = position
        read.task = asyncio.Task(self._run(read), loop=self._loop)
        return read

    def _has_room_to_prefetch(self) -> bool:
        """Whether a prefetch may begin; half of the reads and of the kept bytes is reserved for requests."""
        settings = self._settings()
        is_paced = settings.bytes_per_second < UNLIMITED
        has_room = self._kept.awaiting_bytes + BLOCK_BYTES <= settings.kept_bytes // 2
        return has_room and not is_paced and not self._is_closed and len(self._open) < settings.reads_max // 2

    def note_expired(self) -> None:
        """Count a request that was answered before its reads were done."""
        self.figures.expired += 1

    def close(self) -> None:
        """Cancel all reads and drop all results."""
        self._is_closed = True
        for read in tuple(self._open.values()):
            if read.task is not None:
                read.task.cancel()
        self._open.clear()
        self._kept.clear()

    # ---- one read

    async def _run(self, read: RemoteRead) -> None:
        """Retry until there is a result, or until no request has waited for the read for `kept_ms`."""
        while True:
            try:
                await self._attempt(read)
            except RemoteMetadataNotReady:
                read.error, pause_ms = ErrorCode.REPLICA_NOT_AVAILABLE, RETRY_MS
            except SegmentMissing as error:
                read.error, pause_ms = ErrorCode.REPLICA_NOT_AVAILABLE, self._note_failure(read, error)
            except _NotReadableYet:
                read.error, pause_ms = ErrorCode.NONE, RETRY_MS
            except PoolFull:
                self.figures.refused += 1
                read.error, pause_ms = ErrorCode.NONE, RETRY_MS
            except CorruptRemoteData as error:
                read.error, pause_ms = ErrorCode.CORRUPT_MESSAGE, self._note_failure(read, error)
            except Exception as error:  # noqa: BLE001  a plug-in may raise anything; the error is logged
                read.error, pause_ms = ErrorCode.KAFKA_STORAGE_ERROR, self._note_failure(read, error)
            else:
                return
            if not await self._pause_until_wanted(read, pause_ms):
                self._end(read)
                return

    def _end(self, read: RemoteRead) -> None:
        """Remove a read from the open ones."""
        del self._open[read.key]
        self.freed.fire_first()

    def _note_failure(self, read: RemoteRead, error: Exception) -> int:
        """Count and log a failure; return the milliseconds until the next attempt."""
        self._count_error(read)
        self._failures.note_failure(read, error)
        pause_ms = min(RETRY_MAX_MS, RETRY_MS << min(read.attempts, 10))
        read.attempts += 1
        return pause_ms

    async def _pause_until_wanted(self, read: RemoteRead, pause_ms: int) -> bool:
        """Whether a request waits for the read after the pause; clients that got an error may return for `kept_ms`."""
        patience_ms = 0.0 if read.is_prefetch else float(self._settings().kept_ms)
        while patience_ms > 0:
            await self._pause(pause_ms)
            if read.is_wanted:
                return True
            patience_ms -= pause_ms
        return False

    async def _attempt(self, read: RemoteRead) -> None:
        """Read once. Raises what locating and reading raise, PoolFull, and _NotReadableYet."""
        try:
            located = self._locations.locate(read.partition, read.key.offset)
        except SegmentMissing as error:
            if self._read_local_behind_hole(read):
                return
            if read.attempts < MISSING_ATTEMPTS or not await self._read_from_replica(read, error):
                raise
            return
        try:
            await self._read_from_storage(read, located)
        except (CorruptRemoteData, RemoteResourceNotFound) as error:
            if not await self._read_from_replica(read, error):
                raise
            self._count_error(read)

    async def _read_from_storage(self, read: RemoteRead, located: Located) -> None:
        rate, wanted_bytes = self._settings().bytes_per_second, self._block_bytes(read) or read.max_bytes
        wait_ms = self.quota.reserve(wanted_bytes, rate)
        read_bytes = 0
        try:
            if wait_ms:
                read.error = ErrorCode.NONE
                await self._wait_for_quota(wait_ms)
            began_ms = self._clock.monotonic_ms()
            located, block, aborted = await self._from_any_copy(read, located)
            read_bytes = block.size_bytes
        finally:
            self.quota.give_back(max(0, wanted_bytes - read_bytes), rate)
        self._failures.note_success()
        self.figures.read_ms += self._clock.monotonic_ms() - began_ms
        self._keep(read, located.segment, block, aborted)
        if read.position is not None:
            self._prepare_next(read, located, block)

    async def _from_any_copy(
        self, read: RemoteRead, located: Located
    ) -> tuple[Located, RemoteBlock, list[AbortedTxn] | None]:
        """Read the first batches, from another segment with the same records if one is lost or damaged."""
        offset, failed = read.key.offset, set[Uuid]()
        if located.segment.id.id in self._unreadable:
            located = self._locations.other_copy(read.partition, offset, self._unreadable) or located
        while True:
            try:
                located, block = await self._first_block(read, located)
                return located, block, await self._aborted(read, located, block)
            except (CorruptRemoteData, RemoteResourceNotFound) as error:
                failed.add(located.segment.id.id)
                other = self._locations.other_copy(read.partition, offset, failed)
                if other is None:
                    raise
                self._note_unreadable(read, located.segment, error)
                located = other

    async def _read_from_replica(self, read: RemoteRead, error: Exception) -> bool:
        """Read from the local log of another replica; return whether one has the offset."""
        found = await self._replicas.read(read.partition, read.key.offset, read.max_bytes, read.key.isolation)
        if found is None:
            return False
        self._failures.note_replica(read, error)
        self.figures.from_replicas += 1
        self._complete(read, RemoteReadResult(found.data, found.aborted))
        return True

    def _read_local_behind_hole(self, read: RemoteRead) -> bool:
        """Read the first local records if all offsets before them are given up; return whether they are."""
        log, isolation = read.partition.log, read.key.isolation
        start = self._locations.local_start_behind_hole(read.partition, read.key.offset)
        if start is None:
            return False
        batches = self._local_batches(read, start, bound_of(log, isolation))
        is_committed = isolation is FetchIsolation.LAST_STABLE
        aborted = list(log.aborted_transactions(start, batches.next_offset)) if is_committed else None
        self._complete(read, read_result(start, batches, aborted))
        return True

    def _complete(self, read: RemoteRead, result: RemoteReadResult) -> None:
        """End a read whose result is not from remote storage. The next read begins without a known position."""
        self._end(read)
        settings = self._settings()
        read.result, read.error = result, ErrorCode.NONE
        self._kept.put({read.key: read}, len(result.data), settings.kept_ms, settings.kept_bytes)
        read.done.fire()

    def _note_unreadable(self, read: RemoteRead, segment: RemoteSegment, error: Exception) -> None:
        """Prefer other copies of a segment's records for a while."""
        if segment.id.id not in self._unreadable:
            self._failures.note_other_copy(read, error)
        self._unreadable[segment.id.id] = True
        self._count_error(read)

    def _count_error(self, read: RemoteRead) -> None:
        self.figures.errors += 1
        read.partition.traffic.remote_fetch_errors += 1

    def _block_bytes(self, read: RemoteRead) -> int:
        """Return the limit of a sequential read, at least the bytes asked for; 0 if the read is not sequential."""
        is_paced = self._settings().bytes_per_second < UNLIMITED
        return 0 if read.position is None or is_paced else max(read.max_bytes, BLOCK_BYTES)

    async def _first_block(self, read: RemoteRead, located: Located) -> tuple[Located, RemoteBlock]:
        """Return the first batches from the read's offset; compaction may have emptied some segments."""
        offset = read.key.offset
        while True:
            bound = bound_of(read.partition.log, read.key.isolation)
            upper = min(located.last_offset + 1, bound)
            if upper <= offset:
                raise _NotReadableYet
            block = await self._pool.submit(partial(self._reader.block, *self._wanted(read, located, offset, upper)))
            if block.size_bytes:
                return located, block
            offset = located.last_offset + 1
            if offset > bound:
                raise _NotReadableYet
            if offset >= read.partition.log.local_log_start_offset:
                return located, block_of(self._local_batches(read, offset, bound))
            located = self._locations.locate(read.partition, offset)

    def _wanted(self, read: RemoteRead, located: Located, offset: int, upper: int) -> tuple[RemoteSegment, ReadRange]:
        segment, known = located.segment, read.position
        position = known.position if known is not None and known.segment == segment.id.id else None
        return segment, ReadRange(offset, upper, read.max_bytes, self._block_bytes(read), position)

    def _prepare_next(self, read: RemoteRead, located: Located, block: RemoteBlock) -> None:
        """Begin to load the next segment's indexes near the end of a segment, once; errors are ignored."""
        segment, offset = located.segment, located.last_offset + 1
        is_near = segment.size_bytes - block.next_position <= PREPARE_BYTES
        if not is_near or offset >= read.partition.log.local_log_start_offset or self._prepared.get(segment.id.id):
            return
        self._prepared[segment.id.id] = True
        with_aborted = read.key.isolation is FetchIsolation.LAST_STABLE
        try:
            following = self._locations.locate(read.partition, offset).segment
            work = partial(self._reader.prepare, following, with_aborted=with_aborted)
            self._pool.submit(work).add_done_callback(_ignore_error)
        except (RemoteMetadataNotReady, SegmentMissing, PoolFull):
            return

    def _local_batches(self, read: RemoteRead, offset: int, bound: int) -> RemoteBatches:
        """Return local batches, where nothing is left to read from remote storage before them."""
        found = read.partition.log.read(offset, read.max_bytes, bound)
        if not len(found.data):
            raise _NotReadableYet
        return RemoteBatches(memoryview(found.data), found.next_offset, is_transactional=True)

    async def _aborted(self, read: RemoteRead, located: Located, block: RemoteBlock) -> list[AbortedTxn] | None:
        """Return the aborted transactions of a block.

        Their markers may be in any later segment, remote or local. The search ends at a segment whose index says that
        all transactions of the block are decided.
        """
        if read.key.isolation is not FetchIsolation.LAST_STABLE:
            return None
        if not any(part.is_transactional for part in block.parts):
            return []
        offset, upper = read.key.offset, block.next_offset
        aborted: list[AbortedTxn] = []
        further: Located | None = located
        while further is not None:
            segment, last_offset = further
            if not segment.txn_index_empty:
                search = partial(self._reader.aborted, segment, last_offset, offset, upper)
                more, is_complete = await self._pool.submit(search)
                aborted = merged(aborted, more)
                if is_complete:
                    return aborted
            further = self._locations.with_aborted(read.partition, last_offset + 1)
        return merged(aborted, read.partition.log.aborted_transactions(offset, upper))

    async def _wait_for_quota(self, wait_ms: float) -> None:
        self.figures.waiting_for_quota += 1
        try:
            await self._pause(wait_ms)
        finally:
            self.figures.waiting_for_quota -= 1

    async def _pause(self, pause_ms: float) -> None:
        over: asyncio.Future[None] = self._loop.create_future()
        deadline = self._deadlines.after_ms(pause_ms, partial(over.set_result, None))
        try:
            await over
        finally:
            deadline.cancel()

    # ---- results

    def _keep(
        self, read: RemoteRead, segment: RemoteSegment, block: RemoteBlock, aborted: list[AbortedTxn] | None
    ) -> None:
        """Keep the block: its first part is the result of the read, the others are results of prefetched reads."""
        size_bytes, settings = block.size_bytes, self._settings()
        self.figures.bytes += size_bytes
        read.partition.traffic.remote_fetch_bytes += size_bytes
        self._end(read)
        following = read.key._replace(offset=block.next_offset), SegmentPosition(segment.id.id, block.next_position)
        key, results = read.key, dict[ReadKey, RemoteRead]()
        for part in block.parts:
            if key == read.key or (key not in self._open and key not in self._kept):
                each = results[key] = read if key == read.key else self._part_of(read, key)
                each.result, each.error = read_result(key.offset, part, aborted), ErrorCode.NONE
                each.next = following
            key = key._replace(offset=part.next_offset)
        self._kept.put(results, block.held_bytes, settings.kept_ms, settings.kept_bytes)
        read.done.fire()

    def _part_of(self, read: RemoteRead, key: ReadKey) -> RemoteRead:
        part = self._read(key, read.partition, read.max_bytes)
        part.position = read.position
        return part


def _ignore_error(done: "asyncio.Future[None]") -> None:
    """Ignore the error of a preparation; a read of the segment meets it again if it lasts."""
    if not done.cancelled():
        done.exception()
