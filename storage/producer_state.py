"""The producer state of a log (KIP-98): sequences and epochs against duplicates and gaps, and open transactions.

The log remembers the epoch and the last batches of each producer id. A batch that repeats one of them is a retry, which
is answered and not written. A transaction is open from its first batch to its marker; the last stable offset is the
first offset of the oldest transaction that is open, or that was completed above the high watermark. The state is a
function of the log: replaying batches after a snapshot (`N.snapshot`, the state before offset N, in Kafka's format)
rebuilds it.

Checks come before the write (`check`), effects after it (`apply`), so that a failed write has no effect.
"""

import struct
from bisect import insort
from collections import deque
from collections.abc import Iterable
from enum import Enum, auto
from typing import NamedTuple

from protocol.records.batch import (
    MAX_SEQUENCE,
    NO_PRODUCER_EPOCH,
    NO_SEQUENCE,
    NO_TIMESTAMP,
    BatchHeader,
    next_sequence,
)
from protocol.records.compiled import crc32c
from protocol.records.control import ControlType
from storage.errors import CorruptCheckpoint, InvalidRecords, Rejection

CACHED_BATCHES = 10
"""Twice the number of batches that an idempotent producer may have in flight at a broker. Kafka remembers five. After a
leader change a producer may resend five unanswered batches behind five that the new leader appended meanwhile; a Java
producer whose older retries are not recognised stops for two minutes and then writes them twice.
"""
NO_COORDINATOR_EPOCH = -1
NO_OFFSET = -1

_SNAPSHOT_VERSION = 1
_SNAPSHOT_PREFIX = struct.Struct(">hI")
_SNAPSHOT_COUNT = struct.Struct(">i")
_SNAPSHOT_ENTRY = struct.Struct(">qhiqiqiq")


class Origin(Enum):
    """The source of a batch, which decides the checks that it must pass."""

    CLIENT = auto()
    COORDINATOR = auto()
    REPLICATION = auto()
    RAFT_LEADER = auto()


class CachedBatch(NamedTuple):
    """The fields of an appended batch that answer its retry."""

    last_sequence: int
    last_offset: int
    offset_delta: int
    timestamp: int

    @property
    def first_sequence(self) -> int:
        return next_sequence(self.last_sequence, -self.offset_delta)

    @property
    def first_offset(self) -> int:
        return self.last_offset - self.offset_delta


class EndTransactionMarker(NamedTuple):
    """The content of a transaction marker."""

    type: ControlType
    coordinator_epoch: int


class CompletedTxn(NamedTuple):
    """A transaction with its marker; `last_offset` is the offset of the marker."""

    producer_id: int
    first_offset: int
    last_offset: int
    is_aborted: bool


