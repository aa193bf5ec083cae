"""The records of a segment range as Arrow batches of bounded size, from the bytes of a segment.

Batches are decompressed in groups of some megabytes, and their records read column by column.
"""

from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa

from protocol.records.batch import CODEC_MASK, CONTROL_FLAG, HEADER_SIZE, LOG_APPEND_TIME_FLAG, TRANSACTIONAL_FLAG
from protocol.records.compression import Codec, decompress
from protocol.records.errors import MalformedRecords
from spark_jobs.metadata.byte_columns import Bools, Bytes, Ints
from spark_jobs.metadata.record_frames import LEAST_RECORD, LEAST_TOGETHER, VARINT_BYTES, frames_of
from spark_jobs.tiered_records.bounds import EVERYTHING
from spark_jobs.tiered_records.columns import Columns, SelectedRecords
from spark_jobs.tiered_records.planning import SegmentRange
from spark_jobs.tiered_records.record_fields import fields_of, places_of
from spark_jobs.tiered_records.schema import RECORDS
from spark_jobs.tiered_records.windows import Window, windows
from storage.index.transaction import AbortedTxn

_MIB: Final = 1024 * 1024
_LEAST_LENGTH: Final = 1


class RowLimits(NamedTuple):
    """Limits of memory: `window_bytes` of a segment or one larger batch; `opened_bytes` of these decompressed, plus the
    rest of a batch; Arrow batches of `rows` and `bytes`, or one record.
    """

    window_bytes: int = 8 * _MIB
    opened_bytes: int = 8 * _MIB
    rows: int = 32 * 1024
    bytes: int = 8 * _MIB


class Rows(NamedTuple):
    """Rows, and the first offset after them and earlier rows."""

    batch: pa.RecordBatch
    next_offset: int


_LIMITS: Final = RowLimits()


class _Opened(NamedTuple):
    """Decompressed batches of a window, by their numbers there; their records lie in `pool` from `bodies` to `ends`."""

    pool: Bytes
    batches: Ints
    bodies: Ints
    ends: Ints


def rows_of(
    part: SegmentRange,
    pieces: Iterator[memoryview],
    position: int,
    end: int,
    schema: pa.Schema = RECORDS,
    limits: RowLimits = _LIMITS,
) -> Iterator[Rows]:
    """Yield the rows of a segment range with the columns of `schema`, which are among RECORDS. `pieces` are the
    segment's bytes from `position` to before `end`, at batch boundaries or the end of the segment.

    Raises CorruptRemoteData, whose message does not name the segment.
    """
    aborted = _Aborted(part.aborted)
    columns = Columns(part.segment.id.partition, schema)
    for window in windows(part.segment, pieces, position, end, limits.window_bytes):
        for opened in _opened(window, _wanted(window, part, aborted), limits.opened_bytes):
            yield from _rows(part, columns, window, opened, limits)
        if window.last_offset >= part.last:
            return


def _wanted(window: Window, part: SegmentRange, aborted: "_Aborted") -> Ints:
    """Return the batches that may hold matching records."""
    bases, attributes = window.column("base_offset"), window.column("attributes")
    wanted = (bases <= part.last) & (bases + window.column("last_offset_delta") >= part.first)
    wanted &= (attributes & CONTROL_FLAG == 0) & (window.column("record_count") != 0)
    wanted &= window.column("max_timestamp") >= part.from_ms
    in_transaction = np.flatnonzero(wanted & (attributes & TRANSACTIONAL_FLAG != 0))
    wanted[in_transaction] = ~aborted.among(window.column("producer_id")[in_transaction], bases[in_transaction])
    return np.flatnonzero(wanted)


class _Aborted:
    """The aborted transactions by producer; the transactions of a producer do not overlap."""

    def __init__(self, aborted: Iterable[AbortedTxn]) -> None:
        ordered = sorted(aborted, key=lambda txn: (txn.producer_id, txn.first_offset))
        self._producers = np.array([txn.producer_id for txn in ordered], np.int64)
        self._firsts = np.array([txn.first_offset for txn in ordered], np.int64)
        self._lasts = np.array([txn.last_offset for txn in ordered], np.int64)

    def among(self, producers: Ints, offsets: Ints) -> Bools:
        """Return a mask of the transactional batches, given by producer and offset, that belong to aborted
        transactions.
        """
        found = np.zeros(len(producers), np.bool_)
        for producer in np.intersect1d(producers, self._producers).tolist():
            mine = slice(*np.searchsorted(self._producers, [producer, producer + 1]).tolist())
            rows = np.flatnonzero(producers == producer)
            at = np.searchsorted(self._firsts[mine], offsets[rows], side="right") - 1
            found[rows] = (at >= 0) & (offsets[rows] <= self._lasts[mine][at])
        return found


