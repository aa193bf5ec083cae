"""The rounds of one share fetch.

A round reads every partition of the session that has records to acquire, and acquires them for the member if there are
enough. Reading and acquiring happen in one turn of the loop, so that no other member comes in between. Records that
only remote storage holds are read in the background, as for other consumers, and acquired in a later round.
"""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from broker.fetch.remote_fetch import RemoteFetch
from broker.runtime.partitions.partition import Partition
from broker.runtime.partitions.partition_reads import FetchLimits, FetchParams, read
from broker.runtime.partitions.reads import FetchIsolation, FetchTarget, LogReadResult
from broker.runtime.partitions.registry import Partitions
from broker.runtime.share.led_share_partition import LedSharePartition
from broker.runtime.share.share_partitions import SharePartitions
from broker.share.fetched import fetched_batches
from broker.share.records import AcquiredRecords, AcquireMode, AcquireRequest, FetchedBatches
from broker.share.sessions import ShareMember, TopicPartitionId
from protocol.errors import ErrorCode, KafkaError
from protocol.lazy_dataclass import lazy_dataclass
from protocol.primitives import Buffer
from protocol.records.batch import iter_headers
from storage.local_log import LogSlice

if TYPE_CHECKING:
    from broker.fetch.remote_reads.reads import RemoteReads


class ShareFetchOptions(NamedTuple):
    """The parameters of a share fetch. `max_records` 0 wants no records: the request only acknowledges."""

    max_wait_ms: int
    min_bytes: int
    max_bytes: int
    max_records: int
    batch_size: int
    mode: AcquireMode


@lazy_dataclass(slots=True)
class SharedRecords:
    """Records of one partition that the member has acquired, or an error."""

    error: ErrorCode = ErrorCode.NONE
    records: Buffer = b""
    acquired: Sequence[AcquiredRecords] = ()


class _Found(NamedTuple):
    """Records that a read has found, before they are acquired."""

    key: TopicPartitionId
    led: LedSharePartition
    target: FetchTarget
    result: LogReadResult


