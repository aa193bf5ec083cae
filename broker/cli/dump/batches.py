"""Log segments and snapshots, one batch at a time: each header is read before its body."""

import os
from collections.abc import Iterator
from typing import Protocol

from broker.cli.dump.decoders import DecodedRecord, Decoder, Printable, shown_text
from broker.cli.dump.entries import DumpEntry, TextLine
from broker.cli.dump.message_json import message_json
from protocol.compiler import decode
from protocol.errors import DecodeError
from protocol.lazy_dataclass import lazy_dataclass
from protocol.messages import Message
from protocol.records.batch import (
    HEADER_SIZE,
    NO_SEQUENCE,
    BatchHeader,
    TimestampType,
    crc_is_valid,
    next_sequence,
    parse_header,
)
from protocol.records.compression import Codec
from protocol.records.control import ControlType, control_type, read_marker
from protocol.records.errors import MalformedBatch, MalformedRecords
from protocol.records.reader import FullRecord, iter_records

UNLIMITED = 2**63 - 1


class BinaryFile(Protocol):
    """The part of an open file that a dump uses."""

    def read(self, size: int, /) -> bytes: ...

    def fileno(self) -> int: ...


@lazy_dataclass(frozen=True, slots=True)
class BatchOptions:
    """Options of a dump. `deep` prints records, `decoder` their content; `max_bytes` limits the dumped batches."""

    deep: bool = False
    decoder: Decoder | None = None
    skip_record_metadata: bool = False
    max_bytes: int = UNLIMITED


@lazy_dataclass(frozen=True, slots=True)
class BatchLine:
    """A batch: its header, its position, and whether its checksum matches."""

    header: BatchHeader
    position: int
    is_valid: bool

    def text(self) -> str:
        h = self.header
        return (
            f"baseOffset: {h.base_offset} lastOffset: {h.last_offset} count: {h.record_count}"
            f" baseSequence: {h.base_sequence} lastSequence: {h.last_sequence}"
            f" producerId: {h.producer_id} producerEpoch: {h.producer_epoch}"
            f" partitionLeaderEpoch: {h.leader_epoch} isTransactional: {_bool(h.is_transactional)}"
            f" isControl: {_bool(h.is_control)} deleteHorizonMs: {optional_long(h.delete_horizon_ms)}"
            f" position: {self.position} {timestamp_name(h)}: {h.max_timestamp} size: {h.size} magic: {h.magic}"
            f" compresscodec: {codec_name(h.codec)} crc: {h.crc} isvalid: {_bool(self.is_valid)}"
        )

    def document(self) -> dict[str, object] | None:
        h = self.header
        return {
            "kind": "batch",
            "baseOffset": h.base_offset,
            "lastOffset": h.last_offset,
            "count": h.record_count,
            "baseSequence": h.base_sequence,
            "lastSequence": h.last_sequence,
            "producerId": h.producer_id,
            "producerEpoch": h.producer_epoch,
            "partitionLeaderEpoch": h.leader_epoch,
            "isTransactional": h.is_transactional,
            "isControl": h.is_control,
            "deleteHorizonMs": h.delete_horizon_ms,
            "position": self.position,
            "timestampType": timestamp_name(h),
            "maxTimestamp": h.max_timestamp,
            "size": h.size,
            "magic": h.magic,
            "compressCodec": codec_name(h.codec),
            "crc": h.crc,
            "isValid": self.is_valid,
        }


@lazy_dataclass(frozen=True, slots=True)
class RecordLine:
    """A record. `control` is the label and content of a control record, `decoded` the output of the decoder."""

    header: BatchHeader
    record: FullRecord
    control: tuple[str, Printable] | None
    decoded: DecodedRecord | None
    skip_metadata: bool

    @property
    def sequence(self) -> int:
        h = self.header
        return next_sequence(h.base_sequence, self.record.offset - h.base_offset) if h.has_sequence else NO_SEQUENCE

    def text(self) -> str:
        metadata = "" if self.skip_metadata else self._metadata()
        content = ""
        if self.control is not None:
            label, value = self.control
            content = "" if self.skip_metadata else f" {label} {shown_text(value)}"
        elif self.decoded is not None:
            key, payload = self.decoded
            mark = "|" if self.skip_metadata else ""
            content = ("" if key is None else f"{mark} key: {shown_text(key)}") + (
                "" if payload is None else f" payload: {shown_text(payload)}"
            )
        return metadata + content

    def _metadata(self) -> str:
        r = self.record
        names = ",".join(name for name, _ in r.headers)
        return (
            f"| offset: {r.offset} {timestamp_name(self.header)}: {r.timestamp} keySize: {_size(r.key)}"
            f" valueSize: {_size(r.value)} sequence: {self.sequence} headerKeys: [{names}]"
        )

    def document(self) -> dict[str, object] | None:
        r = self.record
        document: dict[str, object] = {
            "kind": "record",
            "offset": r.offset,
            "timestamp": r.timestamp,
            "keySize": _size(r.key),
            "valueSize": _size(r.value),
            "sequence": self.sequence,
            "headerKeys": [name for name, _ in r.headers],
        }
        if self.control is not None:
            label, value = self.control
            document["control"] = {"type": label.rstrip(":"), "data": value}
        if self.decoded is not None:
            document |= {"key": self.decoded.key, "payload": self.decoded.payload}
        return document