class ProducerEntry:
    """The state of one producer id.

    `transaction_start` is -1 without an open transaction; `batches` holds the oldest first. The log has every sequence
    of the epoch from `first_sequence` to `last_sequence`. A batch that begins at `following_sequence` is in order and
    repeats none of `batches`; -1 where a search must tell, because the sequences have begun again.
    """

    __slots__ = (
        "batches",
        "coordinator_epoch",
        "epoch",
        "first_sequence",
        "following_sequence",
        "last_timestamp",
        "producer_id",
        "transaction_start",
    )

    def __init__(self, producer_id: int, epoch: int) -> None:
        self.producer_id = producer_id
        self.epoch = epoch
        self.coordinator_epoch = NO_COORDINATOR_EPOCH
        self.last_timestamp = NO_TIMESTAMP
        self.transaction_start = NO_OFFSET
        self.first_sequence = NO_SEQUENCE
        self.following_sequence = NO_SEQUENCE
        self.batches: deque[CachedBatch] = deque(maxlen=CACHED_BATCHES)

    @property
    def last_sequence(self) -> int:
        return self.batches[-1].last_sequence if self.batches else NO_SEQUENCE

    @property
    def last_data_offset(self) -> int:
        return self.batches[-1].last_offset if self.batches else NO_OFFSET

    def find_duplicate(self, header: BatchHeader) -> CachedBatch | None:
        if header.producer_epoch != self.epoch:
            return None
        first, last = header.base_sequence, header.last_sequence
        for batch in self.batches:
            if batch.last_sequence == last and batch.first_sequence == first:
                return batch
        return None

    def has_appended(self, header: BatchHeader, high_watermark: int) -> bool:
        """Whether the log has the records of a batch below the high watermark, at offsets that are forgotten.

        Sequences are consecutive, so the log has all records between the first known batch of the epoch and the last
        one. Without the offsets of a batch, only those of a later batch tell that it is replicated.
        """
        if header.producer_epoch != self.epoch or not self.batches:
            return False
        oldest = self.batches[0]
        return (
            self.first_sequence <= header.base_sequence <= header.last_sequence < oldest.first_sequence
            and oldest.first_sequence <= self.last_sequence  # the remembered sequences do not wrap
            and oldest.first_offset <= high_watermark
        )

    def adopt_epoch(self, epoch: int) -> None:
        if epoch != self.epoch:
            self.epoch = epoch
            self.following_sequence = NO_SEQUENCE
            self.batches.clear()

    def add(self, batch: CachedBatch) -> None:
        """Note an appended batch."""
        first = batch.first_sequence
        if not self.batches or first != next_sequence(self.last_sequence, 1):
            self.first_sequence = first
        elif batch.last_sequence < self.last_sequence:
            self.first_sequence = 0  # the sequences began again
        self.batches.append(batch)
        if first != self.following_sequence or batch.last_sequence < first:
            is_latest = all(each.last_sequence <= batch.last_sequence for each in self.batches)
            self.following_sequence = batch.last_sequence + 1 if is_latest else NO_SEQUENCE
        else:
            self.following_sequence = batch.last_sequence + 1

    def extend(self, last_offset: int, offset_delta: int, timestamp: int) -> None:
        """Note an appended batch that begins at `following_sequence` and does not wrap; shorter than `add`."""
        last_sequence = self.following_sequence + offset_delta
        self.last_timestamp = timestamp
        self.batches.append(CachedBatch(last_sequence, last_offset, offset_delta, timestamp))
        self.following_sequence = last_sequence + 1


