"""What a produce may carry for a partition: exactly one record batch of magic 2 (KIP-98).

Only the framing is looked at here, as far as it decides whether a partition's data is addressed to the log at all; the
log checks the batch itself, with its CRC.
"""

import struct

from protocol.errors import ErrorCode, KafkaError
from protocol.primitives import Buffer
from protocol.records.batch import CODEC_MASK, LENGTH_PREFIX_SIZE, MAGIC, TRANSACTIONAL_FLAG
from protocol.records.compression import Codec

ZSTD_FROM = 7

_LENGTH = struct.Struct(">i")
_LENGTH_POSITION = 8
_MAGIC_POSITION = 16
_FLAGS_POSITION = 22  # the low byte of the attributes
_SMALLEST_LENGTH = 14  # of any message format there ever was; anything below cannot be framed at all


class Unframeable(KafkaError):
    """Not a batch of any format; unlike one with a wrong checksum, the producer is told in words."""

    def __init__(self, message: str) -> None:
        super().__init__(ErrorCode.CORRUPT_MESSAGE, message)


def is_transactional(records: Buffer | None) -> bool:
    """Whether the first batch belongs to a transaction."""
    return records is not None and len(records) > _FLAGS_POSITION and records[_FLAGS_POSITION] & TRANSACTIONAL_FLAG != 0


def only_batch(records: Buffer | None, version: int) -> Buffer:
    """The one whole batch in `records`, without what may trail it of an incomplete second one.

    Raises KafkaError: Unframeable, INVALID_RECORD for none, several, or an old format,
    UNSUPPORTED_COMPRESSION_TYPE for zstd from a producer of a version that did not know it.
    """
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
    """Bytes of the whole batch at `position`, or 0 if it is incomplete. Raises Unframeable."""
    available = len(records) - position
    if available < LENGTH_PREFIX_SIZE:
        return 0
    (length,) = _LENGTH.unpack_from(records, position + _LENGTH_POSITION)
    if length < _SMALLEST_LENGTH:
        raise Unframeable(f"a batch cannot have a length of {length}")
    if available <= _MAGIC_POSITION:
        return 0
    if records[position + _MAGIC_POSITION] > MAGIC:
        raise Unframeable(f"a batch cannot be of magic {records[position + _MAGIC_POSITION]}")
    return length + LENGTH_PREFIX_SIZE if available >= length + LENGTH_PREFIX_SIZE else 0
