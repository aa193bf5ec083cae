"""A led partition as the log of a coordinator: appends records as one batch and reads batches as records.

Coordinators write topics that clients cannot write, and everything they read was written by a coordinator. Batches are
therefore decoded here, and not on the path of clients' data.
"""

from collections.abc import Callable, Iterator, Sequence
from functools import partial

from broker.replication.leader import LeaderRole
from broker.runtime.coordinators.shard_log import Cancellable, LoadedBatch, LoadedRecord, ProducerTransaction
from broker.runtime.coordinators.snapshot_store import CoordinatorSnapshot, SnapshotStore
from broker.runtime.loop.io_thread import BlockingIo
from broker.runtime.partitions.partition import ACKS_ALL, Partition
from broker.runtime.partitions.transaction_marker import WritableMarker, append_marker
from protocol.errors import ErrorCode, KafkaError
from protocol.records.batch import NO_PRODUCER_EPOCH, NO_PRODUCER_ID, BatchHeader, iter_headers
from protocol.records.builder import Record, build_batch, build_single_record, encode_record
from protocol.records.compression import Codec
from protocol.records.control import ControlType, read_marker
from protocol.records.errors import MalformedBatch, MalformedRecords
from protocol.records.reader import iter_records
from storage.errors import LogDirFailure, OffsetOutOfRange
from storage.local_log import LogSlice
from storage.producer_state import Origin


class PartitionLog:
    """ShardLog over a hosted partition. `codec` compresses the batches that it writes."""

    def __init__(
        self, partition: Partition, io: BlockingIo, codec: Codec = Codec.NONE, snapshots: SnapshotStore | None = None
    ) -> None:
        self._snapshots = snapshots
        self._partition = partition
        self._io = io
        self._codec = codec

    @property
    def start_offset(self) -> int:
        return self._led().log.log_start_offset

    @property
    def end_offset(self) -> int:
        return self._led().log.log_end_offset

    @property
    def high_watermark(self) -> int:
        return self._led().log.high_watermark

    @property
    def max_batch_bytes(self) -> int:
        """Largest batch: `max.message.bytes` of the topic."""
        return self._partition.log.config.max_message_bytes

    def check_append(self, leader_epoch: int) -> None:
        """Raise KafkaError if another leader epoch has begun, or the in-sync replicas are too few."""
        role = self._partition.role
        if not isinstance(role, LeaderRole) or role.epoch != leader_epoch:
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        if not role.has_enough_replicas(self._partition.log.config.min_insync_replicas):
            raise KafkaError(ErrorCode.NOT_ENOUGH_REPLICAS)

    def append(
        self,
        records: Sequence[tuple[bytes, bytes | None]],
        leader_epoch: int,
        now_ms: int,
        transaction: ProducerTransaction | None = None,
    ) -> int:
        """Append the records as one batch with acks=all, and return the offset of the first.

        Raise KafkaError, also if another leader epoch has begun.
        """
        self._check_epoch(leader_epoch)
        if transaction is None and len(records) == 1 and self._codec is Codec.NONE:
            batch = build_single_record(encode_record(*records[0]), now_ms)
            return self._partition.append(batch, ACKS_ALL, Origin.COORDINATOR).first_offset
        batch = bytearray(
            build_batch(
                [Record(now_ms, key, value) for key, value in records],
                codec=self._codec,
                producer_id=NO_PRODUCER_ID if transaction is None else transaction.producer_id,
                producer_epoch=NO_PRODUCER_EPOCH if transaction is None else transaction.producer_epoch,
                transactional=transaction is not None,
            )
        )
        guard = None if transaction is None else transaction.guard
        return self._partition.append(batch, ACKS_ALL, Origin.COORDINATOR, guard).first_offset

    def append_marker(self, marker: WritableMarker, leader_epoch: int, now_ms: int) -> int:
        """Append a transaction marker and return its offset. Raise KafkaError."""
        self._check_epoch(leader_epoch)
        return append_marker(self._partition, marker, now_ms).first_offset

    def when_committed(self, offset: int, callback: Callable[[ErrorCode], None]) -> Cancellable:
        """Call back once the high watermark is above `offset`, or with the error that ended this leadership."""
        return self._led().when_acknowledged(offset + 1, ACKS_ALL, callback)

    async def newest_snapshot(self) -> CoordinatorSnapshot | None:
        """Return the newest snapshot of the log's beginning; None without one that is whole."""
        return None if self._snapshots is None else await self._snapshots.newest(self._led())

    async def read(self, offset: int, max_bytes: int) -> Sequence[LoadedBatch]:
        """Return the batches from the one with `offset` on, about `max_bytes` of them; none at the end of the log.

        Raise KafkaError: CORRUPT_MESSAGE for batches that cannot be decoded, or a read error.
        """
        return await read_batches(self._led(), self._io, offset, max_bytes, self._led().log.log_end_offset)

    def _led(self) -> Partition:
        if not self._partition.is_leader:
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        return self._partition

    def _check_epoch(self, leader_epoch: int) -> None:
        """Raise KafkaError if another leader epoch has begun."""
        if self._led().leader_role.epoch != leader_epoch:
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)


async def read_batches(
    partition: Partition, io: BlockingIo, offset: int, max_bytes: int, end_offset: int
) -> Sequence[LoadedBatch]:
    """Return batches of a replica's log from the one with `offset` on, below `end_offset`; about `max_bytes` of them.

    Raise KafkaError: CORRUPT_MESSAGE for batches that cannot be decoded, or a read error.
    """
    log = partition.log
    try:
        found = log.read(offset, max_bytes, end_offset)
    except OffsetOutOfRange as error:
        raise KafkaError(ErrorCode.OFFSET_OUT_OF_RANGE, str(error)) from error
    except LogDirFailure as failure:
        raise partition.offline(failure) from failure
    if found.cold:
        await io.submit(partial(log.warm, found))
    try:
        return [_loaded(found, position, header, offset) for position, header in iter_headers(found.data)]
    except (MalformedBatch, MalformedRecords) as error:
        raise KafkaError(ErrorCode.CORRUPT_MESSAGE, str(error)) from error


def _loaded(found: LogSlice, position: int, header: BatchHeader, from_offset: int) -> LoadedBatch:
    batch = memoryview(found.data)[position : position + header.size]
    if not header.is_control:
        records = _records(batch, from_offset)
        return LoadedBatch(header.next_offset, header.leader_epoch, _transaction_of(header), records=records)
    marker = read_marker(batch)
    committed = None if marker is None else marker[0] is ControlType.COMMIT
    return LoadedBatch(header.next_offset, header.leader_epoch, _transaction_of(header), committed)


def _transaction_of(header: BatchHeader) -> int:
    return header.producer_id if header.is_transactional else -1


def _records(batch: memoryview, from_offset: int) -> Iterator[LoadedRecord]:
    """Yield records, decoded lazily. Records without key are no state, and are skipped."""
    for record in iter_records(batch):
        if record.offset >= from_offset and record.key is not None:
            yield LoadedRecord(record.offset, record.key, record.value)
