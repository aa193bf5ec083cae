"""Primitive values: UUIDs, variable-length integers, and the buffer types of the codec."""

import base64
from itertools import repeat
from typing import NewType

from protocol.codec_errors import DecodeError, EncodeError

Buffer = bytes | bytearray | memoryview

Uuid = NewType("Uuid", bytes)
"""16 bytes in network order. Kafka's text form is 22 characters of URL-safe base64 without padding."""

ZERO_UUID = Uuid(bytes(16))
ONE_UUID = Uuid(bytes(15) + b"\x01")
METADATA_TOPIC_ID = ONE_UUID
"""Id of `__cluster_metadata`, the same in every cluster (KIP-516)."""

UVARINT_MAX_BYTES = 5
UVARLONG_MAX_BYTES = 10
COMPACT_STRING_MAX = 0x7FFF
"""Longest string in bytes, compact or not: Kafka refuses longer ones in either encoding."""


def uuid_to_text(uuid: Uuid) -> str:
    return base64.urlsafe_b64encode(uuid).rstrip(b"=").decode("ascii")


def uuid_from_text(text: str) -> Uuid:
    """Parse base64 of exactly 16 bytes, padded or not. Raises ValueError."""
    try:
        raw = base64.b64decode(text.rstrip("=") + "==", altchars=b"-_", validate=True)
    except ValueError as error:
        raise ValueError(f"not a UUID: {text!r}") from error
    if len(raw) != 16:
        raise ValueError(f"not a UUID: {text!r}")
    return Uuid(raw)


def encode_uvarint(value: int) -> bytes:
    """Encode a value in 0 .. 2**64 - 1 as unsigned LEB128."""
    if value < 0:
        raise ValueError(f"unsigned varint cannot hold {value}")
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def read_uvarint(buffer: Buffer, position: int) -> tuple[int, int]:
    """Return (value, end position). Raises DecodeError beyond 5 bytes, IndexError if the varint is cut short."""
    first = buffer[position]
    return (first, position + 1) if first < 0x80 else rest_of_uvarint(buffer, position + 1, first)


def rest_of_uvarint(buffer: Buffer, position: int, first: int, max_bytes: int = UVARINT_MAX_BYTES) -> tuple[int, int]:
    """Return (value, end position) for a varint whose first byte was read and says that more follow.

    Two and three bytes, the sizes of everyday batches, are read without a loop; `max_bytes` is 3 at least.
    """
    second = buffer[position]
    if second < 0x80:
        return first & 0x7F | second << 7, position + 1
    value = first & 0x7F | (second & 0x7F) << 7
    third = buffer[position + 1]
    if third < 0x80:
        return value | third << 14, position + 2
    value |= (third & 0x7F) << 14
    shift = 21
    for index in range(position + 2, position + max_bytes - 1):
        byte = buffer[index]
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, index + 1
        shift += 7
    raise DecodeError(f"varint is longer than {max_bytes} bytes")


def rest_of_string_size(buffer: Buffer, position: int, first: int) -> tuple[int, int]:
    """Return (length + 1, end position) of a compact string like `rest_of_uvarint`; raises DecodeError over the
    limit.
    """
    size, position = rest_of_uvarint(buffer, position, first)
    if size > COMPACT_STRING_MAX + 1:
        raise DecodeError(f"string of {size - 1} bytes")
    return size, position


def skip_tags(buffer: Buffer, position: int, first: int) -> int:
    """Return the position after a section of unknown tagged fields; `first` is the first byte of their count."""
    count = first
    if first > 0x7F:
        count, position = rest_of_uvarint(buffer, position, first)
    for _ in repeat(None, count):
        _, position = read_uvarint(buffer, position)
        size, position = read_uvarint(buffer, position)
        position += size
        if position > len(buffer):
            raise DecodeError("a tagged field exceeds the buffer")
    return position


def decode_uvarint(buffer: Buffer, position: int, max_bytes: int = UVARINT_MAX_BYTES) -> tuple[int, int]:
    """Return (value, end position). Raises DecodeError if the varint is cut short or longer than `max_bytes`."""
    try:
        first = buffer[position]
        if first < 0x80:
            return first, position + 1
        return rest_of_uvarint(buffer, position + 1, first, max_bytes)
    except IndexError:
        raise DecodeError("varint is cut short") from None


def encode_varint(value: int) -> bytes:
    """Encode a signed 64-bit value as zigzag LEB128."""
    return encode_uvarint((value << 1) ^ (value >> 63))


def decode_varint(buffer: Buffer, position: int, max_bytes: int = UVARLONG_MAX_BYTES) -> tuple[int, int]:
    """Return (signed value, end position). Raises DecodeError as `decode_uvarint` does."""
    value, position = decode_uvarint(buffer, position, max_bytes)
    return (value >> 1) ^ -(value & 1), position


def compact_string_prefix(size: int) -> bytes:
    """Return the encoded length + 1 of a compact string of `size` bytes. Raises EncodeError over the limit."""
    if size > COMPACT_STRING_MAX:
        raise EncodeError(f"string of {size} bytes")
    return encode_uvarint(size + 1)
