"""Fetches of what remote storage alone has (KIP-405): on threads of their own, kept for a reader until it comes back.

A read belongs to a place in a partition, not to a request. Whoever fetches from there waits for it; when the time of a
request is over, the read goes on, and the next request finds its result. So a store slower than any request still makes
readers advance, and a reader that gives up costs one read at most. Reads are bounded in number (those under way or
failing: `remote.log.reader.threads` and `remote.log.reader.max.pending.tasks` together), results in bytes and in age.

What goes wrong is tried again here, ever less often, for as long as somebody waits. Readers are told of it only when
their time is over: clients ask again at once after an error, and must not turn a store that is down into a storm.

    what happens                          what a reader is told when its time is over
    the store is slow, the quota is used  nothing: an empty answer
    too many reads                        nothing: an empty answer
    metadata is not loaded, or has a hole REPLICA_NOT_AVAILABLE
    the store fails, its data is damaged  KAFKA_STORAGE_ERROR

librdkafka, the Java client and franz-go alike keep their position at both errors, refresh metadata, leave a follower
for the leader, and retry; UNKNOWN_SERVER_ERROR would surface in applications, OFFSET_OUT_OF_RANGE reset them.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Final, NamedTuple, TypeVar

from broker.clock import Clock
from broker.logs import EventLog
from broker.runtime.partition import Partition
from broker.runtime.partition_reads import Reader, bound_of
from broker.runtime.reads import FetchTarget, Isolation
from broker.runtime.remote_locations import Located, RemoteLocations, SegmentMissing
from broker.runtime.remote_quota import RemoteReadQuota
from broker.runtime.thread_pool import PoolFull, WorkPool
from broker.runtime.waiters import Deadline, Deadlines, Watches
from protocol.errors import ErrorCode
from protocol.primitives import Uuid
from storage.index.transaction import AbortedTxn
from storage.tiered.errors import RemoteMetadataNotReady, RemoteStorageError
from storage.tiered.remote_metadata import RemoteLogMetadataManager
from storage.tiered.segment_reading import ReadRange, RemoteBatches, SegmentReader, merged, whole_batches

T = TypeVar("T")

RETRY_MS: Final = 100
"""After the first failure; twice as long after each further one, up to the next."""
RETRY_MAX_MS: Final = 2_000
TAKEN_MS: Final = 1_000
"""A result that was delivered stays for others at the same place, such as a second group in lockstep."""

_log = EventLog("broker.remote_reads")


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoteReadSettings:
    """`wait_max_ms`: `remote.fetch.max.wait.ms`; `reads_max`: `remote.log.reader.threads` and `….max.pending.tasks`
    together; `bytes_per_second`: `remote.log.manager.fetch.max.bytes.per.second`.

    Results nobody has come for yet are kept for `kept_ms`, and all together up to `kept_bytes`.
    """

    wait_max_ms: int = 500
    reads_max: int = 110
    bytes_per_second: int = 2**63 - 1
    kept_ms: int = 30_000
    kept_bytes: int = 64 * 1024 * 1024


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
    isolation: Isolation


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
        "deadline",
        "done",
        "error",
        "key",
        "max_bytes",
        "partition",
        "result",
        "task",
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
        self.deadline: Deadline | None = None
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
        self._locations = RemoteLocations(metadata)
        self._pool = pool
        self._loop = loop
        self._deadlines = deadlines
        self._clock = clock
        self._settings = settings
        self._open: dict[ReadKey, RemoteRead] = {}
        self._kept: OrderedDict[ReadKey, RemoteRead] = OrderedDict()  # the first goes first
        self._kept_bytes = 0
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
        return self._kept_bytes

    # ---- readers

    def look(self, partition: Partition, target: FetchTarget, reader: Reader) -> RemoteRead | None:
        """The read from where `target` stands, begun if need be; None if there are too many already."""
        key = ReadKey(
            partition.topic_id, partition.index, partition.leader_epoch, target.fetch_offset, reader.isolation
        )
        read = self._kept.get(key) or self._open.get(key)
        if read is not None:
            return read
        if self._is_closed or len(self._open) >= self._settings().reads_max:
            self.figures.refused += 1
            return None
        read = self._open[key] = RemoteRead(self, key, partition, target.max_bytes)
        self.figures.requests += 1
        partition.traffic.remote_fetch_requests += 1
        read.task = asyncio.Task(self._run(read), loop=self._loop)
        return read

    def on_delivered(self, read: RemoteRead) -> None:
        """A result that somebody has is the first to go, and stays for a moment at most."""
        if self._kept.get(read.key) is read:
            self._kept.move_to_end(read.key, last=False)
            self._keep_for(read, TAKEN_MS)

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
        for read in tuple(self._kept.values()):
            self._drop(read)

    # ---- one read

    async def _run(self, read: RemoteRead) -> None:
        """Try until there is a result, or until nobody has wanted it for a while."""
        while True:
            try:
                result = await self._attempt(read)
            except RemoteMetadataNotReady:
                read.error, pause_ms = ErrorCode.REPLICA_NOT_AVAILABLE, RETRY_MS
            except SegmentMissing as error:
                read.error, pause_ms = ErrorCode.REPLICA_NOT_AVAILABLE, self._note_failure(read, error)
            except (PoolFull, _NothingYet):
                read.error, pause_ms = ErrorCode.NONE, RETRY_MS
            except Exception as error:  # noqa: BLE001  remote storage may be anybody's code; what it raised is logged
                read.error, pause_ms = ErrorCode.KAFKA_STORAGE_ERROR, self._note_failure(read, error)
            else:
                self._keep(read, result)
                return
            if not await self._pause_until_wanted(read, pause_ms):
                self._end(read)
                return

    def _end(self, read: RemoteRead) -> None:
        """It is under way no longer."""
        del self._open[read.key]
        self.freed.fire_first()

    def _note_failure(self, read: RemoteRead, error: Exception) -> int:
        """Count it, say it once for as long as it lasts, or with all that is known of it where nobody expected it;
        milliseconds until the next attempt."""
        self.figures.errors += 1
        read.partition.traffic.remote_fetch_errors += 1
        unexpected = None if isinstance(error, RemoteStorageError) else error
        if not read.attempts or unexpected is not None:
            where, offset = str(read.partition), read.key.offset
            _log.error("Reading from remote storage failed", unexpected, partition=where, offset=offset, reason=error)
        pause_ms = min(RETRY_MAX_MS, RETRY_MS << min(read.attempts, 10))
        read.attempts += 1
        return pause_ms

    async def _pause_until_wanted(self, read: RemoteRead, pause_ms: int) -> bool:
        """Whether anybody wants the read after the pause, or a while later: who was told of a failure may come back."""
        patience_ms = float(self._settings().kept_ms)
        while patience_ms > 0:
            await self._pause(pause_ms)
            if read.is_wanted:
                return True
            patience_ms -= pause_ms
        return False

    async def _attempt(self, read: RemoteRead) -> RemoteResult:
        """Raises what locating and reading raise, PoolFull, and _NothingYet."""
        located = self._locations.locate(read.partition, read.key.offset)
        rate = self._settings().bytes_per_second
        wait_ms = self.quota.reserve(read.max_bytes, rate)
        found = RemoteBatches(memoryview(b""), read.key.offset)
        try:
            if wait_ms:
                read.error = ErrorCode.NONE
                await self._pause(wait_ms)
            began_ms = self._clock.monotonic_ms()
            located, found = await self._first_batches(read, located)
            aborted = await self._aborted(read, located, found)
        finally:
            self.quota.give_back(max(0, read.max_bytes - len(found.data)), rate)
        self.figures.read_ms += self._clock.monotonic_ms() - began_ms
        return RemoteResult(found.data, aborted)

    async def _first_batches(self, read: RemoteRead, located: Located) -> tuple[Located, RemoteBatches]:
        """From the first segment that has any: compaction may have left nothing of some."""
        offset = read.key.offset
        while True:
            bound = bound_of(read.partition.log, read.key.isolation)
            upper = min(located.last_offset + 1, bound)
            if upper <= offset:
                raise _NothingYet
            wanted = ReadRange(offset, upper, read.max_bytes)
            found = await self._pool.submit(partial(self._reader.batches, located.segment, wanted))
            if len(found.data):
                return located, found
            offset = located.last_offset + 1
            if offset > bound:
                raise _NothingYet
            if offset >= read.partition.log.local_log_start_offset:
                return located, self._local_batches(read, offset, bound)
            located = self._locations.locate(read.partition, offset)

    def _local_batches(self, read: RemoteRead, offset: int, bound: int) -> RemoteBatches:
        """Compaction left nothing up to what is on this disk: so that is what comes next."""
        found = read.partition.log.read(offset, read.max_bytes, bound)
        if not len(found.data):
            raise _NothingYet
        return RemoteBatches(memoryview(found.data), found.next_offset, is_transactional=True)

    async def _aborted(self, read: RemoteRead, located: Located, found: RemoteBatches) -> list[tuple[int, int]] | None:
        """The markers may be in any later segment, in remote storage and then here, until one tells that all before
        it was decided."""
        if read.key.isolation is not Isolation.LAST_STABLE:
            return None
        if not found.is_transactional:
            return []
        offset, upper = read.key.offset, found.next_offset
        aborted: list[AbortedTxn] = []
        further: Located | None = located
        while further is not None:
            segment, last_offset = further
            if not segment.txn_index_empty:
                ask = partial(self._reader.aborted, segment, last_offset, offset, upper)
                more, is_complete = await self._pool.submit(ask)
                aborted = merged(aborted, more)
                if is_complete:
                    return _told(aborted)
            further = self._locations.with_aborted(read.partition, last_offset + 1)
        return _told(merged(aborted, read.partition.log.aborted_transactions(offset, upper)))

    async def _pause(self, pause_ms: float) -> None:
        over: asyncio.Future[None] = self._loop.create_future()
        deadline = self._deadlines.after_ms(pause_ms, partial(over.set_result, None))
        try:
            await over
        finally:
            deadline.cancel()

    # ---- results

    def _keep(self, read: RemoteRead, result: RemoteResult) -> None:
        size = len(result.data)
        self.figures.bytes += size
        read.partition.traffic.remote_fetch_bytes += size
        self._end(read)
        read.result, read.error = result, ErrorCode.NONE
        self._kept[read.key] = read
        self._kept_bytes += size
        self._keep_for(read, self._settings().kept_ms)
        while self._kept_bytes > self._settings().kept_bytes and len(self._kept) > 1:
            self._drop(next(iter(self._kept.values())))
        read.done.fire()

    def _keep_for(self, read: RemoteRead, time_ms: int) -> None:
        if read.deadline is not None:
            read.deadline.cancel()
        read.deadline = self._deadlines.after_ms(time_ms, partial(self._drop, read))

    def _drop(self, read: RemoteRead) -> None:
        if self._kept.get(read.key) is read:
            del self._kept[read.key]
            assert read.result is not None
            self._kept_bytes -= len(read.result.data)
        if read.deadline is not None:
            read.deadline.cancel()


def _told(aborted: list[AbortedTxn]) -> list[tuple[int, int]]:
    return [(txn.producer_id, txn.first_offset) for txn in aborted]
