"""Validation of produced batches by their headers (reference: ProduceRequest.validateRecords, LogValidator).

The records are decompressed in two cases only: a compacted log needs keys, and `compression.type` may require another
codec. They are also read to name the invalid records once the header shows that some are invalid. Timestamps are
checked by the header's base and max timestamp; LogAppendTime is patched into the header. Offsets, producers and files
are checked elsewhere.
"""

from builtins import memoryview
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from typing import NamedTuple

from protocol.primitives import Buffer
from protocol.records.batch import (
    ATTRIBUTES_POSITION,
    CODEC_MASK,
    HEADER,
    HEADER_SIZE,
    LENGTH_PREFIX_SIZE,
    LOG_APPEND_TIME_FLAG,
    MAGIC,
    NO_TIMESTAMP,
    TRANSACTIONAL_FLAG,
    BatchHeader,
    TimestampType,
    batch_size,
    clear_log_append_time,
    parse_header,
    patch_log_append_time,
)
from protocol.records.builder import Record, build_batch
from protocol.records.compiled import crc32c
from protocol.records.compression import Codec
from protocol.records.errors import MalformedBatch, MalformedRecords, UnknownCodec
from protocol.records.reader import FullRecord, iter_records
from storage.config import LogConfig
from storage.errors import CorruptBatch, InvalidRecords, Rejection
from storage.producer_state import Origin

MAX_RECORD_ERRORS = 1000
"""Limit of listed records: a batch may hold millions of invalid ones."""

_LAST_CODEC = int(max(Codec))
_ORDINARY_ATTRIBUTES = CODEC_MASK | TRANSACTIONAL_FLAG
_MAGIC_POSITION = 16
_MIN_LEGACY_LENGTH = 14
"""The smallest length field of the message formats before magic 2."""


class Admitted(NamedTuple):
    """A valid batch with its current header; `batch` holds exactly its bytes and may be read-only."""

    header: BatchHeader
    batch: memoryview


def admit(batches: Buffer, config: LogConfig, now_ms: int, origin: Origin) -> list[Admitted]:
    """Validate batches that a leader is to append, before offsets and leader epoch are assigned.

    A client must send exactly one batch. An incomplete batch at the end is left out. Raises CorruptBatch and
    InvalidRecords.
    """
    view = memoryview(batches)
    ordinary = _ordinary(view, config, now_ms, origin)
    if ordinary is not None:
        return [ordinary]
    return admit_generally(view, config, now_ms, origin)


def admit_generally(view: memoryview, config: LogConfig, now_ms: int, origin: Origin) -> list[Admitted]:
    """Validate batches as `admit` does, without the short way for ordinary ones."""
    found = _split(view, origin)
    if origin is Origin.CLIENT and len(found) != 1:
        raise InvalidRecords(Rejection.INVALID_RECORD, f"expected one record batch, found {len(found)}")
    return [_admit_batch(header, batch, config, now_ms, origin) for header, batch in found]


def _ordinary(view: memoryview, config: LogConfig, now_ms: int, origin: Origin) -> Admitted | None:
    """Return a valid batch that is alone and needs no change, by one look at its header; None for everything else.

    The general checks find the error of an invalid batch, and change the batch where the topic demands it.
    """
    size = len(view)
    if not HEADER_SIZE <= size <= config.max_message_bytes or size > config.segment_bytes or config.is_log_append_time:
        return None
    header = tuple.__new__(BatchHeader, HEADER.unpack_from(view))
    _, length, _, magic, crc, attributes, *_ = header
    if magic != MAGIC or length != size - LENGTH_PREFIX_SIZE or attributes & LOG_APPEND_TIME_FLAG:
        return None
    if config.target_codec is not None and config.target_codec != attributes & CODEC_MASK:
        return None
    if origin is Origin.CLIENT and not _is_ordinary_of_client(header, config, now_ms):
        return None
    return Admitted(header, view) if crc32c(view[ATTRIBUTES_POSITION:]) == crc else None


def _is_ordinary_of_client(header: BatchHeader, config: LogConfig, now_ms: int) -> bool:
    base_offset, _, _, _, _, attributes, last_delta, first_ms, last_ms, producer_id, _, sequence, records = header
    if base_offset or attributes & ~_ORDINARY_ATTRIBUTES or attributes & CODEC_MASK > _LAST_CODEC:
        return False
    if records <= 0 or records != last_delta + 1 or sequence < 0 <= producer_id or config.is_compacted:
        return False
    if not config.has_timestamp_bounds:
        return True
    earliest = now_ms - config.message_timestamp_before_max_ms
    latest = now_ms + config.message_timestamp_after_max_ms
    return earliest <= first_ms <= latest and earliest <= last_ms <= latest