class ShareFetchRounds:
    """One share fetch: its share partitions, and the results so far.

    `remote` has the remote reads of the last round, None if it needed none. `remote_reads` is None if the broker has no
    remote storage.
    """

    def __init__(
        self,
        member: ShareMember,
        keys: Sequence[TopicPartitionId],
        options: ShareFetchOptions,
        partitions: Partitions,
        shares: SharePartitions,
        remote_reads: "RemoteReads | None" = None,
    ) -> None:
        self.options = options
        self.results: dict[TopicPartitionId, SharedRecords] = {}
        self.cold: list[tuple[Partition, LogSlice]] = []
        """Records of the last round that are not in memory; nothing was acquired then."""
        self.led: dict[TopicPartitionId, LedSharePartition] = {}
        self.has_expired = False
        """Whether the request was answered because its time was over."""
        self.remote: RemoteFetch | None = None
        self._remote_reads = remote_reads
        self._member = member
        self._settings = shares.settings(member.group_id)
        for key in keys:
            self._open(key, partitions, shares)

    @property
    def size_bytes(self) -> int:
        """The bytes of records in the results."""
        return sum(len(each.records) for each in self.results.values())

    @property
    def is_enough(self) -> bool:
        """Whether the request can be answered without waiting."""
        return bool(self.results) or not self.led

    @property
    def awaits_remote(self) -> bool:
        """Whether reads from remote storage are under way, or wait for their turn."""
        return self.remote is not None and self.remote.is_awaited

    @property
    def _has_remote_records(self) -> bool:
        return self.remote is not None and self.remote.size_bytes > 0

    def report_remote_errors(self) -> None:
        """Put the errors of unfinished remote reads into the results; the next request tries again."""
        if self.remote is not None:
            for target, error in self.remote.failures():
                self.results[target.topic_id, target.index] = SharedRecords(error)

    def _open(self, key: TopicPartitionId, partitions: Partitions, shares: SharePartitions) -> None:
        topic_id, index = key
        partition = partitions.find(topic_id, index)
        try:
            if partition is None:
                image = partitions.image.topics.by_id(topic_id)
                if image is None:
                    raise KafkaError(ErrorCode.UNKNOWN_TOPIC_ID)
                raise KafkaError(partitions.absence_error(image, index))
            self.led[key] = shares.open(self._member.group_id, partition)
        except KafkaError as error:
            self.results[key] = SharedRecords(error.code)

    def run(self, *, is_last: bool, is_warm: bool = False) -> bool:
        """Read and acquire; return whether another round at once may find more.

        `is_last`: fewer bytes than wanted are enough. `is_warm`: the records that were not in memory are there now.
        """
        self.cold.clear()
        self.remote = None
        found = self._read_all()
        if self.cold and not is_warm:
            return False
        size_bytes = sum(each.result.size_bytes for each in found)
        if size_bytes < self.options.min_bytes and not (is_last or self._has_remote_records or self.results):
            return False
        room = self.options.max_records
        for each in found:
            if room <= 0:
                break
            room -= self._acquire(each, room)
        return bool(found) and not self.results and any(_has_moved(each) for each in found)

    def _read_all(self) -> list[_Found]:
        found: list[_Found] = []
        if self.options.max_records <= 0:
            return found
        acquirable = [key for key, led in self.led.items() if self._may_acquire(key, led)]
        room = self.options.max_bytes
        for key in acquirable:
            share_of_room = max(1, self.options.max_bytes // len(acquirable))
            each = self._read(key, self.led[key], min(room, share_of_room), min_one=not found)
            if each is not None:
                found.append(each)
                room = max(0, room - each.result.size_bytes)
        return found

    def _may_acquire(self, key: TopicPartitionId, led: LedSharePartition) -> bool:
        if led.error is not ErrorCode.NONE:
            self.results[key] = SharedRecords(led.error)
            return False
        return led.state is not None and led.state.can_acquire

    def _read(self, key: TopicPartitionId, led: LedSharePartition, room: int, *, min_one: bool) -> _Found | None:
        """Read from the next offset of a share partition; once more where the log has lost that offset."""
        isolation = FetchIsolation.LAST_STABLE if self._settings.reads_committed else FetchIsolation.HIGH_WATERMARK
        reader, limits = FetchParams(isolation, needs_leader=True), FetchLimits(room, min_one)
        for _ in range(2):
            assert led.state is not None
            offset = led.state.next_fetch_offset
            target = FetchTarget(led.partition.topic, key[0], key[1], offset, room, led.partition.leader_epoch)
            result = read(led.partition, target, reader, limits, is_first_look=True)
            if result.error is not ErrorCode.OFFSET_OUT_OF_RANGE:
                break
            led.on_log_start()
        if result.error is ErrorCode.OFFSET_MOVED_TO_TIERED_STORAGE:
            result = self._read_remote(led.partition, target, reader, limits, result)
        if result.cold is not None:
            self.cold.append((led.partition, result.cold))
        if result.error not in (ErrorCode.NONE, ErrorCode.OFFSET_OUT_OF_RANGE):
            self.results[key] = SharedRecords(result.error)
        return _Found(key, led, target, result) if result.size_bytes else None

    def _read_remote(
        self, partition: Partition, target: FetchTarget, reader: FetchParams, limits: FetchLimits, moved: LogReadResult
    ) -> LogReadResult:
        """Return records of remote storage, none while they are read."""
        if self._remote_reads is None:
            return LogReadResult(error=ErrorCode.KAFKA_STORAGE_ERROR)
        if self.remote is None:
            self.remote = RemoteFetch(self._remote_reads)
        return self.remote.read(partition, target, reader, limits, moved)

    def _acquire(self, found: _Found, room: int) -> int:
        """Acquire records for the member; return their number."""
        batches = fetched_batches(found.target.fetch_offset, found.result.records, found.result.aborted)
        options = self.options
        request = AcquireRequest(self._member.member_id, room, options.batch_size, options.mode)
        acquired = found.led.acquire(request, batches)
        if not acquired:
            return 0
        if self.remote is not None:
            self.remote.delivered([found.target])
        records = _cut(found.result.records, batches, acquired)
        self.results[found.key] = SharedRecords(ErrorCode.NONE, records, acquired)
        traffic = found.led.partition.traffic
        traffic.bytes_out += len(records)
        return sum(each.last - each.first + 1 for each in acquired)


def fetch_errors(results: Mapping[TopicPartitionId, SharedRecords]) -> int:
    """Return the number of partitions with an error."""
    return sum(each.error is not ErrorCode.NONE for each in results.values())


def _has_moved(found: _Found) -> bool:
    """Whether the next records to acquire lie elsewhere now, although none were acquired."""
    state = found.led.state
    return (
        state is not None and found.led.error is ErrorCode.NONE and state.next_fetch_offset != found.target.fetch_offset
    )


def _cut(records: Buffer, batches: FetchedBatches, acquired: Sequence[AcquiredRecords]) -> Buffer:
    """Return the batches that hold acquired records, and those between them."""
    first, last = acquired[0].first, acquired[-1].last
    if batches.batches[0].last >= first and batches.batches[-1].first <= last:
        return records
    start, end = 0, len(records)
    for position, header in iter_headers(records):
        if header.last_offset < first:
            start = position + header.size
        elif header.base_offset > last:
            end = position
            break
    return memoryview(records)[start:end]