class ProducerState:
    """All producers of one log. Batches below `end_offset` are applied."""

    def __init__(self) -> None:
        self.entries: dict[int, ProducerEntry] = {}
        self.end_offset = 0
        self.snapshot_offset = NO_OFFSET
        """Offset of the newest snapshot taken or loaded; another snapshot at the same offset would be equal."""
        self._open: dict[int, int] = {}
        """First offset -> producer id of open transactions. First offsets only grow, so the first key is the oldest."""
        self._unreplicated: list[CompletedTxn] = []
        """Transactions whose marker is not below the high watermark yet, sorted by first offset."""

    # -- before the write ------------------------------------------------------------------------------------------

    def check(self, header: BatchHeader, origin: Origin, high_watermark: int = 0) -> CachedBatch | None:
        """Return None if a data batch may be appended, or the batch that it repeats. Raises InvalidRecords.

        A batch that the log had before the ones that it remembers is refused with DUPLICATE_SEQUENCE_NUMBER, which
        clients count as a success without an offset. Kafka answers OUT_OF_ORDER_SEQUENCE_NUMBER, after which a Java
        producer raises its epoch and writes the batch again.
        """
        entry = self.entries.get(header.producer_id)
        if entry is None:
            return None
        if origin is Origin.CLIENT and header.base_sequence >= 0:
            duplicate = entry.find_duplicate(header)
            if duplicate is not None:
                return duplicate
            _check_epoch(entry, header.producer_epoch)
            if entry.has_appended(header, high_watermark):
                raise InvalidRecords(
                    Rejection.DUPLICATE_SEQUENCE_NUMBER,
                    f"producer {entry.producer_id} repeated sequence {header.base_sequence}, which is in the log",
                )
            _check_sequence(entry, header)
        else:
            _check_epoch(entry, header.producer_epoch)
        if entry.transaction_start >= 0 and not header.is_transactional:
            raise InvalidRecords(
                Rejection.INVALID_TXN_STATE,
                f"producer {entry.producer_id} sent a batch outside of its open transaction",
            )
        return None

    def check_marker(self, header: BatchHeader, marker: EndTransactionMarker) -> None:
        """Raise InvalidRecords unless a transaction marker may be appended."""
        entry = self.entries.get(header.producer_id)
        if entry is None:
            return
        _check_epoch(entry, header.producer_epoch)
        if marker.coordinator_epoch < entry.coordinator_epoch:
            raise InvalidRecords(
                Rejection.TRANSACTION_COORDINATOR_FENCED,
                f"coordinator epoch {marker.coordinator_epoch} is below {entry.coordinator_epoch}, the latest one",
            )

    def check_epoch(self, producer_id: int, epoch: int) -> None:
        """Raise InvalidRecords if a later epoch of the producer has written."""
        entry = self.entries.get(producer_id)
        if entry is not None:
            _check_epoch(entry, epoch)

    def check_raised_epoch(self, producer_id: int, epoch: int) -> None:
        """Raise InvalidRecords if a marker of transaction version 2 does not raise the epoch of an open transaction.

        A repeated marker finds no open transaction and is valid (KIP-1228).
        """
        entry = self.entries.get(producer_id)
        if entry is not None and entry.transaction_start >= 0 and epoch == entry.epoch:
            raise InvalidRecords(
                Rejection.INVALID_PRODUCER_EPOCH,
                f"epoch {epoch} of a marker does not exceed the epoch of producer {producer_id}'s open transaction",
            )

    # -- after the write -------------------------------------------------------------------------------------------

    def apply(self, header: BatchHeader) -> None:
        """Apply an appended data batch of a producer; `header` carries the assigned offsets and the timestamp."""
        entry = self._entry(header)
        sequence, delta = header.base_sequence, header.last_offset_delta
        is_next = sequence == entry.following_sequence and 0 <= sequence <= MAX_SEQUENCE - delta
        if is_next and header.producer_epoch == entry.epoch:
            entry.extend(header.last_offset, delta, header.max_timestamp)
        else:
            entry.adopt_epoch(header.producer_epoch)
            entry.last_timestamp = header.max_timestamp
            if sequence >= 0:
                entry.add(CachedBatch(header.last_sequence, header.last_offset, delta, header.max_timestamp))
        if header.is_transactional and entry.transaction_start < 0:
            entry.transaction_start = header.base_offset
            self._open[header.base_offset] = header.producer_id

    def apply_marker(self, header: BatchHeader, marker: EndTransactionMarker) -> CompletedTxn | None:
        """Apply an appended marker; return the transaction that it ends, or None if none was open."""
        entry = self._entry(header)
        entry.adopt_epoch(header.producer_epoch)
        entry.last_timestamp = header.max_timestamp
        entry.coordinator_epoch = marker.coordinator_epoch
        if entry.transaction_start < 0:
            return None
        completed = CompletedTxn(
            header.producer_id, entry.transaction_start, header.base_offset, marker.type is ControlType.ABORT
        )
        entry.transaction_start = NO_OFFSET
        self._open.pop(completed.first_offset, None)
        insort(self._unreplicated, completed, key=lambda txn: txn.first_offset)
        return completed

    def stable_offset_after(self, completed: CompletedTxn) -> int:
        """Return the last stable offset that the transaction index stores with `completed`."""
        return next(iter(self._open), completed.last_offset + 1)

    def _entry(self, header: BatchHeader) -> ProducerEntry:
        entry = self.entries.get(header.producer_id)
        if entry is None:
            entry = self.entries[header.producer_id] = ProducerEntry(header.producer_id, header.producer_epoch)
        return entry

    # -- transactions ----------------------------------------------------------------------------------------------

    @property
    def first_unstable_offset(self) -> int | None:
        """First offset of the oldest transaction that is open or whose marker is not replicated; None without one."""
        if not self._open and not self._unreplicated:
            return None
        first_open = next(iter(self._open), None)
        if not self._unreplicated:
            return first_open
        first_completed = self._unreplicated[0].first_offset
        return first_completed if first_open is None else min(first_open, first_completed)

    def on_high_watermark(self, high_watermark: int) -> None:
        """Drop transactions whose markers lie below the high watermark."""
        if self._unreplicated:
            self._unreplicated = [txn for txn in self._unreplicated if txn.last_offset >= high_watermark]

    def has_open_transaction(self, producer_id: int, epoch: int) -> bool:
        """Whether a transaction of a producer epoch is open.

        With transaction version 2 a producer may begin its next transaction, with a higher epoch, before the marker of
        the former one arrives.
        """
        entry = self.entries.get(producer_id)
        return entry is not None and entry.transaction_start >= 0 and entry.epoch == epoch

    def has_late_transaction(self, now_ms: int, limit_ms: int) -> bool:
        """Whether the oldest open transaction had its last batch more than `limit_ms` ago."""
        oldest = next(iter(self._open.values()), None)
        return oldest is not None and now_ms - self.entries[oldest].last_timestamp > limit_ms

    @property
    def open_transactions(self) -> dict[int, int]:
        """First offset -> producer id, the oldest first."""
        return self._open

    # -- expiry, snapshots -----------------------------------------------------------------------------------------

    def expire(self, now_ms: int, expiration_ms: int) -> list[int]:
        """Remove producers without open transaction whose last record is old enough; return their ids."""
        expired = [
            entry.producer_id
            for entry in self.entries.values()
            if entry.transaction_start < 0 and now_ms - entry.last_timestamp >= expiration_ms
        ]
        for producer_id in expired:
            del self.entries[producer_id]
        return expired

    def encode(self) -> bytes:
        """Encode the content of a snapshot file."""
        entries = [_SNAPSHOT_COUNT.pack(len(self.entries))]
        entries += [_encode_entry(entry) for entry in self.entries.values()]
        body = b"".join(entries)
        return _SNAPSHOT_PREFIX.pack(_SNAPSHOT_VERSION, crc32c(body)) + body

    @classmethod
    def decode(cls, path: str, data: bytes, offset: int) -> "ProducerState":
        """Decode the state before `offset`. Raises CorruptCheckpoint with `path`."""
        state = cls()
        for entry in _decode_entries(path, data):
            state.entries[entry.producer_id] = entry
        starts = sorted(
            (e.transaction_start, e.producer_id) for e in state.entries.values() if e.transaction_start >= 0
        )
        state._open = dict(starts)
        state.end_offset = state.snapshot_offset = offset
        return state


