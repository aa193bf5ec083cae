"""Snapshot files of the metadata log: the bytes of `bootstrap.checkpoint`, of the 0-0 checkpoint and of any other.

A snapshot is a run of ordinary record batches with offsets from 0: a control batch that opens with a SnapshotHeader and
may state kraft.version and voters, data batches of metadata records, and a control batch with a SnapshotFooter alone
(KIP-630, KIP-853). Given the same records, epoch and timestamps the bytes are the same, whoever writes them.
"""

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import Final, NamedTuple

from broker.metadata.records import MetadataRecord, VersionedRecord, decode_record, encode_record
from protocol.compiler import decode, encode_bytes
from protocol.errors import DecodeError
from protocol.messages.common_records import (
    SnapshotFooterRecord,
    SnapshotHeaderRecord,
)
from protocol.primitives import Buffer
from protocol.records.batch import BatchHeader, crc_is_valid, parse_header
from protocol.records.builder import Record, build_batch
from protocol.records.control import ControlType, control_batch, control_type
from protocol.records.errors import MalformedBatch, MalformedRecords
from protocol.records.quorum_control import ControlState, control_records, read_control_state
from protocol.records.reader import iter_records

RECORDS_PER_BATCH: Final = 1_024
_CONTROL_VERSION: Final = 0


class InvalidSnapshot(Exception):
    """Bytes that are not a whole snapshot."""


class Snapshot(NamedTuple):
    """A snapshot read: `last_timestamp_ms` is that of the last record it stands for."""

    last_timestamp_ms: int
    epoch: int
    control: ControlState | None
    records: list[MetadataRecord]


def snapshot_batches(
    records: Iterable[VersionedRecord],
    *,
    epoch: int,
    last_timestamp_ms: int,
    batch_timestamp_ms: int,
    control: ControlState | None = None,
) -> Iterator[bytes]:
    """The batches of a snapshot, one after another. Every batch carries `epoch`, the epoch of the snapshot's id."""
    opening = [
        (ControlType.SNAPSHOT_HEADER, _control(SnapshotHeaderRecord(last_contained_log_timestamp=last_timestamp_ms)))
    ]
    if control is not None and control.kraft_version > 0:
        opening += control_records(control)
    yield control_batch(opening, batch_timestamp_ms, base_offset=0, leader_epoch=epoch)
    offset = len(opening)
    frames = (encode_record(*record) for record in records)
    while chunk := list(islice(frames, RECORDS_PER_BATCH)):
        yield data_batch(chunk, base_offset=offset, epoch=epoch, timestamp_ms=batch_timestamp_ms)
        offset += len(chunk)
    footer = (ControlType.SNAPSHOT_FOOTER, _control(SnapshotFooterRecord()))
    yield control_batch([footer], batch_timestamp_ms, base_offset=offset, leader_epoch=epoch)


def bootstrap_checkpoint(records: Iterable[VersionedRecord], now_ms: int) -> bytes:
    """The content of `bootstrap.checkpoint`: the records with which the first controller begins an empty log."""
    return b"".join(snapshot_batches(records, epoch=0, last_timestamp_ms=0, batch_timestamp_ms=now_ms))


def voters_checkpoint(control: ControlState, now_ms: int) -> bytes:
    """The content of the 0-0 checkpoint: the voters with which a dynamic quorum begins."""
    return b"".join(snapshot_batches((), epoch=0, last_timestamp_ms=now_ms, batch_timestamp_ms=now_ms, control=control))


def data_batch(frames: Sequence[bytes], *, base_offset: int, epoch: int, timestamp_ms: int) -> bytes:
    """A batch of framed metadata records, as the log and snapshots hold them: null keys, one timestamp for all."""
    return build_batch(
        [Record(timestamp_ms, None, frame) for frame in frames], base_offset=base_offset, leader_epoch=epoch
    )


def read_snapshot(data: Buffer) -> Snapshot:
    """Read a whole snapshot. Raises InvalidSnapshot unless header, footer, offsets and checksums are in order."""
    batches = list(_checked_batches(data))
    if not batches:
        raise InvalidSnapshot("a snapshot must not be empty")
    header_timestamp = _header_timestamp(data, batches[0])
    if not _is_footer(data, batches[-1]):
        raise InvalidSnapshot("the snapshot does not end with its footer")
    control: ControlState | None = None
    records: list[MetadataRecord] = []
    for position, header in batches:
        if header.is_control:
            control = _read_control(data, position, control)
        else:
            records += _decode_all(data, position)
    return Snapshot(header_timestamp, batches[0][1].leader_epoch, control, records)


def _read_control(data: Buffer, position: int, before: ControlState | None) -> ControlState | None:
    try:
        return read_control_state(data, position, before)
    except MalformedRecords as error:
        raise InvalidSnapshot(str(error)) from error


def _checked_batches(data: Buffer) -> Iterator[tuple[int, BatchHeader]]:
    position = offset = 0
    while position < len(data):
        try:
            header = parse_header(data, position)
        except MalformedBatch as error:
            raise InvalidSnapshot(f"at byte {position}: {error}") from error
        if position + header.size > len(data):
            raise InvalidSnapshot(f"the batch at byte {position} is cut short")
        if header.base_offset != offset or not crc_is_valid(data, position, header.size):
            raise InvalidSnapshot(f"the batch at byte {position} is damaged or out of place")
        yield position, header
        position += header.size
        offset = header.last_offset + 1


def _header_timestamp(data: Buffer, first: tuple[int, BatchHeader]) -> int:
    position, header = first
    if header.is_control:
        record = next(iter_records(data, position))
        if control_type(record.key) is ControlType.SNAPSHOT_HEADER:
            message, _ = decode(SnapshotHeaderRecord, record.value or b"", _CONTROL_VERSION)
            return message.last_contained_log_timestamp
    raise InvalidSnapshot("the snapshot does not begin with its header")


def _is_footer(data: Buffer, last: tuple[int, BatchHeader]) -> bool:
    position, header = last
    return header.is_control and control_type(next(iter_records(data, position)).key) is ControlType.SNAPSHOT_FOOTER


def _decode_all(data: Buffer, position: int) -> list[MetadataRecord]:
    try:
        return [decode_record(record.value or b"") for record in iter_records(data, position)]
    except (MalformedBatch, MalformedRecords, DecodeError) as error:
        raise InvalidSnapshot(f"the batch at byte {position} does not parse: {error}") from error


def _control(message: SnapshotHeaderRecord | SnapshotFooterRecord) -> bytes:
    return encode_bytes(message, _CONTROL_VERSION)
