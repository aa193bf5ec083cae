"""One segment range, from its store to rows. Blocks.

The part of the segment with the range is read by one request, whose body is consumed in pieces as rows are needed; an
interrupted body is resumed and a throttled request retried as everywhere (`storage.tiered.stores.retries`).
"""

from collections.abc import Iterator
from dataclasses import replace
from typing import NamedTuple

import pyarrow as pa

from spark_jobs.tiered_records.planning import RecordsMissing, SegmentRange
from spark_jobs.tiered_records.rows import Rows, rows_of
from spark_jobs.tiered_records.schema import RECORDS
from spark_jobs.tiered_records.segment_indexes import offset_before, offset_entries
from storage.tiered.errors import CorruptRemoteData, RemoteResourceNotFound
from storage.tiered.remote_storage import RemoteStorageManager


class ByteRange(NamedTuple):
    """Bytes of a segment from `begin` to before `end`, at batch boundaries or the end of the segment."""

    begin: int
    end: int


def read(
    storage: RemoteStorageManager, part: SegmentRange, *, schema: pa.Schema = RECORDS, may_miss: bool = False
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a segment range with the columns of `schema`, which are among RECORDS.

    Damaged data is read a second time, because the transfer may have damaged it. With `may_miss`, a removed segment has
    no more rows. Raises CorruptRemoteData, which names the object and the batch, RecordsMissing, RemoteStorageError.
    """
    try:
        yield from _read(storage, part, schema)
    except RemoteResourceNotFound as error:
        if not may_miss:
            raise RecordsMissing(
                f"offsets {part.first} to {part.last} of {part.segment.id.partition} were removed from the store after"
                f" the read was planned: {error}; failOnDataLoss=false skips them."
            ) from error


def _read(storage: RemoteStorageManager, part: SegmentRange, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    try:
        for rows in _rows(storage, part, schema):
            part = replace(part, first=rows.next_offset)
            yield rows.batch
        return
    except CorruptRemoteData:
        storage.discard(part.segment)
    try:
        for rows in _rows(storage, part, schema):
            yield rows.batch
    except CorruptRemoteData as error:
        raise CorruptRemoteData(f"{storage.location(part.segment)} is damaged: {error}") from error


def _rows(storage: RemoteStorageManager, part: SegmentRange, schema: pa.Schema) -> Iterator[Rows]:
    if part.first > part.last:
        return
    begin, end = byte_range_of(storage, part)
    pieces = storage.read_segment(part.segment, begin, end - 1)
    close = getattr(pieces, "close", None)
    try:
        yield from rows_of(part, pieces, begin, end, schema)
    finally:
        if close is not None:
            close()


def byte_range_of(storage: RemoteStorageManager, part: SegmentRange) -> ByteRange:
    """Return the position of a range in its segment by the indexes, which are not read for a whole segment."""
    segment, first, last = part.segment, part.first, part.last
    if part.from_ms > 0:
        first = max(first, offset_before(storage, segment, part.from_ms))
    begin, end = 0, segment.size_bytes
    if first <= segment.start_offset and last >= segment.end_offset:
        return ByteRange(begin, end)
    is_behind = False
    for entry in offset_entries(storage, segment):
        if entry.offset <= first:
            begin = entry.position
        elif is_behind:
            return ByteRange(begin, entry.position)
        is_behind = entry.offset > last
    return ByteRange(begin, end)