def dump_batches(file: BinaryFile, name: str, options: BatchOptions) -> Iterator[DumpEntry]:
    """Yield every batch of the file, with its records if `deep`; errors at the end are entries, not exceptions."""
    size = os.fstat(file.fileno()).st_size
    position = 0
    while position < min(size, options.max_bytes):
        head = file.read(HEADER_SIZE)
        try:
            header = parse_header(head)
        except MalformedBatch as error:
            yield TextLine(f"No batch at position {position}: {error}", "error")
            break
        if position + header.size > size:
            yield TextLine(f"The batch at position {position} is truncated: {header.size} bytes", "error")
            break
        if position + header.size > options.max_bytes:
            return
        batch = memoryview(head + file.read(header.size - HEADER_SIZE))
        is_valid = crc_is_valid(batch, 0, header.size)
        yield BatchLine(header, position, is_valid)
        if options.deep:
            yield from _records(header, batch, options)
        position += header.size
    else:
        return
    yield TextLine(f"Found {size - position} invalid bytes at the end of {name}", "invalid")


def _records(header: BatchHeader, batch: memoryview, options: BatchOptions) -> Iterator[DumpEntry]:
    try:
        for record in iter_records(batch):
            control = _control(batch, record) if header.is_control else None
            decoded = None if options.decoder is None or header.is_control else options.decoder(record)
            yield RecordLine(header, record, control, decoded, options.skip_record_metadata)
    except MalformedRecords as error:
        yield TextLine(f"| the records of the batch at offset {header.base_offset} cannot be decoded: {error}", "error")


def _control(batch: memoryview, record: FullRecord) -> tuple[str, Printable]:
    """Return a control record's label, with Kafka's punctuation, and its content."""
    from protocol.messages import common_records

    kind = control_type(record.key)
    if kind is None:
        return "controlType:", "UNKNOWN"
    if kind in (ControlType.ABORT, ControlType.COMMIT):
        marker = read_marker(batch)
        return "endTxnMarker:", f"{kind.name} coordinatorEpoch: {-1 if marker is None else marker[1]}"
    label, message_class = {
        ControlType.LEADER_CHANGE: ("LeaderChange:", common_records.LeaderChangeMessage),
        ControlType.SNAPSHOT_HEADER: ("SnapshotHeader", common_records.SnapshotHeaderRecord),
        ControlType.SNAPSHOT_FOOTER: ("SnapshotFooter", common_records.SnapshotFooterRecord),
        ControlType.KRAFT_VERSION: ("KRaftVersion", common_records.KRaftVersionRecord),
        ControlType.KRAFT_VOTERS: ("KRaftVoters", common_records.VotersRecord),
    }[kind]
    return label, _embedded(message_class, record.value or b"")


def _embedded(message_class: type[Message], value: bytes) -> Printable:
    """Decode a control record's message, whose first field is its version."""
    version = int.from_bytes(value[:2], "big", signed=True)
    try:
        message, _ = decode(message_class, value, version)
    except DecodeError as error:
        return f"unreadable: {error}"
    return message_json(message, version)


def timestamp_name(header: BatchHeader) -> str:
    return "LogAppendTime" if header.timestamp_type is TimestampType.LOG_APPEND_TIME else "CreateTime"


def codec_name(codec: int) -> str:
    return Codec(codec).name.lower() if codec in Codec._value2member_map_ else f"unknown({codec})"


def optional_long(value: int | None) -> str:
    """Return the text of Java's OptionalLong."""
    return "OptionalLong.empty" if value is None else f"OptionalLong[{value}]"


def _bool(value: bool) -> str:
    return "true" if value else "false"


def _size(data: bytes | None) -> int:
    return -1 if data is None else len(data)
