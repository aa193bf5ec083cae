"""The rounds of one share fetch.

A round reads every partition of the session that has records to acquire, and acquires them for the member if there are
enough. Reading and acquiring happen in one turn of the loop, so that no other member comes in between.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

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
from protocol.primitives import Buffer
from protocol.records.batch import iter_headers
from storage.local_log import LogSlice


class ShareFetchOptions(NamedTuple):
    """The parameters of a share fetch. `max_records` 0 wants no records: the request only acknowledges."""

    max_wait_ms: int
    min_bytes: int
    max_bytes: int
    max_records: int
    batch_size: int
    mode: AcquireMode


@dataclass(slots=True)
class SharedRecords:
    """Records of one partition that the member has acquired, or an error."""

    error: ErrorCode = ErrorCode.NONE
    records: Buffer = b""
    acquired: Sequence[AcquiredRecords] = ()


class _Found(NamedTuple):
    """Records that a read has found, before they are acquired."""

    key: TopicPartitionId
    led: LedSharePartition
    fetch_offset: int
    result: LogReadResult


class ShareFetchRounds:
    """One share fetch: its share partitions, and the results so far."""

    def __init__(
        self,
        member: ShareMember,
        keys: Sequence[TopicPartitionId],
        options: ShareFetchOptions,
        partitions: Partitions,
        shares: SharePartitions,
    ) -> None:
        self.options = options
        self.results: dict[TopicPartitionId, SharedRecords] = {}
        self.cold: list[tuple[Partition, LogSlice]] = []
        """Records of the last round that are not in memory; nothing was acquired then."""
        self.led: dict[TopicPartitionId, LedSharePartition] = {}
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
        found = self._read_all()
        if self.cold and not is_warm:
            return False
        size_bytes = sum(each.result.size_bytes for each in found)
        if size_bytes < self.options.min_bytes and not is_last and not self.results:
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
        if result.cold is not None:
            self.cold.append((led.partition, result.cold))
        if result.error not in (ErrorCode.NONE, ErrorCode.OFFSET_OUT_OF_RANGE):
            self.results[key] = SharedRecords(_member_code(result.error))
        return _Found(key, led, offset, result) if result.size_bytes else None

    def _acquire(self, found: _Found, room: int) -> int:
        """Acquire records for the member; return their number."""
        batches = fetched_batches(found.fetch_offset, found.result.records, found.result.aborted)
        options = self.options
        request = AcquireRequest(self._member.member_id, room, options.batch_size, options.mode)
        acquired = found.led.acquire(request, batches)
        if not acquired:
            return 0
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
    return state is not None and found.led.error is ErrorCode.NONE and state.next_fetch_offset != found.fetch_offset


def _member_code(error: ErrorCode) -> ErrorCode:
    """Return the code for a member. Records in remote storage alone are not served yet."""
    return ErrorCode.KAFKA_STORAGE_ERROR if error is ErrorCode.OFFSET_MOVED_TO_TIERED_STORAGE else error


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
