"""Fetches of what remote storage alone has (KIP-405): on threads of their own, kept for a reader until it comes back.

A read belongs to a place in a partition, not to a request. Whoever fetches from there waits for it; when the time of a
request is over, the read goes on, and the next request finds its result. So a store slower than any request still makes
readers advance, and a reader that gives up costs one read at most. Reads are bounded in number (those under way or
failing: `remote.log.reader.threads` and `remote.log.reader.max.pending.tasks` together), results in bytes and in age.

Who comes back where its last read ended reads in order. Then a read brings as much as lies at hand, in parts for the
requests to come, the next such read begins when the first of them is delivered, and towards the end of a segment the
next one is made ready. Nothing of that begins unless there is room for it beside what others wait for.

What goes wrong is tried again here, ever less often, for as long as somebody waits. Readers are told of it only when
their time is over: clients ask again at once after an error, and must not turn a store that is down into a storm.

    what happens                          what a reader is told when its time is over
    the store is slow, the quota is used  nothing: an empty answer
    too many reads                        nothing: an empty answer
    metadata is not loaded, or has a hole REPLICA_NOT_AVAILABLE
    the store fails                       KAFKA_STORAGE_ERROR
    what is in the store is damaged       CORRUPT_MESSAGE

librdkafka, the Java client and franz-go alike keep their position at the first two errors, refresh metadata, leave a
follower for the leader, and retry; UNKNOWN_SERVER_ERROR would surface in applications, OFFSET_OUT_OF_RANGE reset them.
The last one, as Kafka's, does surface: nothing passes by itself there. The log tells of an outage once, and as an error
only of what needs an operator.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Final, NamedTuple, TypeVar

from cachetools import LRUCache

from broker.clock import Clock
from broker.logs import EventLog
from broker.runtime.loop.thread_pool import PoolFull, WorkPool
from broker.runtime.loop.waiters import Deadlines, Watches
from broker.runtime.partitions.partition import Partition
from broker.runtime.partitions.partition_reads import FetchParams, bound_of
from broker.runtime.partitions.reads import FetchIsolation, FetchTarget
from broker.runtime.remote_log.locations import Holes, Located, RemoteLocations, SegmentMissing
from broker.runtime.remote_log.outage import RemoteOutage
from broker.runtime.remote_log.quota import UNLIMITED, RemoteReadQuota
from broker.runtime.remote_log.results import KeptResults
from protocol.errors import ErrorCode
from protocol.primitives import Uuid
from storage.index.transaction import AbortedTxn
from storage.tiered.errors import (
    CorruptRemoteData,
    RemoteMetadataNotReady,
    RemoteResourceNotFound,
    RemoteStorageError,
    RetriableRemoteStorageError,
)
from storage.tiered.remote_metadata import RemoteLogMetadataManager
from storage.tiered.segment_metadata import RemoteSegment
from storage.tiered.segments.batch_stream import ReadRange, RemoteBatches, RemoteBlock, block_of, whole_batches
from storage.tiered.segments.reading import SegmentReader, merged

T = TypeVar("T")

RETRY_MS: Final = 100
"""After the first failure; twice as long after each further one, up to the next."""
RETRY_MAX_MS: Final = 2_000
TAKEN_MS: Final = 1_000
"""A result that was delivered stays for others at the same place, such as a second group in lockstep."""
BLOCK_BYTES: Final = 4 * 1024 * 1024
"""What one read in order brings at most."""
SOON_BYTES: Final = BLOCK_BYTES
"""So far from the end of a segment, the next one is made ready."""
PATIENT_ATTEMPTS: Final = 4
"""So often something may be missing, because metadata or a deletion is under way, before an operator is told."""
FOLLOWED_MAX: Final = 1_000
"""Readers of which it is remembered where they are."""

_MAY_BE_LATE = (SegmentMissing, RemoteResourceNotFound)
_log = EventLog("broker.remote_reads")


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoteReadSettings:
    """`wait_max_ms`: `remote.fetch.max.wait.ms`; `reads_max`: `remote.log.reader.threads` and `….max.pending.tasks`
    together; `bytes_per_second`: `remote.log.manager.fetch.max.bytes.per.second`.

    Results nobody has come for yet are kept for `kept_ms`, and all together up to `kept_bytes`. Holes
    in what is remote are skipped after `hole_patience_ms`; -1: never.
    """

    wait_max_ms: int = 500
    reads_max: int = 110
    bytes_per_second: int = 2**63 - 1
    kept_ms: int = 30_000
    kept_bytes: int = 64 * 1024 * 1024
    hole_patience_ms: int = 600_000


@dataclass(slots=True)
class RemoteReadFigures:
    """Counts since the start. `refused`: reads that were not begun because there were too many; `expired`: requests
    whose time was over before all their reads were done.
    """

    requests: int = 0
    bytes: int = 0
    errors: int = 0
    refused: int = 0
    expired: int = 0
    read_ms: float = 0.0


class ReadKey(NamedTuple):
    """A place to read from. Another leader epoch is another place: its history may differ."""

    topic_id: Uuid
    partition: int
    leader_epoch: int
    offset: int
    isolation: FetchIsolation


class Place(NamedTuple):
    """Where in which segment the batch begins that a read in order will want."""

    segment: Uuid
    position: int


class RemoteResult(NamedTuple):
    """Batches, and the transactions to leave out of them as (producer id, first offset); None unless asked for."""

    data: memoryview
    aborted: list[tuple[int, int]] | None


class _NothingYet(Exception):
    """What is there lies above what the reader may see, so far."""


class RemoteRead:
    """One read. `done` fires when there is a `result`; until then `error` is what a reader is told at last."""

    __slots__ = (
        "_reads",
        "attempts",
        "bounds",
        "done",
        "error",
        "is_ahead",
        "key",
        "max_bytes",
        "partition",
        "place",
        "result",
        "task",
        "then",
    )

    def __init__(self, reads: "RemoteReads", key: ReadKey, partition: Partition, max_bytes: int) -> None:
        self._reads = reads
        self.key = key
        self.partition = partition
        self.max_bytes = max_bytes
        self.done = Watches()
        self.bounds = (self.done, partition.marks)
        self.result: RemoteResult | None = None
        self.error = ErrorCode.NONE
        self.attempts = 0
        self.place: Place | None = None
        """Where it begins, if that is known: it is a read in order then."""
        self.is_ahead = False
        """Nobody has asked for it yet."""
        self.then: tuple[ReadKey, Place] | None = None
        """What follows on the read that brought the result."""
        self.task: asyncio.Task[None] | None = None

    @property
    def is_wanted(self) -> bool:
        """Whether anybody waits for it at the moment."""
        return bool(self.done.armed)

    @property
    def is_done(self) -> bool:
        return self.result is not None

    @property
    def aborted(self) -> list[tuple[int, int]] | None:
        """Of the result: (producer id, first offset) of what a reader has to leave out; None unless it asked for it."""
        return None if self.result is None else self.result.aborted

    def records(self, max_bytes: int, *, min_one: bool) -> memoryview:
        """Of the result: the batches that end within `max_bytes`; the first whole if `min_one`."""
        return memoryview(b"") if self.result is None else whole_batches(self.result.data, max_bytes, min_one=min_one)

    def delivered(self) -> None:
        """A reader has got the result."""
        self._reads.on_delivered(self)


class RemoteReads:
    """All reads of a broker. `settings` is asked every time, since most of it may change while the broker runs."""

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
        """Fires, for one at a time of those who were refused, when one read more may begin."""
        self.quota = RemoteReadQuota(clock, quota_window_ms)
        self._reader = reader
        self._locations = RemoteLocations(metadata, Holes(clock, lambda: settings().hole_patience_ms))
        self._pool = pool
        self._loop = loop
        self._deadlines = deadlines
        self._clock = clock
        self._settings = settings
        self._open: dict[ReadKey, RemoteRead] = {}
        self._kept: KeptResults[ReadKey, RemoteRead] = KeptResults(deadlines)
        self._followed: LRUCache[ReadKey, Place] = LRUCache(FOLLOWED_MAX)
        self._prepared: LRUCache[Uuid, bool] = LRUCache(FOLLOWED_MAX)
        self._outage = RemoteOutage()
        self._is_closed = False

    # ---- facts

    @property
    def wait_max_ms(self) -> int:
        """For how long a request waits for its reads."""
        return self._settings().wait_max_ms

    @property
    def open_count(self) -> int:
        """Reads that have no result yet."""
        return len(self._open)

    @property
    def kept_bytes(self) -> int:
        """Results that wait for their readers."""
        return self._kept.size_bytes

    # ---- readers

    def look(self, partition: Partition, target: FetchTarget, reader: FetchParams) -> RemoteRead | None:
        """The read from where `target` stands, begun if need be; None if there are too many already."""
        key = ReadKey(
            partition.topic_id, partition.index, partition.leader_epoch, target.fetch_offset, reader.isolation
        )
        read = self._kept.get(key) or self._open.get(key)
        if read is not None:
            read.is_ahead = False
            return read
        if self._is_closed or len(self._open) >= self._settings().reads_max:
            self.figures.refused += 1
            return None
        return self._begin(RemoteRead(self, key, partition, target.max_bytes), self._followed.pop(key, None))

    def on_delivered(self, read: RemoteRead) -> None:
        """What follows is read ahead for who reads in order, or remembered, to know it by.

        A result that somebody has is the first to go, and stays for a moment at most.
        """
        self._kept.delivered(read.key, read, TAKEN_MS)
        if read.then is None:
            return
        key, place = read.then
        read.then = None
        is_here = key.offset >= read.partition.log.local_log_start_offset
        if is_here or key in self._kept or key in self._open:
            return
        if read.place is None or not self._has_room_ahead():
            self._followed[key] = place
            return
        ahead = RemoteRead(self, key, read.partition, read.max_bytes)
        ahead.is_ahead = True
        self._begin(ahead, place)

    def _begin(self, read: RemoteRead, place: Place | None) -> RemoteRead:
        self._open[read.key] = read
        self.figures.requests += 1
        read.partition.traffic.remote_fetch_requests += 1
        read.place = place
        read.task = asyncio.Task(self._run(read), loop=self._loop)
        return read

    def _has_room_ahead(self) -> bool:
        """Half of the reads, and of what is kept, is for those who ask."""
        settings = self._settings()
        is_paced = settings.bytes_per_second < UNLIMITED
        has_room = self._kept.awaiting_bytes + BLOCK_BYTES <= settings.kept_bytes // 2
        return has_room and not is_paced and not self._is_closed and len(self._open) < settings.reads_max // 2

    def note_expired(self) -> None:
        """A request was answered before its reads were done."""
        self.figures.expired += 1

    def close(self) -> None:
        """Stop waiting, and forget what is kept."""
        self._is_closed = True
        for read in tuple(self._open.values()):
            if read.task is not None:
                read.task.cancel()
        self._open.clear()
        self._kept.clear()

    # ---- one read

    async def _run(self, read: RemoteRead) -> None:
        """Try until there is a result, or until nobody has wanted it for a while."""
        while True:
            try:
                await self._attempt(read)
            except RemoteMetadataNotReady:
                read.error, pause_ms = ErrorCode.REPLICA_NOT_AVAILABLE, RETRY_MS
            except SegmentMissing as error:
                read.error, pause_ms = ErrorCode.REPLICA_NOT_AVAILABLE, self._note_failure(read, error)
            except (PoolFull, _NothingYet):
                read.error, pause_ms = ErrorCode.NONE, RETRY_MS
            except CorruptRemoteData as error:
                read.error, pause_ms = ErrorCode.CORRUPT_MESSAGE, self._note_failure(read, error)
            except Exception as error:  # noqa: BLE001  remote storage may be anybody's code; what it raised is logged
                read.error, pause_ms = ErrorCode.KAFKA_STORAGE_ERROR, self._note_failure(read, error)
            else:
                return
            if not await self._pause_until_wanted(read, pause_ms):
                self._end(read)
                return

    def _end(self, read: RemoteRead) -> None:
        """It is under way no longer."""
        del self._open[read.key]
        self.freed.fire_first()

    def _note_failure(self, read: RemoteRead, error: Exception) -> int:
        """Count it and tell of it; milliseconds until the next attempt."""
        self.figures.errors += 1
        read.partition.traffic.remote_fetch_errors += 1
        self._tell(read, error)
        pause_ms = min(RETRY_MAX_MS, RETRY_MS << min(read.attempts, 10))
        read.attempts += 1
        return pause_ms

    def _tell(self, read: RemoteRead, error: Exception) -> None:
        """Of what may pass, once in an outage; of what does not, once for each read, and with all that is known of it
        where nobody expected it."""
        where, offset = str(read.partition), read.key.offset
        if isinstance(error, RetriableRemoteStorageError):
            if self._outage.failed(self._clock.monotonic_ms()):
                _log.warning("Remote storage cannot be read now", partition=where, offset=offset, reason=error)
        elif isinstance(error, _MAY_BE_LATE):
            if read.attempts == PATIENT_ATTEMPTS:
                _log.error("Remote storage lacks what it should have", partition=where, offset=offset, reason=error)
        elif not isinstance(error, RemoteStorageError):
            _log.error("Reading from remote storage failed", error, partition=where, offset=offset, reason=error)
        elif not read.attempts:
            _log.error("Reading from remote storage failed", partition=where, offset=offset, reason=error)

    def _note_success(self) -> None:
        now_ms = self._clock.monotonic_ms()
        failures = self._outage.succeeded(now_ms)
        if failures:
            seconds = round((now_ms - self._outage.began_ms) / 1000)
            _log.info("Remote storage can be read again", failures=failures, seconds=seconds)

    async def _pause_until_wanted(self, read: RemoteRead, pause_ms: int) -> bool:
        """Whether anybody wants the read after the pause, or a while later: who was told of a failure may come back."""
        patience_ms = 0.0 if read.is_ahead else float(self._settings().kept_ms)
        while patience_ms > 0:
            await self._pause(pause_ms)
            if read.is_wanted:
                return True
            patience_ms -= pause_ms
        return False

    async def _attempt(self, read: RemoteRead) -> None:
        """Have the result. Raises what locating and reading raise, PoolFull, and _NothingYet."""
        located = self._locations.locate(read.partition, read.key.offset)
        rate, wanted_bytes = self._settings().bytes_per_second, self._block_bytes(read) or read.max_bytes
        wait_ms = self.quota.reserve(wanted_bytes, rate)
        read_bytes = 0
        try:
            if wait_ms:
                read.error = ErrorCode.NONE
                await self._pause(wait_ms)
            began_ms = self._clock.monotonic_ms()
            located, block = await self._first_block(read, located)
            read_bytes = block.size_bytes
            aborted = await self._aborted(read, located, block)
        finally:
            self.quota.give_back(max(0, wanted_bytes - read_bytes), rate)
        self._note_success()
        self.figures.read_ms += self._clock.monotonic_ms() - began_ms
        self._keep(read, located.segment, block, aborted)
        if read.place is not None:
            self._prepare_next(read, located, block)

    def _block_bytes(self, read: RemoteRead) -> int:
        """How much a read may bring beyond what was asked for, and more than that: 0 unless it is one in order."""
        is_paced = self._settings().bytes_per_second < UNLIMITED
        return 0 if read.place is None or is_paced else max(read.max_bytes, BLOCK_BYTES)

    async def _first_block(self, read: RemoteRead, located: Located) -> tuple[Located, RemoteBlock]:
        """From the first segment that has any: compaction may have left nothing of some."""
        offset = read.key.offset
        while True:
            bound = bound_of(read.partition.log, read.key.isolation)
            upper = min(located.last_offset + 1, bound)
            if upper <= offset:
                raise _NothingYet
            block = await self._pool.submit(partial(self._reader.block, *self._wanted(read, located, offset, upper)))
            if block.size_bytes:
                return located, block
            offset = located.last_offset + 1
            if offset > bound:
                raise _NothingYet
            if offset >= read.partition.log.local_log_start_offset:
                return located, block_of(self._local_batches(read, offset, bound))
            located = self._locations.locate(read.partition, offset)

    def _wanted(self, read: RemoteRead, located: Located, offset: int, upper: int) -> tuple[RemoteSegment, ReadRange]:
        segment, place = located.segment, read.place
        position = place.position if place is not None and place.segment == segment.id.id else None
        return segment, ReadRange(offset, upper, read.max_bytes, self._block_bytes(read), position)

    def _prepare_next(self, read: RemoteRead, located: Located, block: RemoteBlock) -> None:
        """Near the end of a segment, have the beginning of the next under way, once. That is nothing to fail by."""
        segment, offset = located.segment, located.last_offset + 1
        is_near = segment.size_bytes - block.next_position <= SOON_BYTES
        if not is_near or offset >= read.partition.log.local_log_start_offset or self._prepared.get(segment.id.id):
            return
        self._prepared[segment.id.id] = True
        with_aborted = read.key.isolation is FetchIsolation.LAST_STABLE
        try:
            following = self._locations.locate(read.partition, offset).segment
            work = partial(self._reader.prepare, following, with_aborted=with_aborted)
            self._pool.submit(work).add_done_callback(_forgive)
        except (RemoteMetadataNotReady, SegmentMissing, PoolFull):
            return

    def _local_batches(self, read: RemoteRead, offset: int, bound: int) -> RemoteBatches:
        """Compaction left nothing up to what is on this disk: so that is what comes next."""
        found = read.partition.log.read(offset, read.max_bytes, bound)
        if not len(found.data):
            raise _NothingYet
        return RemoteBatches(memoryview(found.data), found.next_offset, is_transactional=True)

    async def _aborted(self, read: RemoteRead, located: Located, block: RemoteBlock) -> list[AbortedTxn] | None:
        """The markers may be in any later segment, in remote storage and then here, until one tells that all before
        it was decided."""
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
                ask = partial(self._reader.aborted, segment, last_offset, offset, upper)
                more, is_complete = await self._pool.submit(ask)
                aborted = merged(aborted, more)
                if is_complete:
                    return aborted
            further = self._locations.with_aborted(read.partition, last_offset + 1)
        return merged(aborted, read.partition.log.aborted_transactions(offset, upper))

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
        """The first part is the result of the read, each further one that of a read that nobody has asked for yet."""
        size_bytes, settings = block.size_bytes, self._settings()
        self.figures.bytes += size_bytes
        read.partition.traffic.remote_fetch_bytes += size_bytes
        self._end(read)
        then = read.key._replace(offset=block.next_offset), Place(segment.id.id, block.next_position)
        key, results = read.key, dict[ReadKey, RemoteRead]()
        for part in block.parts:
            if key == read.key or (key not in self._open and key not in self._kept):
                each = results[key] = read if key == read.key else self._part_of(read, key)
                each.result, each.error = _result(key.offset, part, aborted), ErrorCode.NONE
                each.then = then
            key = key._replace(offset=part.next_offset)
        self._kept.put(results, block.held_bytes, settings.kept_ms, settings.kept_bytes)
        read.done.fire()

    def _part_of(self, read: RemoteRead, key: ReadKey) -> RemoteRead:
        part = RemoteRead(self, key, read.partition, read.max_bytes)
        part.place = read.place
        return part


def _result(offset: int, part: RemoteBatches, aborted: list[AbortedTxn] | None) -> RemoteResult:
    """Of all who aborted, a reader of a part must be told of those with records in it, and of no transaction that ended
    before: it would leave out what the same producer wrote next."""
    if aborted is None:
        return RemoteResult(part.data, None)
    upper = part.next_offset
    told = [
        (txn.producer_id, txn.first_offset) for txn in aborted if txn.last_offset >= offset and txn.first_offset < upper
    ]
    return RemoteResult(part.data, told)


def _forgive(done: "asyncio.Future[None]") -> None:
    """Whoever reads there next meets the error, if it lasts."""
    if not done.cancelled():
        done.exception()
