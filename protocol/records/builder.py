"""Builders of record batches, from new records or from the remaining records of another batch."""

from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Final, NamedTuple

from protocol.ids import LeaderEpoch
from protocol.primitives import Buffer, encode_uvarint
from protocol.records.batch import (
    CODEC_MASK,
    CONTROL_FLAG,
    DELETE_HORIZON_FLAG,
    HEADER_SIZE,
    LOG_APPEND_TIME_FLAG,
    MAGIC,
    NO_LEADER_EPOCH,
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    NO_SEQUENCE,
    NO_TIMESTAMP,
    TRANSACTIONAL_FLAG,
    BatchHeader,
    TimestampType,
    fill_header,
    pack_batch,
    pack_into,
)
from protocol.records.compiled import record_code
from protocol.records.compression import Codec, compress
from protocol.records.reader import FullRecord

_UNBOUNDED = 2**31 - 1
"""Size limit for the compiled builder, which requires one; batch sizes are checked on append."""
_NO_HEADERS: list[tuple[str, bytes | None]] = []
"""Shared empty list, which the builder only reads."""

_SIZES_MAX: Final = 4_096
"""Limit of the remembered encodings of sizes."""


class Record(NamedTuple):
    """A record to write: timestamp in ms, key and value (None allowed for each), headers as (name, value)."""

    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: Sequence[tuple[str, bytes | None]] = ()


class _Entry(NamedTuple):
    offset_delta: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: Sequence[tuple[str, bytes | None]]


def build_batch(
    records: Iterable[Record],
    *,
    base_offset: int = 0,
    leader_epoch: LeaderEpoch = NO_LEADER_EPOCH,
    codec: int = Codec.NONE,
    level: int | None = None,
    timestamp_type: int = TimestampType.CREATE_TIME,
    producer_id: int = NO_PRODUCER_ID,
    producer_epoch: int = NO_PRODUCER_EPOCH,
    base_sequence: int = NO_SEQUENCE,
    transactional: bool = False,
    control: bool = False,
) -> bytes:
    """Build one batch of `records` with offsets from `base_offset` on. Raises ValueError without records."""
    entries = list(records)
    if not entries:
        raise ValueError("a batch needs at least one record")
    attributes = (
        codec
        | (LOG_APPEND_TIME_FLAG if timestamp_type else 0)
        | (TRANSACTIONAL_FLAG if transactional else 0)
        | (CONTROL_FLAG if control else 0)
    )
    base_timestamp = max_timestamp = entries[0].timestamp
    shift = 1 if base_timestamp == NO_TIMESTAMP else 0
    builder = record_code().builder(MAGIC, Codec.NONE, 0, NO_PRODUCER_ID, NO_PRODUCER_EPOCH, NO_SEQUENCE, _UNBOUNDED)
    append = builder.append
    for delta, (timestamp, key, value, headers) in enumerate(entries):
        append(delta, timestamp + shift, key, value, list(headers) if headers else _NO_HEADERS)
        if timestamp > max_timestamp:
            max_timestamp = timestamp
    header = BatchHeader(
        base_offset,
        0,
        leader_epoch,
        MAGIC,
        0,
        attributes,
        len(entries) - 1,
        base_timestamp,
        max_timestamp,
        producer_id,
        producer_epoch,
        base_sequence,
        len(entries),
    )
    built = builder.build()  # with room for the header, in which nothing of the compiled builder stays
    if codec == Codec.NONE:
        return pack_into(header, built)
    return pack_batch(header, compress(Codec(codec), memoryview(built)[HEADER_SIZE:], level))


def encode_record(key: bytes | None, value: bytes | None) -> bytes:
    """Return the only record of a batch, which has the batch's timestamp and no headers."""
    key_size = b"\x01" if key is None else _size(len(key))
    value_size = b"\x01" if value is None else _size(len(value))
    body = b"".join((b"\0\0\0", key_size, key or b"", value_size, value or b"", b"\0"))
    return _size(len(body)) + body


@lru_cache(_SIZES_MAX)
def _size(count: int) -> bytes:
    """Encode a size as the varint of records, in which −1 stands for null."""
    return encode_uvarint(count << 1)


def build_single_record(
    record: bytes,
    timestamp_ms: int,
    *,
    attributes: int = 0,
    producer_id: int = NO_PRODUCER_ID,
    producer_epoch: int = NO_PRODUCER_EPOCH,
) -> bytearray:
    """Build an uncompressed batch of one record from `encode_record`, for an append that assigns offset and epoch.

    The cost is a fifth of `build_batch`, which matters where a coordinator writes a batch for each request.
    """
    batch = bytearray(HEADER_SIZE + len(record))
    batch[HEADER_SIZE:] = record
    header = BatchHeader(
        0,
        0,
        NO_LEADER_EPOCH,
        MAGIC,
        0,
        attributes,
        0,
        timestamp_ms,
        timestamp_ms,
        producer_id,
        producer_epoch,
        NO_SEQUENCE,
        1,
    )
    fill_header(header, batch)
    return batch


