"""Fetches of given partitions from their leaders, in order, from given positions.

A poll sends a fetch to every leader and then receives the responses. Records below the position are skipped, since
whole batches are returned. With read_committed, records of aborted transactions are skipped too; the response lists
those transactions (KIP-98).
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from broker.cli.shared.fetch_round import FULL_FETCH_EPOCH, fetch_round, fetch_topics
from broker.cli.shared.offsets import LATEST, list_offsets
from broker.client import Client, raise_for
from protocol.errors import ErrorCode, KafkaError
from protocol.lazy_dataclass import lazy_dataclass
from protocol.messages.fetch import FetchRequest, PartitionData
from protocol.primitives import Buffer
from protocol.records.batch import BatchHeader, crc_is_valid, iter_headers
from protocol.records.control import ControlType, read_marker
from protocol.records.errors import MalformedBatch, MalformedRecords
from protocol.records.reader import FullRecord, iter_records
from storage.directories.checkpoints import TopicPartition

READ_UNCOMMITTED = 0
READ_COMMITTED = 1
ISOLATION = {"read_uncommitted": READ_UNCOMMITTED, "read_committed": READ_COMMITTED}
"""Isolation levels by the values of `isolation.level`."""

PURPOSE = "fetch"
"""Name of the connections for fetches."""

STALE_LEADER_ERRORS = frozenset(
    {
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.REPLICA_NOT_AVAILABLE,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.OFFSET_NOT_AVAILABLE,
    }
)


@lazy_dataclass(frozen=True, slots=True)
class FetchSettings:
    """Settings of a fetcher. `reset` is EARLIEST or LATEST, for positions out of range; None raises the error."""

    reset: int | None = LATEST
    isolation_level: int = READ_UNCOMMITTED
    max_wait_ms: int = 500
    min_bytes: int = 1
    max_bytes: int = 50 << 20
    partition_max_bytes: int = 1 << 20


class ConsumerRecord(NamedTuple):
    partition: TopicPartition
    header: BatchHeader
    record: FullRecord


class Fetcher:
    """Positions and leaders of the assigned partitions. `positions` may be read and changed between polls."""

    def __init__(self, client: Client, settings: FetchSettings) -> None:
        self._client = client
        self._settings = settings
        self._leaders: dict[TopicPartition, int] = {}
        self.positions: dict[TopicPartition, int] = {}

    def assign(self, positions: Mapping[TopicPartition, int]) -> None:
        """Replace the assignment. EARLIEST and LATEST are resolved to offsets."""
        self._leaders = {}
        self.positions = {partition: offset for partition, offset in positions.items() if offset >= 0}
        special = {partition: offset for partition, offset in positions.items() if offset < 0}
        self.positions |= self._client.retrying(
            lambda: list_offsets(self._client, special, isolation_level=self._settings.isolation_level)
        )

    def poll(self, max_wait_ms: int | None = None) -> Iterator[ConsumerRecord]:
        """Yield the records of one round of fetches, which waits up to `max_wait_ms` for the first record. A position
        advances when its record is yielded, so that a caller may stop at any record. Raises KafkaError or ClientError.
        """
        wait_ms = self._settings.max_wait_ms if max_wait_ms is None else max_wait_ms
        for partition, data in self._client.retrying(lambda: self._round(wait_ms)):
            yield from self._records(partition, data)

    def _round(self, wait_ms: int) -> list[tuple[TopicPartition, PartitionData]]:
        if self._leaders.keys() != self.positions.keys():
            self._find_leaders()
        by_leader: defaultdict[int, list[TopicPartition]] = defaultdict(list)
        for partition, leader in self._leaders.items():
            by_leader[leader].append(partition)
        leaders, self._leaders = self._leaders, {}
        requests = {node: self._request(partitions, wait_ms) for node, partitions in by_leader.items()}
        answers = list(fetch_round(self._client, PURPOSE, requests))
        if not any(each.data.error_code in STALE_LEADER_ERRORS for each in answers):
            self._leaders = leaders
        return [(each.partition, each.data) for each in answers if self._is_readable(each.partition, each.data)]

    def _request(self, partitions: list[TopicPartition], wait_ms: int) -> FetchRequest:
        settings = self._settings
        return FetchRequest(
            max_wait_ms=wait_ms,
            min_bytes=settings.min_bytes,
            max_bytes=settings.max_bytes,
            isolation_level=settings.isolation_level,
            session_epoch=FULL_FETCH_EPOCH,
            topics=fetch_topics(partitions, self.positions, settings.partition_max_bytes),
        )

    def _find_leaders(self) -> None:
        topics = self._client.leaders({partition.topic for partition in self.positions})
        known = {
            TopicPartition(name, p.partition_index): p.leader_id for name, t in topics.items() for p in t.partitions
        }
        for partition in self.positions:
            if partition not in known:
                raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"partition {partition} does not exist.")
        self._leaders = {partition: known[partition] for partition in self.positions}

    def _is_readable(self, partition: TopicPartition, data: PartitionData) -> bool:
        """Return False to fetch again, from another leader or position. Raises KafkaError for other errors."""
        if data.error_code == ErrorCode.OFFSET_OUT_OF_RANGE and self._settings.reset is not None:
            self.positions |= list_offsets(self._client, {partition: self._settings.reset})
            return False
        if data.error_code in STALE_LEADER_ERRORS:
            return False
        raise_for(data.error_code, str(partition))
        return data.records is not None

    def _records(self, partition: TopicPartition, data: PartitionData) -> Iterator[ConsumerRecord]:
        batches: Buffer = data.records or b""
        aborted = _AbortedTransactions(data) if self._settings.isolation_level == READ_COMMITTED else None
        try:
            for position, header in iter_headers(batches):
                if not crc_is_valid(batches, position, header.size):
                    raise MalformedBatch(f"the checksum of the batch at offset {header.base_offset} is wrong")
                if not header.is_control and not (aborted and aborted.holds(header)):
                    for record in iter_records(batches, position):
                        if record.offset >= self.positions[partition]:
                            self.positions[partition] = record.offset + 1
                            yield ConsumerRecord(partition, header, record)
                elif aborted is not None and header.is_control:
                    aborted.end(header, batches, position)
                self.positions[partition] = max(self.positions[partition], header.next_offset)
        except (MalformedBatch, MalformedRecords) as error:
            raise KafkaError(ErrorCode.CORRUPT_MESSAGE, f"{partition}: {error}") from error


class _AbortedTransactions:
    """The aborted transactions of a response, for a walk over its batches in offset order."""

    def __init__(self, data: PartitionData) -> None:
        transactions = data.aborted_transactions or []
        self._upcoming = sorted(((t.first_offset, t.producer_id) for t in transactions), reverse=True)
        self._open: set[int] = set()

    def holds(self, header: BatchHeader) -> bool:
        """Return whether the batch belongs to an aborted transaction."""
        while self._upcoming and self._upcoming[-1][0] <= header.last_offset:
            self._open.add(self._upcoming.pop()[1])
        return header.is_transactional and header.producer_id in self._open

    def end(self, header: BatchHeader, batches: Buffer, position: int) -> None:
        """End the producer's transaction at its marker."""
        marker = read_marker(batches, position)
        if marker is not None and marker[0] is ControlType.ABORT:
            self._open.discard(header.producer_id)
