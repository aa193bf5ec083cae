"""Records as lines, in the format of Kafka's DefaultMessageFormatter. Bytes in, bytes out."""

import base64
import json
import struct
import uuid
from collections.abc import Callable
from typing import Protocol

from broker.cli.console.properties import is_true, separator
from broker.cli.shared.failure import CommandFailed
from protocol.lazy_dataclass import lazy_dataclass
from protocol.records.batch import NO_TIMESTAMP, BatchHeader, TimestampType
from protocol.records.reader import FullRecord
from storage.directories.checkpoints import TopicPartition

Deserializer = Callable[[bytes], bytes]


class RecordWriter(Protocol):
    """Formatter of a record, line separator included. Raises CommandFailed."""

    def line(self, partition: TopicPartition, header: BatchHeader, record: FullRecord) -> bytes: ...


def _packed(layout: str) -> Deserializer:
    unpack = struct.Struct(layout).unpack
    return lambda data: str(unpack(data)[0]).encode()


def _raw(data: bytes) -> bytes:
    return data


DESERIALIZERS: dict[str, Deserializer] = {
    "StringDeserializer": _raw,
    "ByteArrayDeserializer": _raw,
    "BytesDeserializer": _raw,
    "ShortDeserializer": _packed(">h"),
    "IntegerDeserializer": _packed(">i"),
    "LongDeserializer": _packed(">q"),
    "FloatDeserializer": _packed(">f"),
    "DoubleDeserializer": _packed(">d"),
    "UUIDDeserializer": lambda data: str(uuid.UUID(data.decode())).encode(),
}
"""Deserializers by the simple name of Kafka's class."""

_PRINTED = ("timestamp", "partition", "offset", "delivery", "epoch", "headers", "key", "value")
_KEYS = frozenset(
    {f"print.{part}" for part in _PRINTED}
    | {f"{part}.deserializer" for part in ("key", "value", "headers", "header")}
    | {"key.separator", "line.separator", "headers.separator", "null.literal"}
)


def deserializer(name: str | None) -> Deserializer:
    """Return the deserializer of a Kafka class name; bytes are unchanged without one. Raises CommandFailed."""
    short = "ByteArrayDeserializer" if name is None else name.rpartition(".")[2]
    if short not in DESERIALIZERS:
        raise CommandFailed(f"deserializer {name} is unknown; use one of {', '.join(DESERIALIZERS)}.")
    return DESERIALIZERS[short]


@lazy_dataclass(frozen=True, slots=True)
class LineWriter:
    """Formatter of records as text: the printed parts, their separators and deserializers."""

    printed: frozenset[str]
    key_separator: bytes
    line_separator: bytes
    headers_separator: bytes
    null_literal: bytes
    key: Deserializer
    value: Deserializer
    header: Deserializer

    @classmethod
    def from_properties(cls, properties: dict[str, str]) -> "LineWriter":
        """Build the writer. Raises CommandFailed for an unknown or invalid property."""
        unknown = properties.keys() - _KEYS
        if unknown:
            raise CommandFailed(f"property {min(unknown)} is unknown; use {', '.join(sorted(_KEYS))}.")
        return cls(
            printed=frozenset(part for part in _PRINTED if is_true(properties, f"print.{part}", part == "value")),
            key_separator=separator(properties, "key.separator", "\t"),
            line_separator=separator(properties, "line.separator", "\n"),
            headers_separator=separator(properties, "headers.separator", ","),
            null_literal=properties.get("null.literal", "null").encode(),
            key=deserializer(properties.get("key.deserializer")),
            value=deserializer(properties.get("value.deserializer")),
            header=deserializer(properties.get("headers.deserializer", properties.get("header.deserializer"))),
        )

    def line(
        self, partition: TopicPartition, header: BatchHeader, record: FullRecord, delivery_count: int | None = None
    ) -> bytes:
        """Return the printed parts of a record. Raises CommandFailed if a deserializer fails."""
        delivery = b"Delivery:NOT_PRESENT" if delivery_count is None else b"Delivery:%d" % delivery_count
        try:
            number = partition.partition
            cells = [
                delivery if part == "delivery" else self._cell(part, number, header, record)
                for part in _PRINTED
                if part in self.printed
            ]
        except (struct.error, ValueError) as error:
            raise CommandFailed(f"the record at offset {record.offset} of {partition}: {error}.") from error
        return self.key_separator.join(cells) + self.line_separator

    def _cell(self, part: str, partition: int, header: BatchHeader, record: FullRecord) -> bytes:
        match part:
            case "timestamp":
                return _timestamp(header, record.timestamp)
            case "partition":
                return b"Partition:%d" % partition
            case "offset":
                return b"Offset:%d" % record.offset
            case "epoch":
                return b"Epoch:NOT_PRESENT" if header.leader_epoch < 0 else b"Epoch:%d" % header.leader_epoch
            case "headers":
                return self._headers(record)
            case "key":
                return self._content(record.key, self.key)
            case _:
                return self._content(record.value, self.value)

    def _headers(self, record: FullRecord) -> bytes:
        if not record.headers:
            return b"NO_HEADERS"
        return self.headers_separator.join(
            name.encode() + b":" + self._content(value, self.header) for name, value in record.headers
        )

    def _content(self, data: bytes | None, read: Deserializer) -> bytes:
        return self.null_literal if data is None else read(data)


class JsonWriter:
    """Formatter of records as JSON objects. Bytes that are not UTF-8 are base64 in `keyBase64` or `valueBase64`."""

    def line(
        self, partition: TopicPartition, header: BatchHeader, record: FullRecord, delivery_count: int | None = None
    ) -> bytes:
        document: dict[str, object] = {
            "topic": partition.topic,
            "partition": partition.partition,
            "offset": record.offset,
            "leaderEpoch": header.leader_epoch,
            "timestamp": record.timestamp,
            "timestampType": _timestamp_type(header),
            "headers": [{"name": name, **_shown("value", value)} for name, value in record.headers],
        }
        document |= {} if delivery_count is None else {"deliveryCount": delivery_count}
        document |= _shown("key", record.key) | _shown("value", record.value)
        return json.dumps(document, ensure_ascii=False).encode() + b"\n"


def _shown(name: str, data: bytes | None) -> dict[str, str | None]:
    try:
        return {name: None if data is None else data.decode()}
    except UnicodeDecodeError:
        return {f"{name}Base64": base64.b64encode(data or b"").decode()}


def _timestamp_type(header: BatchHeader) -> str:
    return "LogAppendTime" if header.timestamp_type is TimestampType.LOG_APPEND_TIME else "CreateTime"


def _timestamp(header: BatchHeader, timestamp: int) -> bytes:
    if timestamp == NO_TIMESTAMP:
        return b"NO_TIMESTAMP"
    return f"{_timestamp_type(header)}:{timestamp}".encode()
