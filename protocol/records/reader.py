"""Reader of the records in a batch, for metadata, offsets, compaction, keys on compacted topics, and lookups by
time.
"""

from collections.abc import Iterator
from itertools import islice
from typing import TypeAlias

from protocol.codec_errors import DecodeError
from protocol.primitives import Buffer, read_uvarint
from protocol.records.batch import HEADER, HEADER_SIZE, BatchHeader, parse_header
from protocol.records.compiled import CompiledRecord, record_code
from protocol.records.compression import MAX_DECOMPRESSED_BYTES, Codec, decompress
from protocol.records.errors import MalformedBatch, MalformedRecords

FullRecord: TypeAlias = CompiledRecord
"""A record as read: `offset`, `timestamp` (ms), `key`, `value` (None for a tombstone), `headers` [(name, value)]."""


def iter_records(batch: Buffer, position: int = 0, *, limit: int = MAX_DECOMPRESSED_BYTES) -> Iterator[FullRecord]:
    """Yield the records of the batch at `position`, with the offsets from its header.

    Under LogAppendTime each record has the batch's max timestamp. Raises MalformedBatch for an invalid header,
    MalformedRecords (perhaps after some records) for a body that does not parse or that decompresses to more than
    `limit` bytes.
    """
    header = parse_header(batch, position)
    view = memoryview(batch)[position : position + header.size]
    if len(view) < header.size:
        raise MalformedBatch(f"{len(view)} bytes of a batch of {header.size} bytes")
    return _iterate(_opened(header, view, limit), header.record_count)


def _opened(header: BatchHeader, view: memoryview, limit: int) -> Buffer:
    """Return the batch uncompressed, for a reader without codecs."""
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
        cleared = _with_cleared_attributes(opened)
        if cleared is None:
            raise MalformedRecords(f"record {seen} does not parse: {error}") from error
        yield from islice(_iterate(cleared, count), seen, None)
        return
    if seen != count:
        raise MalformedRecords(f"the batch holds {seen} records, its header counts {count}")


def _with_cleared_attributes(opened: Buffer) -> Buffer | None:
    """Return a copy of the batch whose records have attributes 0; None if no attributes have the high bit.

    Attributes of records are an unused int8, which Kafka ignores. The compiled reader takes them for a varint, and an
    attributes byte with the high bit for two bytes.
    """
    cleared: bytearray | None = None
    position = HEADER_SIZE
    try:
        while position < len(opened):
            size, position = read_uvarint(opened, position)  # zigzag: an even number for a size of at least 0
            if opened[position] & 0x80:
                cleared = bytearray(opened) if cleared is None else cleared
                cleared[position] = 0
            if size & 1:
                break
            position += size >> 1
    except (DecodeError, IndexError):
        return cleared
    return cleared
