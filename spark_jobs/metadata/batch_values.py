"""The concatenated values of the records in whole batches, after checks and decompression.

Plain batches are scanned together if there are many (`record_scan.py`); the node's reader reads all others.
"""

from collections.abc import Sequence
from contextlib import suppress
from typing import Final, NamedTuple, cast

import numpy as np

from protocol.primitives import Buffer
from protocol.records.batch import HEADER_SIZE, BatchHeader, crc_is_valid
from protocol.records.compiled import record_code
from protocol.records.compression import Codec
from protocol.records.errors import MalformedBatch, MalformedRecords
from protocol.records.reader import iter_records
from spark_jobs.metadata.byte_columns import Bools, Bytes, Ints, Strings, put_bytes
from spark_jobs.metadata.frame_heads import MalformedLog
from spark_jobs.metadata.record_scan import MIN_LANES, Scan, scan

CONTROL_HEAD: Final = 4
"""Bytes before a control record's value: the version and type of its key."""
_LEAST_RECORD: Final = 7
_SKEW: Final = 4
"""A batch with this many times more records than the others would be scanned mostly alone."""


class LogBatch(NamedTuple):
    """A whole, unparsed batch in `data`."""

    data: Buffer
    position: int
    header: BatchHeader

    @property
    def record_count(self) -> int:
        return self.header.record_count

    @property
    def is_plain(self) -> bool:
        """Whether the batch can be scanned: uncompressed data large enough for its record count."""
        header = self.header
        fits = 0 < header.record_count * _LEAST_RECORD <= header.size - HEADER_SIZE
        return not header.is_control and header.codec == Codec.NONE and fits

    def overlaps(self, start: int, end: int) -> bool:
        return self.header.base_offset < end and self.header.next_offset > start

    def check(self) -> None:
        """Raise MalformedLog for a wrong CRC, or a record count that contradicts the offsets."""
        header = self.header
        if not crc_is_valid(self.data, self.position, header.size):
            raise MalformedLog(f"{self} has a wrong CRC")
        if header.record_count != header.last_offset_delta + 1:
            raise MalformedLog(f"{self} has {header.record_count} records for {header.last_offset_delta + 1} offsets")

    def values(self) -> list[bytes]:
        """Return the values of the records, read by the node's reader. Raises MalformedLog."""
        try:
            values = self._control_values() if self.header.is_control else self._data_values()
        except (MalformedBatch, MalformedRecords) as error:
            raise MalformedLog(f"{self} does not parse: {error}") from error
        if len(values) != self.record_count:
            raise MalformedLog(f"{self} has {len(values)} records, its header counts {self.record_count}")
        if None in values:
            raise MalformedLog(f"{self} has a record without value")
        return cast(list[bytes], values)

    def __str__(self) -> str:
        return f"the batch at offset {self.header.base_offset}"

    def _data_values(self) -> list[bytes | None]:
        if self.header.codec == Codec.NONE:
            code = record_code()
            view = memoryview(self.data)[self.position : self.position + self.header.size]
            # `iter_records` reads attributes that the compiled reader refuses, and names a record that does not parse.
            with suppress(code.corrupt, ValueError, IndexError, OverflowError, MemoryError):
                return [record.value for record in code.reader(view)]
        return [record.value for record in iter_records(self.data, self.position)]

    def _control_values(self) -> list[bytes | None]:
        """Return the values, each after its CONTROL_HEAD."""
        records = list(iter_records(self.data, self.position))
        if any(record.key is None or len(record.key) < CONTROL_HEAD for record in records):
            raise MalformedRecords("the key of a control record is too short")
        return [(record.key or b"")[:CONTROL_HEAD] + (record.value or b"") for record in records]


def batch_values(data: Buffer, batches: Sequence[LogBatch]) -> Strings:
    """Return the values of all records of these batches in `data`. Raises MalformedLog."""
    for batch in batches:
        batch.check()
    counts = np.array([batch.record_count for batch in batches], np.int64)
    pool = np.frombuffer(data, np.uint8)
    taken, found = _scanned(pool, batches, counts)
    fast = np.repeat(taken, counts)
    values = [
        value
        for batch, is_taken in zip(batches, taken.tolist(), strict=True)
        if not is_taken
        for value in batch.values()
    ]
    lengths = np.empty(len(fast), np.int64)
    lengths[fast] = found.lengths
    lengths[~fast] = np.fromiter(map(len, values), np.int64, len(values))
    ends = np.cumsum(lengths)
    starts = ends - lengths
    out = np.empty(int(ends[-1]) if len(ends) else 0, np.uint8)
    put_bytes(out, starts[fast], pool, found.starts, found.lengths)
    _put_values(out, starts[~fast], values)
    return Strings(out, starts, lengths)


def _scanned(pool: Bytes, batches: Sequence[LogBatch], counts: Ints) -> tuple[Bools, Scan]:
    """Scan the plain batches; return a mask of the scanned batches, and their values."""
    taken = np.zeros(len(batches), np.bool_)
    lanes = _lanes(np.array([batch.is_plain for batch in batches], np.bool_), counts)
    if not len(lanes):
        none = np.empty(0, np.int64)
        return taken, Scan(none, none, taken)
    bodies = np.array([batches[lane].position + HEADER_SIZE for lane in lanes.tolist()], np.int64)
    ends = np.array([batches[lane].position + batches[lane].header.size for lane in lanes.tolist()], np.int64)
    found = scan(pool, bodies, ends, counts[lanes])
    taken[lanes] = found.taken
    if found.taken.all():
        return taken, found
    rows = np.repeat(found.taken, counts[lanes])
    return taken, Scan(found.starts[rows], found.lengths[rows], found.taken)


def _lanes(plain: Bools, counts: Ints) -> Ints:
    """Return the batches that are worth scanning together."""
    lanes = np.flatnonzero(plain)
    if len(lanes) < MIN_LANES:
        return lanes[:0]
    common = np.partition(counts[lanes], -MIN_LANES)[-MIN_LANES]
    alike: Ints = lanes[counts[lanes] <= _SKEW * common]
    return alike


def _put_values(out: Bytes, places: Ints, values: Sequence[bytes]) -> None:
    lengths = np.fromiter(map(len, values), np.int64, len(values))
    joined = np.frombuffer(b"".join(values), np.uint8)
    put_bytes(out, places, joined, np.cumsum(lengths) - lengths, lengths)
