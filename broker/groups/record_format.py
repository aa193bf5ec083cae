"""The form of all coordinator records: a key is an int16 type and a message, a value an int16 version and a message.

Keys and values of the groups beside the classic ones have version 0 only.
"""

from typing import Any, Final, TypeVar

from broker.coordination.shard import CoordinatorRecord
from protocol.compiler import decode, encode_bytes
from protocol.errors import DecodeError

Event = TypeVar("Event")

_VERSION: Final = 0
_HEADER_BYTES: Final = 2
_ENCODED_VERSION: Final = _VERSION.to_bytes(_HEADER_BYTES, "big")


def group_record(key: Any, value: Any, event: Event) -> CoordinatorRecord[Event]:
    """Return the record with that key and value message; a value of None makes a tombstone."""
    encoded_key = encode_bytes(key, _VERSION, key.API_KEY.to_bytes(_HEADER_BYTES, "big"))
    encoded = None if value is None else encode_bytes(value, _VERSION, _ENCODED_VERSION)
    return CoordinatorRecord(encoded_key, encoded, event)


def decode_key(message_class: Any, key: bytes) -> Any:
    """Return the message of a key. Raise DecodeError."""
    return decode(message_class, key, _VERSION, _HEADER_BYTES)[0]


def decode_value(message_class: Any, value: bytes) -> Any:
    """Return the message of a value. Raise DecodeError, for an unknown version too."""
    if len(value) < _HEADER_BYTES:
        raise DecodeError(f"a coordinator record of {len(value)} bytes has no version")
    version = int.from_bytes(value[:_HEADER_BYTES], "big", signed=True)
    if version != _VERSION:
        raise DecodeError(f"unknown version {version} of {message_class.__name__}")
    return decode(message_class, value, version, _HEADER_BYTES)[0]