def verify_replicated(batches: Buffer) -> list[Admitted]:
    """Return the whole batches of another replica's log after checking checksums and ascending offsets only.

    Raises CorruptBatch.
    """
    found: list[Admitted] = []
    previous_end = -1
    for header, batch in _split(memoryview(batches), Origin.REPLICATION):
        _check_crc(header, batch)
        base_offset, delta = header.base_offset, header.last_offset_delta
        if base_offset < previous_end or delta < 0:
            raise CorruptBatch(f"offsets {base_offset} to {header.last_offset} do not ascend")
        previous_end = base_offset + delta + 1
        found.append(Admitted(header, batch))
    return found


def _split(view: memoryview, origin: Origin) -> list[tuple[BatchHeader, memoryview]]:
    found: list[tuple[BatchHeader, memoryview]] = []
    position, end = 0, len(view)
    while end - position >= HEADER_SIZE:
        header = _parse(view, position, origin)
        size = header.batch_length + LENGTH_PREFIX_SIZE
        if position + size > end:
            return found
        found.append((header, view[position : position + size]))
        position += size
    if end - position >= LENGTH_PREFIX_SIZE and batch_size(view, position) <= end - position:
        raise CorruptBatch("a batch ends before its header does")
    return found


def _parse(view: memoryview, position: int, origin: Origin) -> BatchHeader:
    try:
        return parse_header(view, position)
    except MalformedBatch as error:
        magic, length = (
            view[position + _MAGIC_POSITION],
            int.from_bytes(view[position + 8 : position + 12], signed=True),
        )
        if origin is Origin.CLIENT and magic < MAGIC and length >= _MIN_LEGACY_LENGTH:
            raise InvalidRecords(Rejection.INVALID_RECORD, f"magic {magic} is no longer supported") from error
        raise CorruptBatch(str(error)) from error


def _admit_batch(header: BatchHeader, batch: memoryview, config: LogConfig, now_ms: int, origin: Origin) -> Admitted:
    if origin is Origin.CLIENT and header.base_offset != 0:
        raise InvalidRecords(Rejection.INVALID_RECORD, f"the base offset is {header.base_offset} instead of 0")
    _check_size(len(batch), config)
    _check_crc(header, batch)
    if origin is Origin.CLIENT:
        _check_client_header(header)
        if config.is_compacted:
            _check_keys(batch)
        _check_timestamp_type(header, config)
    if not config.is_log_append_time:
        _check_timestamps(header, batch, config, now_ms, origin)
    admitted = Admitted(header, batch)
    if config.target_codec is not None and config.target_codec != header.codec and not header.is_control:
        admitted = _recode(admitted, config.target_codec, config)
    if config.is_log_append_time:
        return _stamp(admitted, now_ms)
    return _unstamped(admitted) if header.timestamp_type is TimestampType.LOG_APPEND_TIME else admitted


def _check_size(size: int, config: LogConfig) -> None:
    if size > config.max_message_bytes:
        raise InvalidRecords(
            Rejection.MESSAGE_TOO_LARGE, f"a batch of {size} bytes exceeds max.message.bytes={config.max_message_bytes}"
        )
    if size > config.segment_bytes:
        raise InvalidRecords(
            Rejection.RECORD_LIST_TOO_LARGE, f"a batch of {size} bytes exceeds segment.bytes={config.segment_bytes}"
        )


def _check_crc(header: BatchHeader, batch: memoryview) -> None:
    if crc32c(batch[ATTRIBUTES_POSITION:]) != header.crc:
        raise CorruptBatch(f"the checksum of the batch at offset {header.base_offset} does not match its content")


def _check_client_header(header: BatchHeader) -> None:
    if header.record_count <= 0 or header.record_count != header.last_offset_delta + 1:
        raise InvalidRecords(
            Rejection.INVALID_RECORD,
            f"{header.record_count} records do not fill the offsets 0 to {header.last_offset_delta}",
        )
    if header.is_control:
        raise InvalidRecords(Rejection.INVALID_RECORD, "clients may not write control records")
    if header.producer_id >= 0 and header.base_sequence < 0:
        raise InvalidRecords(
            Rejection.INVALID_RECORD, f"producer {header.producer_id} sent the sequence {header.base_sequence}"
        )
    if header.codec > _LAST_CODEC:
        raise InvalidRecords(Rejection.UNKNOWN_SERVER_ERROR, f"compression codec {header.codec} does not exist")


