"""The records of a slice as Arrow batches, of bounded size, from the bytes of a segment."""

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Iterator
from typing import Final

import pyarrow as pa

from protocol.records.batch import BatchHeader
from protocol.records.compiled import CompiledRecord
from protocol.records.errors import MalformedBatch, MalformedRecords
from protocol.records.reader import iter_records
from spark_jobs.tiered_records.planning import Slice
from spark_jobs.tiered_records.schema import RECORDS
from storage.index.transaction import AbortedTxn
from storage.tiered.batch_stream import BatchStream
from storage.tiered.errors import CorruptRemoteData

MAX_ROWS: Final = 10_000
MAX_BYTES: Final = 8 * 1024 * 1024
"""A batch of rows ends with the record that reaches either; a record may be larger."""


def rows_of(part: Slice, pieces: Iterator[memoryview], position: int) -> Iterator[pa.RecordBatch]:
    """`pieces` are the segment's bytes from `position` on, where a batch begins. Raises CorruptRemoteData."""
    aborted = _Aborted(part.aborted)
    stream = BatchStream(part.segment, position, pieces)
    rows = _Rows(part)
    for header in stream:
        if header.base_offset > part.last:
            break
        if _is_passed_over(header, part) or aborted.has(header):
            continue
        for record in _records(part, stream):
            if part.first <= record.offset <= part.last and part.from_ms <= record.timestamp < part.to_ms:
                rows.add(header, record)
                if rows.is_full:
                    yield rows.take()
    stream.close()
    if rows.offsets:
        yield rows.take()


def _is_passed_over(header: BatchHeader, part: Slice) -> bool:
    return header.is_control or header.last_offset < part.first or header.max_timestamp < part.from_ms


def _records(part: Slice, stream: BatchStream) -> Iterator[CompiledRecord]:
    try:
        yield from iter_records(stream.batch())
    except (MalformedBatch, MalformedRecords) as error:
        raise CorruptRemoteData(f"{part.segment.id}: {error}") from error


class _Aborted:
    """Which batches belong to transactions that were aborted: a producer's transactions follow one another."""

    def __init__(self, aborted: Iterable[AbortedTxn]) -> None:
        self._firsts: dict[int, list[int]] = defaultdict(list)
        self._lasts: dict[int, list[int]] = defaultdict(list)
        for txn in sorted(aborted, key=lambda each: each.first_offset):
            self._firsts[txn.producer_id].append(txn.first_offset)
            self._lasts[txn.producer_id].append(txn.last_offset)

    def has(self, header: BatchHeader) -> bool:
        if not header.is_transactional or header.producer_id not in self._firsts:
            return False
        at = bisect_right(self._firsts[header.producer_id], header.base_offset) - 1
        return at >= 0 and header.base_offset <= self._lasts[header.producer_id][at]


class _Rows:
    def __init__(self, part: Slice) -> None:
        self._partition = part.segment.id.partition
        self._clear()

    def _clear(self) -> None:
        self.offsets: list[int] = []
        self._timestamps: list[int] = []
        self._types: list[int] = []
        self._epochs: list[int] = []
        self._keys: list[bytes | None] = []
        self._values: list[bytes | None] = []
        self._headers: list[list[tuple[str, bytes | None]]] = []
        self._bytes = 0

    @property
    def is_full(self) -> bool:
        return len(self.offsets) >= MAX_ROWS or self._bytes >= MAX_BYTES

    def add(self, header: BatchHeader, record: CompiledRecord) -> None:
        self.offsets.append(record.offset)
        self._timestamps.append(record.timestamp * 1000)
        self._types.append(header.timestamp_type)
        self._epochs.append(header.leader_epoch)
        self._keys.append(record.key)
        self._values.append(record.value)
        self._headers.append(record.headers)
        self._bytes += len(record.key or b"") + len(record.value or b"")

    def take(self) -> pa.RecordBatch:
        """What has gathered; then there is nothing."""
        count = len(self.offsets)
        columns = [
            pa.array([self._partition.topic] * count, pa.string()),
            pa.array([self._partition.partition] * count, pa.int32()),
            pa.array(self.offsets, pa.int64()),
            pa.array(self._timestamps, RECORDS.field("timestamp").type),
            pa.array(self._types, pa.int32()),
            pa.array(self._epochs, pa.int32()),
            pa.array(self._keys, pa.binary()),
            pa.array(self._values, pa.binary()),
            pa.array([[{"key": key, "value": value} for key, value in each] for each in self._headers], _HEADERS),
        ]
        self._clear()
        return pa.RecordBatch.from_arrays(columns, schema=RECORDS)


_HEADERS: Final = RECORDS.field("headers").type