def build_value_batch(
    values: Sequence[bytes], timestamp_ms: int, *, base_offset: int, leader_epoch: LeaderEpoch, codec: int = Codec.NONE
) -> bytes:
    """Build a batch of records with values only and one timestamp, as in the metadata log.

    The cost is a third of `build_batch`, which matters for snapshots of a million records. Raises ValueError without
    records.
    """
    if not values:
        raise ValueError("a batch needs at least one record")
    builder = record_code().builder(MAGIC, Codec.NONE, 0, NO_PRODUCER_ID, NO_PRODUCER_EPOCH, NO_SEQUENCE, _UNBOUNDED)
    append = builder.append
    for delta, value in enumerate(values):
        append(delta, timestamp_ms, None, value, _NO_HEADERS)
    header = BatchHeader(
        base_offset=base_offset,
        batch_length=0,
        leader_epoch=leader_epoch,
        magic=MAGIC,
        crc=0,
        attributes=codec,
        last_offset_delta=len(values) - 1,
        base_timestamp=timestamp_ms,
        max_timestamp=timestamp_ms,
        producer_id=NO_PRODUCER_ID,
        producer_epoch=NO_PRODUCER_EPOCH,
        base_sequence=NO_SEQUENCE,
        record_count=len(values),
    )
    return pack_batch(header, compress(Codec(codec), memoryview(builder.build())[HEADER_SIZE:]))


def rebuild_batch(
    header: BatchHeader,
    records: Iterable[FullRecord],
    *,
    codec: int | None = None,
    level: int | None = None,
    delete_horizon_ms: int | None = None,
) -> bytes:
    """Build the batch of `header` with `records` only, which keep their offsets and timestamps.

    Base offset, last offset delta, producer fields, leader epoch and flags stay; `codec` None keeps the codec. A delete
    horizon (KIP-534) becomes the base timestamp, and every delta counts from there. Returns `empty_batch` without
    records.
    """
    entries = [_Entry(r.offset - header.base_offset, r.timestamp, r.key, r.value, r.headers) for r in records]
    if not entries:
        return empty_batch(header)
    horizon = header.delete_horizon_ms if delete_horizon_ms is None else delete_horizon_ms
    kept_codec = header.codec if codec is None else codec
    attributes = header.attributes & ~(CODEC_MASK | DELETE_HORIZON_FLAG) | kept_codec
    log_append_time = attributes & LOG_APPEND_TIME_FLAG
    rebuilt = header._replace(
        attributes=attributes if horizon is None else attributes | DELETE_HORIZON_FLAG,
        base_timestamp=entries[0].timestamp if horizon is None else horizon,
        max_timestamp=header.max_timestamp if log_append_time else max(entry.timestamp for entry in entries),
        record_count=len(entries),
    )
    return pack_batch(rebuilt, compress(Codec(kept_codec), _encode(entries, horizon), level))


def empty_batch(header: BatchHeader) -> bytes:
    """Return the 61-byte batch without records, kept for its offsets and producer fields."""
    attributes = header.attributes & ~(CODEC_MASK | DELETE_HORIZON_FLAG)
    return pack_batch(header._replace(attributes=attributes, base_timestamp=NO_TIMESTAMP, record_count=0), b"")


def _encode(entries: Sequence[_Entry], base_timestamp: int | None = None) -> Buffer:
    """Encode the record section. The compiled builder counts timestamps from its first record; another base becomes an
    additional first record, which is cut off again.

    The builder takes a first timestamp of -1 for none. Only differences are encoded, so all timestamps are shifted.
    """
    base = entries[0].timestamp if base_timestamp is None else base_timestamp
    shift = 1 if base == NO_TIMESTAMP else 0
    builder = record_code().builder(MAGIC, Codec.NONE, 0, NO_PRODUCER_ID, NO_PRODUCER_EPOCH, NO_SEQUENCE, _UNBOUNDED)
    skipped = HEADER_SIZE
    if base_timestamp is not None:
        builder.append(0, base_timestamp + shift, None, None, [])
        skipped = builder.size()
    for delta, timestamp, key, value, headers in entries:
        builder.append(delta, timestamp + shift, key, value, list(headers))
    return memoryview(builder.build())[skipped:]