def _check_epoch(entry: ProducerEntry, epoch: int) -> None:
    if epoch < entry.epoch:
        raise InvalidRecords(
            Rejection.INVALID_PRODUCER_EPOCH,
            f"epoch {epoch} of producer {entry.producer_id} is below {entry.epoch}, the latest one",
        )


def _check_sequence(entry: ProducerEntry, header: BatchHeader) -> None:
    if header.producer_epoch != entry.epoch:
        in_sequence = header.base_sequence == 0 or entry.epoch == NO_PRODUCER_EPOCH
    else:
        in_sequence = header.base_sequence == next_sequence(entry.last_sequence, 1)
    if not in_sequence:
        raise InvalidRecords(
            Rejection.OUT_OF_ORDER_SEQUENCE_NUMBER,
            f"producer {entry.producer_id} (epoch {header.producer_epoch}) sent sequence {header.base_sequence}, "
            f"after {entry.last_sequence} (epoch {entry.epoch})",
        )


def _encode_entry(entry: ProducerEntry) -> bytes:
    last = entry.batches[-1] if entry.batches else CachedBatch(NO_SEQUENCE, NO_OFFSET, 0, NO_TIMESTAMP)
    return _SNAPSHOT_ENTRY.pack(
        entry.producer_id,
        entry.epoch,
        last.last_sequence,
        last.last_offset,
        last.offset_delta,
        entry.last_timestamp,
        entry.coordinator_epoch,
        entry.transaction_start,
    )


def _decode_entries(path: str, data: bytes) -> Iterable[ProducerEntry]:
    body = memoryview(data)[_SNAPSHOT_PREFIX.size :]
    if len(body) < _SNAPSHOT_COUNT.size:
        raise CorruptCheckpoint(path, "too short")
    version, crc = _SNAPSHOT_PREFIX.unpack_from(data)
    if version != _SNAPSHOT_VERSION:
        raise CorruptCheckpoint(path, f"unknown version {version}")
    if crc != crc32c(body):
        raise CorruptCheckpoint(path, "the checksum differs")
    (count,) = _SNAPSHOT_COUNT.unpack_from(body)
    if count < 0 or _SNAPSHOT_COUNT.size + count * _SNAPSHOT_ENTRY.size != len(body):
        raise CorruptCheckpoint(path, f"{count} entries do not fill {len(body)} bytes")
    return [_decode_entry(fields) for fields in _SNAPSHOT_ENTRY.iter_unpack(body[_SNAPSHOT_COUNT.size :])]


def _decode_entry(fields: tuple[int, ...]) -> ProducerEntry:
    producer_id, epoch, last_sequence, last_offset, offset_delta, timestamp, coordinator_epoch, start = fields
    entry = ProducerEntry(producer_id, epoch)
    entry.last_timestamp = timestamp
    entry.coordinator_epoch = coordinator_epoch
    entry.transaction_start = start
    if last_offset >= 0:
        entry.add(CachedBatch(last_sequence, last_offset, offset_delta, timestamp))
    return entry
