"""The framing of a produce's records for one partition: exactly one record batch of magic 2 (KIP-98).

This file checks only what decides whether the data reaches the log at all. The log checks the batch with its CRC.
"""

import struct

from protocol.errors import ErrorCode, KafkaError
from protocol.primitives import Buffer
from protocol.records.batch import CODEC_MASK, HEADER_SIZE, LENGTH_PREFIX_SIZE, MAGIC, TRANSACTIONAL_FLAG
from protocol.records.compression import Codec

ZSTD_FROM = 7

_LENGTH = struct.Struct(">i")
_LENGTH_POSITION = 8
_MAGIC_POSITION = 16
_FLAGS_POSITION = 22  # the low byte of the attributes
_SMALLEST_LENGTH = 14  # the minimum of all message formats; a shorter batch cannot be framed


class Unframeable(KafkaError):
    """The data is no batch of any format; unlike a wrong checksum, the producer gets a message with the code."""

    def __init__(self, message: str) -> None:
        super().__init__(ErrorCode.CORRUPT_MESSAGE, message)


def is_transactional(records: Buffer | None) -> bool:
    """Whether the first batch belongs to a transaction."""
    return records is not None and len(records) > _FLAGS_POSITION and records[_FLAGS_POSITION] & TRANSACTIONAL_FLAG != 0


def only_batch(records: Buffer | None, version: int) -> Buffer:
    """Return the one complete batch in `records`, without an incomplete second one behind it.

    Raises KafkaError: Unframeable; INVALID_RECORD for no batch, several, or an old format; UNSUPPORTED_COMPRESSION_TYPE
    for zstd in a version before zstd.
    """
    if (
        records is not None
        and len(records) >= HEADER_SIZE
        and records[_MAGIC_POSITION] == MAGIC
        and (version >= ZSTD_FROM or records[_FLAGS_POSITION] & CODEC_MASK < Codec.ZSTD)
        and _LENGTH.unpack_from(records, _LENGTH_POSITION)[0] == len(records) - LENGTH_PREFIX_SIZE
    ):
        return records
    return only_batch_generally(records, version)


def only_batch_generally(records: Buffer | None, version: int) -> Buffer:
    """Return what `only_batch` does, without its short way for an ordinary batch."""
    size = 0 if records is None else _framed_size(records, 0)
    if records is None or not size:
        raise KafkaError(ErrorCode.INVALID_RECORD)
    if records[_MAGIC_POSITION] != MAGIC:
        raise KafkaError(ErrorCode.INVALID_RECORD)
    codec = records[_FLAGS_POSITION] & CODEC_MASK
    if version < ZSTD_FROM and codec >= Codec.ZSTD:
        known = codec == Codec.ZSTD
        raise KafkaError(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE if known else ErrorCode.UNKNOWN_SERVER_ERROR)
    if size == len(records):
        return records
    if _framed_size(records, size):
        raise KafkaError(ErrorCode.INVALID_RECORD)
    return memoryview(records)[:size]


def _framed_size(records: Buffer, position: int) -> int:
    """Return the size of the complete batch at `position`, or 0 if it is incomplete. Raises Unframeable."""
    available = len(records) - position
    if available < LENGTH_PREFIX_SIZE:
        return 0
    (length,) = _LENGTH.unpack_from(records, position + _LENGTH_POSITION)
    if length < _SMALLEST_LENGTH:
        raise Unframeable(f"a batch length of {length} is invalid")
    if available <= _MAGIC_POSITION:
        return 0
    if records[position + _MAGIC_POSITION] > MAGIC:
        raise Unframeable(f"magic {records[position + _MAGIC_POSITION]} is unknown")
    return length + LENGTH_PREFIX_SIZE if available >= length + LENGTH_PREFIX_SIZE else 0