def _check_keys(batch: memoryview) -> None:
    faults = _faulty_records(
        batch, lambda record: record.key is None, "a compacted topic requires a key in every record"
    )
    if faults:
        raise InvalidRecords(Rejection.INVALID_RECORD, "one or more records have no key", faults)


def _check_timestamp_type(header: BatchHeader, config: LogConfig) -> None:
    """Reject LogAppendTime from a client; with valid CreateTime timestamps only the attribute is cleared."""
    if header.timestamp_type is TimestampType.LOG_APPEND_TIME and (
        config.is_log_append_time or header.max_timestamp == NO_TIMESTAMP
    ):
        message = "a producer may not mark its records as LogAppendTime"
        faults = [(index, message) for index in range(min(header.record_count, MAX_RECORD_ERRORS))]
        raise InvalidRecords(Rejection.INVALID_TIMESTAMP, message, faults)


def _check_timestamps(header: BatchHeader, batch: memoryview, config: LogConfig, now_ms: int, origin: Origin) -> None:
    if origin is not Origin.CLIENT:
        return
    if not config.has_timestamp_bounds:
        return
    earliest = now_ms - config.message_timestamp_before_max_ms
    latest = now_ms + config.message_timestamp_after_max_ms
    for timestamp in (header.base_timestamp, header.max_timestamp):
        if not (earliest <= timestamp <= latest) and timestamp != NO_TIMESTAMP:
            _refuse_timestamps(batch, timestamp, earliest, latest)


def _refuse_timestamps(batch: memoryview, timestamp: int, earliest: int, latest: int) -> None:
    allowed = f"outside of the allowed range {earliest} to {latest}"
    faults = _faulty_records(
        batch,
        lambda record: not (earliest <= record.timestamp <= latest) and record.timestamp != NO_TIMESTAMP,
        f"its timestamp is {allowed}",
    )
    raise InvalidRecords(Rejection.INVALID_TIMESTAMP, f"the batch holds the timestamp {timestamp}, {allowed}", faults)


def _faulty_records(
    batch: memoryview, is_faulty: Callable[[FullRecord], bool], message: str
) -> Sequence[tuple[int, str]]:
    faulty = ((index, message) for index, record in enumerate(_opened(batch)) if is_faulty(record))
    return list(islice(faulty, MAX_RECORD_ERRORS))


def _opened(batch: memoryview) -> Iterator[FullRecord]:
    try:
        yield from iter_records(batch)
    except UnknownCodec as error:
        raise InvalidRecords(Rejection.UNKNOWN_SERVER_ERROR, str(error)) from error
    except MalformedRecords as error:
        raise InvalidRecords(Rejection.INVALID_RECORD, str(error)) from error


def _recode(admitted: Admitted, codec: Codec, config: LogConfig) -> Admitted:
    """Rebuild the batch in another codec, with new offset and timestamp deltas."""
    header = admitted.header
    rebuilt = build_batch(
        (Record(record.timestamp, record.key, record.value, record.headers) for record in _opened(admitted.batch)),
        base_offset=header.base_offset,
        codec=codec,
        level=config.target_level,
        producer_id=header.producer_id,
        producer_epoch=header.producer_epoch,
        base_sequence=header.base_sequence,
        transactional=header.is_transactional,
    )
    _check_size(len(rebuilt), config)
    batch = memoryview(bytearray(rebuilt))
    return Admitted(parse_header(batch), batch)


def _unstamped(admitted: Admitted) -> Admitted:
    header, batch = admitted.header, _writable(admitted.batch)
    clear_log_append_time(batch, 0, len(batch))
    return Admitted(header._replace(attributes=header.attributes & ~LOG_APPEND_TIME_FLAG), batch)


def _writable(batch: memoryview) -> memoryview:
    return memoryview(bytearray(batch)) if batch.readonly else batch


def _stamp(admitted: Admitted, now_ms: int) -> Admitted:
    header, batch = admitted.header, _writable(admitted.batch)
    patch_log_append_time(batch, 0, len(batch), now_ms)
    return Admitted(header._replace(max_timestamp=now_ms, attributes=header.attributes | LOG_APPEND_TIME_FLAG), batch)