def _opened(window: Window, wanted: Ints, least_bytes: int) -> Iterator[_Opened]:
    """Yield the decompressed batches in groups. Raises CorruptRemoteData."""
    if not len(wanted):
        return
    window.check(wanted)
    bodies, ends = window.places[wanted] + HEADER_SIZE, window.ends[wanted]
    codecs = window.column("attributes")[wanted] & CODEC_MASK
    if not codecs.any():
        yield _Opened(np.frombuffer(window.data, np.uint8), wanted, bodies, ends)
        return
    parts: list[bytes | memoryview] = []
    first = size = 0
    for number, (begin, end, codec) in enumerate(zip(bodies.tolist(), ends.tolist(), codecs.tolist(), strict=True)):
        try:
            parts.append(_decompressed(codec, memoryview(window.data)[begin:end]))
        except MalformedRecords as error:
            raise window.corrupt(int(wanted[number]), str(error)) from error
        size += len(parts[-1])
        if size >= least_bytes or number + 1 == len(wanted):
            yield _joined(wanted[first : number + 1], parts)
            parts.clear()
            first, size = number + 1, 0


def _decompressed(codec: int, body: memoryview) -> bytes | memoryview:
    """Decompress a batch into exact memory, because small results have far larger buffers. Raises MalformedRecords."""
    if codec == Codec.NONE:
        return body
    opened = memoryview(decompress(codec, body))
    return bytes(opened) if len(opened) < _MIB else opened


def _joined(batches: Ints, parts: list[bytes | memoryview]) -> _Opened:
    ends = np.cumsum(np.array([len(part) for part in parts], np.int64))
    pool = np.frombuffer(parts[0] if len(parts) == 1 else b"".join(parts), np.uint8)
    return _Opened(pool, batches, np.append(0, ends[:-1]), ends)


def _rows(part: SegmentRange, columns: Columns, window: Window, opened: _Opened, limits: RowLimits) -> Iterator[Rows]:
    pool = opened.pool
    counts = window.column("record_count")[opened.batches]
    _refuse(window, opened.batches[counts * (LEAST_RECORD + _LEAST_LENGTH) > opened.ends - opened.bodies])
    _refuse(window, opened.batches[counts < 0])
    frames = frames_of(
        pool, opened.bodies, opened.ends, counts, least_together=LEAST_TOGETHER, length_bytes=VARINT_BYTES
    )
    _refuse(window, opened.batches[~frames.taken])
    batches = np.repeat(opened.batches, counts)
    for rows in _cuts(frames.contents, frames.stops, limits):
        found, next_offset = _found(part, window, pool, batches[rows], frames.contents[rows], frames.stops[rows])
        if len(found.offsets):
            yield Rows(_batch(columns, window, pool, found), next_offset)


def _cuts(contents: Ints, stops: Ints, limits: RowLimits) -> Iterator[slice]:
    """Yield slices of as many records as one Arrow batch may hold."""
    first = 0
    while first < len(stops):
        last = int(np.searchsorted(stops, contents[first] + limits.bytes, side="right"))
        end = min(max(last, first + 1), first + limits.rows)
        yield slice(first, end)
        first = end


def _found(
    part: SegmentRange, window: Window, pool: Bytes, batches: Ints, contents: Ints, stops: Ints
) -> tuple[SelectedRecords, int]:
    """Return (the matching records, the offset after all records)."""
    places = places_of(pool, contents)
    _refuse(window, batches[~places.sound])
    offsets = window.column("base_offset")[batches] + places.offset_deltas
    is_appended = (window.column("attributes") & LOG_APPEND_TIME_FLAG != 0)[batches]
    times = window.column("base_timestamp")[batches] + places.timestamp_deltas
    if is_appended.any():
        times = np.where(is_appended, window.column("max_timestamp")[batches], times)
    found = SelectedRecords(
        batches, offsets, times, is_appended, window.column("leader_epoch")[batches], places.keys_at, stops
    )
    wanted = (offsets >= part.first) & (offsets <= part.last) & (times >= part.from_ms)
    wanted &= (times < part.to_ms) | (part.to_ms == EVERYTHING)
    next_offset = int(offsets[-1]) + 1
    return (found if wanted.all() else found.where(wanted)), next_offset


def _batch(columns: Columns, window: Window, pool: Bytes, found: SelectedRecords) -> pa.RecordBatch:
    fields = fields_of(pool, found.keys_at, found.stops)
    _refuse(window, found.batches[~fields.sound])
    return columns.batch(pool, found, fields)


def _refuse(window: Window, batches: Ints) -> None:
    """Raise CorruptRemoteData for the first of these batches."""
    if len(batches):
        raise window.corrupt(int(batches[0]), "the records do not parse")
