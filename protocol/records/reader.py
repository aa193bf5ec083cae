"""Opens record batches. For the few places that must: metadata, offsets, compaction, keys on compacted topics,
lookups by time.
"""

from collections.abc import Iterator
from typing import TypeAlias

from protocol.primitives import Buffer
from protocol.records.batch import HEADER, HEADER_SIZE, BatchHeader, parse_header
from protocol.records.compiled import CompiledRecord, record_code
from protocol.records.compression import MAX_DECOMPRESSED_BYTES, Codec, decompress
from protocol.records.errors import MalformedBatch, MalformedRecords

FullRecord: TypeAlias = CompiledRecord
"""A record as read: `offset`, `timestamp` (ms), `key`, `value` (None for a tombstone), `headers` [(name, value)]."""


def iter_records(batch: Buffer, position: int = 0, *, limit: int = MAX_DECOMPRESSED_BYTES) -> Iterator[FullRecord]:
    """The records of the batch at `position`, with the offsets that its header gives them.

    Under LogAppendTime each record carries the batch's maximum timestamp. Raises MalformedBatch for a header that is
    none, MalformedRecords (perhaps after some records) for a body that does not decompress to more than `limit` bytes
    or parse.
    """
    header = parse_header(batch, position)
    view = memoryview(batch)[position : position + header.size]
    if len(view) < header.size:
        raise MalformedBatch(f"{len(view)} bytes of a batch of {header.size}")
    return _iterate(_opened(header, view, limit), header.record_count)


def iter_all_records(batches: Buffer) -> Iterator[tuple[BatchHeader, FullRecord]]:
    """(header, record) over every whole batch in `batches`, control batches included. Raises as `iter_records`."""
    position = 0
    while len(batches) - position >= HEADER_SIZE:
        header = parse_header(batches, position)
        if position + header.size > len(batches):
            return
        for record in iter_records(batches, position):
            yield header, record
        position += header.size


def _opened(header: BatchHeader, view: memoryview, limit: int) -> Buffer:
    """The same batch without compression, for a reader that knows none."""
    if header.codec == Codec.NONE:
        return view
    body = decompress(header.codec, view[HEADER_SIZE:], limit)
    opened = bytearray(HEADER_SIZE + len(body))
    HEADER.pack_into(opened, 0, *header._replace(attributes=header.attributes & ~7))
    opened[HEADER_SIZE:] = body
    return opened


def _iterate(opened: Buffer, count: int) -> Iterator[FullRecord]:
    code = record_code()
    seen = 0
    try:
        for record in code.reader(opened):
            seen += 1
            yield record
    except (code.corrupt, ValueError, IndexError, OverflowError, MemoryError) as error:
        raise MalformedRecords(f"record {seen} does not parse: {error}") from error
    if seen != count:
        raise MalformedRecords(f"{seen} records where the header counts {count}")
