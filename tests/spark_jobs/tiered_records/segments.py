"""Segments made of given batches, and their records one by one from the node's own reader."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import pyarrow as pa

from protocol.ids import BrokerId, LeaderEpoch
from protocol.primitives import Uuid
from protocol.records.batch import iter_headers
from spark_jobs.tiered_records.bounds import EVER, EVERYTHING
from spark_jobs.tiered_records.planning import SegmentRange
from spark_jobs.tiered_records.rows import RowLimits, rows_of
from spark_jobs.tiered_records.schema import RECORDS
from storage.index.transaction import AbortedTxn
from storage.tiered.segment_metadata import RemoteSegment, RemoteSegmentId, SegmentEpoch, TopicIdPartition
from tests.support.fakes.batches import iter_all_records

TOPIC = "orders"
PARTITION = 3
LIMITS = RowLimits()


def segment_of(batches: Sequence[bytes]) -> RemoteSegment:
    headers = [next(iter_headers(batch))[1] for batch in batches]
    return RemoteSegment(
        id=RemoteSegmentId(TopicIdPartition(Uuid(bytes(16)), TOPIC, PARTITION), Uuid(bytes(15) + b"\x01")),
        start_offset=headers[0].base_offset,
        end_offset=headers[-1].last_offset,
        max_timestamp_ms=max(header.max_timestamp for header in headers),
        broker_id=BrokerId(1),
        event_timestamp_ms=0,
        size_bytes=sum(map(len, batches)),
        leader_epochs=(SegmentEpoch(LeaderEpoch(0), headers[0].base_offset),),
    )


def slice_of(
    batches: Sequence[bytes],
    first: int | None = None,
    last: int | None = None,
    from_ms: int = EVER,
    to_ms: int = EVERYTHING,
    aborted: Iterable[AbortedTxn] = (),
) -> SegmentRange:
    """Return the range of a whole segment, or the given part of it."""
    segment = segment_of(batches)
    first = segment.start_offset if first is None else first
    last = segment.end_offset if last is None else last
    return SegmentRange(segment, first, last, from_ms, to_ms, tuple(aborted))


def in_pieces(data: bytes, size: int) -> Iterator[memoryview]:
    for start in range(0, len(data), size):
        yield memoryview(data)[start : start + size]


def arrow_batches(
    part: SegmentRange,
    data: bytes,
    limits: RowLimits = LIMITS,
    piece_bytes: int = 1 << 20,
    schema: pa.Schema = RECORDS,
) -> list[pa.RecordBatch]:
    pieces = in_pieces(data, piece_bytes)
    return [rows.batch for rows in rows_of(part, pieces, 0, len(data), schema, limits)]


def rows(
    part: SegmentRange, data: bytes, limits: RowLimits = LIMITS, piece_bytes: int = 1 << 20
) -> list[dict[str, Any]]:
    """Return the rows of the reader under test, with Python values in each column except timestamps."""
    found: list[dict[str, Any]] = []
    for batch in arrow_batches(part, data, limits, piece_bytes):
        batch.validate(full=True)
        assert batch.schema == RECORDS
        times = batch.schema.get_field_index("timestamp")
        found += batch.set_column(times, "timestamp", batch.column(times).view(pa.int64())).to_pylist()
    return found


def plain_rows(part: SegmentRange, data: bytes) -> Iterator[dict[str, Any]]:
    """Yield the expected rows, record by record. Raises MalformedRecords."""
    for header, record in iter_all_records(data):
        is_aborted = header.is_transactional and any(
            txn.producer_id == header.producer_id and txn.first_offset <= header.base_offset <= txn.last_offset
            for txn in part.aborted
        )
        is_wanted = part.first <= record.offset <= part.last
        is_in_time = part.from_ms <= record.timestamp and (part.to_ms == EVERYTHING or record.timestamp < part.to_ms)
        if is_wanted and is_in_time and not header.is_control and not is_aborted:
            yield {
                "topic": TOPIC,
                "partition": PARTITION,
                "offset": record.offset,
                "timestamp": record.timestamp * 1000,
                "timestampType": int(header.timestamp_type),
                "leaderEpoch": header.leader_epoch,
                "key": record.key,
                "value": record.value,
                "headers": [{"key": key, "value": value} for key, value in record.headers],
            }
