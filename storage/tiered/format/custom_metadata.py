"""Custom metadata of segments (`custom.metadata.fields.include`): location and size of the objects.

The bytes are those of Aiven's plugin: a section of tagged fields (KIP-482), 0 a zigzag varlong, 1 and 2 compact
strings. Kafka stores them in the metadata topic and passes them to every call. It refuses more than 128 bytes
(`remote.log.metadata.custom.metadata.max.bytes`), which the key of a topic with a long name exceeds.
"""

from collections.abc import Mapping
from enum import IntEnum

from protocol.codec_errors import DecodeError
from protocol.primitives import compact_string_prefix, decode_uvarint, decode_varint, encode_uvarint, encode_varint


class CustomField(IntEnum):
    """Tags; the member names are the names in the configuration."""

    REMOTE_SIZE = 0
    OBJECT_PREFIX = 1
    OBJECT_KEY = 2


def encode_custom_metadata(fields: Mapping[CustomField, int | str]) -> bytes | None:
    """Encode the fields; None if there are none."""
    if not fields:
        return None
    out = [encode_uvarint(len(fields))]
    for field in sorted(fields):
        value = _encode_value(fields[field])
        out += (encode_uvarint(field), encode_uvarint(len(value)), value)
    return b"".join(out)


def _encode_value(value: int | str) -> bytes:
    if isinstance(value, int):
        return encode_varint(value)
    text = value.encode()
    return compact_string_prefix(len(text)) + text


def decode_custom_metadata(data: bytes) -> dict[CustomField, int | str]:
    """Decode the fields; unknown tags are skipped. Raises ValueError for other bytes."""
    if not data:
        return {}
    try:
        return _decode_fields(data)
    except (DecodeError, UnicodeDecodeError) as error:
        raise ValueError(f"invalid custom metadata: {data.hex()}") from error


def _decode_fields(data: bytes) -> dict[CustomField, int | str]:
    fields: dict[CustomField, int | str] = {}
    count, position = decode_uvarint(data, 0)
    for _ in range(count):
        tag, position = decode_uvarint(data, position)
        size, position = decode_uvarint(data, position)
        value = data[position : position + size]
        if len(value) != size:
            raise DecodeError("a tagged field exceeds the custom metadata")
        if tag in _KNOWN:
            fields[CustomField(tag)] = _decode_value(CustomField(tag), value)
        position += size
    return fields


def _decode_value(field: CustomField, value: bytes) -> int | str:
    if field is CustomField.REMOTE_SIZE:
        return decode_varint(value, 0)[0]
    size, position = decode_uvarint(value, 0)
    if position + size - 1 != len(value):
        raise DecodeError(f"a string of {size - 1} bytes does not fit {len(value)} bytes")
    return value[position:].decode()


_KNOWN = frozenset(CustomField)
