"""Decoders of keys and values of internal topics, one per option of the command.

A decoder turns a record into (key, payload), each text, JSON, or None to print nothing. Decoding errors become the
payload, so that the dump continues in a corrupt file.
"""

import base64
import json
from collections.abc import Callable, Mapping
from types import ModuleType
from typing import NamedTuple, TypeAlias

from broker.cli.dump.message_json import Json, message_json
from broker.cli.shared.redaction import redact
from protocol.compiler import decode
from protocol.errors import DecodeError
from protocol.messages import Message
from protocol.messages.common_records import ConsumerProtocolAssignment, ConsumerProtocolSubscription
from protocol.primitives import decode_uvarint
from protocol.records.reader import FullRecord
from protocol.schema import snake_case

Printable: TypeAlias = str | Json | None
TOMBSTONE = "<DELETE>"
TYPE_BYTES = 2
FRAME_VERSION = 1
CONSUMER_PROTOCOL = "consumer"


class DecodedRecord(NamedTuple):
    key: Printable
    payload: Printable


Decoder: TypeAlias = Callable[[FullRecord], DecodedRecord]


def shown_text(value: Printable) -> str:
    """Return text unchanged and JSON as Kafka prints it: without spaces."""
    return value if isinstance(value, str) else json.dumps(value, separators=(",", ":"), ensure_ascii=False)


def decode_text(record: FullRecord) -> DecodedRecord:
    """Decode keys and values as UTF-8, with replacement characters for invalid bytes."""
    return DecodedRecord(_utf8(record.key), _utf8(record.value))


def _utf8(data: bytes | None) -> str | None:
    return None if data is None else data.decode("utf-8", "replace")


def cluster_metadata_decoder() -> Decoder:
    """Return the decoder of `__cluster_metadata` and its snapshots."""
    from protocol.messages import metadata_records

    return _framed(_classes(metadata_records, "Record"), _upper_name)


def remote_log_metadata_decoder() -> Decoder:
    """Return the decoder of `__remote_log_metadata`, with the output of Kafka's tool."""
    from broker.cli.shared.remote_metadata_text import event_text
    from storage.tiered.catalog.metadata_records import UndecodableEvent, decode_event

    def decode_record(record: FullRecord) -> DecodedRecord:
        key = _utf8(record.key)
        if record.value is None:
            return DecodedRecord(key, TOMBSTONE)
        try:
            return DecodedRecord(key, event_text(decode_event(record.value)))
        except UndecodableEvent as error:
            return DecodedRecord(key, f"Error at offset {record.offset}, skipping. {error}")

    return decode_record


def offsets_decoder() -> Decoder:
    """Return the decoder of `__consumer_offsets`."""
    from protocol.messages import group_records

    decode_typed = _typed(_classes(group_records, "Key"), _classes(group_records, "Value"))

    def decode_record(record: FullRecord) -> DecodedRecord:
        decoded = decode_typed(record)
        if isinstance(decoded.payload, dict):
            _open_members(decoded.payload)
        return decoded

    return decode_record


def _open_members(payload: Json) -> None:
    """Decode the subscriptions and assignments of members in classic consumer groups, which are embedded messages."""
    data = payload["data"]
    if not isinstance(data, dict) or data.get("protocolType") != CONSUMER_PROTOCOL:
        return
    for member in data["members"]:
        member["subscription"] = _opened(ConsumerProtocolSubscription, member["subscription"])
        member["assignment"] = _opened(ConsumerProtocolAssignment, member["assignment"])


def _opened(message_class: type[Message], text: str) -> object:
    """Decode the message in base64 `text`; return `text` itself if that fails."""
    data = base64.b64decode(text)
    version = min(int.from_bytes(data[:TYPE_BYTES], "big", signed=True), message_class.MAX_VERSION)
    try:
        message, _ = decode(message_class, data, version, TYPE_BYTES)
    except DecodeError:
        return text
    return message_json(message, version)


def transaction_log_decoder() -> Decoder:
    """Return the decoder of `__transaction_state`."""
    from protocol.messages import transaction_records

    return _typed(_classes(transaction_records, "Key"), _classes(transaction_records, "Value"))


def share_group_state_decoder() -> Decoder:
    """Return the decoder of `__share_group_state`."""
    from protocol.messages import share_records

    return _typed(_classes(share_records, "Key"), _classes(share_records, "Value"))


def _classes(module: ModuleType, suffix: str) -> dict[int, type[Message]]:
    """Return the message classes of a module whose names end in `suffix`, by record type."""
    return {
        value.API_KEY: value
        for name, value in vars(module).items()
        if name.endswith(suffix) and hasattr(value, "SCHEMA") and value.API_KEY >= 0
    }


def _upper_name(message_class: type[Message]) -> str:
    return snake_case(message_class.__name__).upper()


def _framed(classes: Mapping[int, type[Message]], name: Callable[[type[Message]], str]) -> Decoder:
    """Return a decoder of values that begin with frame version, type and version (KIP-631)."""

    def decode_record(record: FullRecord) -> DecodedRecord:
        key = _utf8(record.key)
        if record.value is None:
            return DecodedRecord(key, TOMBSTONE)
        try:
            message, version = _read_frame(record.value, classes)
        except DecodeError as error:
            return DecodedRecord(key, f"Error at {record.offset}, skipping. {error}")
        return DecodedRecord(
            key,
            {"type": name(type(message)), "version": version, "data": redact(message, message_json(message, version))},
        )

    return decode_record


def _read_frame(value: bytes, classes: Mapping[int, type[Message]]) -> tuple[Message, int]:
    frame_version, position = decode_uvarint(value, 0)
    if frame_version != FRAME_VERSION:
        raise DecodeError(f"frame version {frame_version} is not {FRAME_VERSION}")
    type_number, position = decode_uvarint(value, position)
    version, position = decode_uvarint(value, position)
    if type_number not in classes:
        raise DecodeError(f"record type {type_number} is unknown")
    message, _ = decode(classes[type_number], value, version, position)
    return message, version


def _typed(keys: Mapping[int, type[Message]], values: Mapping[int, type[Message]]) -> Decoder:
    """Return a decoder of keys that begin with the record type and values that begin with the version, as int16."""

    def decode_record(record: FullRecord) -> DecodedRecord:
        if record.key is None:
            return DecodedRecord(None, TOMBSTONE if record.value is None else _utf8(record.value))
        number = int.from_bytes(record.key[:TYPE_BYTES], "big", signed=True)
        if number not in keys:
            return DecodedRecord({"type": str(number), "data": "unknown"}, "unknown")
        return DecodedRecord(
            _prefixed("type", number, keys[number], 0, record.key), _value(values[number], record.value)
        )

    return decode_record


def _value(message_class: type[Message], value: bytes | None) -> Printable:
    if value is None:
        return TOMBSTONE
    version = int.from_bytes(value[:TYPE_BYTES], "big", signed=True)
    return _prefixed("version", version, message_class, version, value)


def _prefixed(label: str, number: int, message_class: type[Message], version: int, data: bytes) -> Json:
    try:
        message, _ = decode(message_class, data, version, TYPE_BYTES)
    except DecodeError as error:
        return {label: str(number), "data": f"unreadable: {error}"}
    return {label: str(number), "data": message_json(message, version)}
