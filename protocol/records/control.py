"""Control records: records that brokers write for brokers. They have offsets; consumers skip them.

A control batch holds one record with the key `version int16 · type int16`. The value of a transaction marker is
`version int16 · coordinatorEpoch int32`; the other types hold encoded protocol messages.
"""

import struct
from collections.abc import Iterable
from enum import IntEnum
from functools import lru_cache
from typing import Final

from protocol.ids import LeaderEpoch
from protocol.primitives import Buffer
from protocol.records.batch import (
    CONTROL_FLAG,
    NO_LEADER_EPOCH,
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    NO_SEQUENCE,
    TRANSACTIONAL_FLAG,
)
from protocol.records.builder import Record, build_batch, build_single_record, encode_record
from protocol.records.errors import MalformedRecords
from protocol.records.reader import iter_records

_KEY = struct.Struct(">hh")
_MARKER_VALUE = struct.Struct(">hi")
_KEY_VERSION = 0
_MARKER_VERSION = 0
_MARKERS_MAX: Final = 1_000
"""Limit of the remembered records of markers, which differ by coordinator epoch only."""


class ControlType(IntEnum):
    ABORT = 0
    COMMIT = 1
    LEADER_CHANGE = 2
    SNAPSHOT_HEADER = 3
    SNAPSHOT_FOOTER = 4
    KRAFT_VERSION = 5
    KRAFT_VOTERS = 6


def control_key(type: ControlType) -> bytes:
    return _KEY.pack(_KEY_VERSION, type)


def control_type(key: bytes | None) -> ControlType | None:
    """Return the type in a control record's key; None for an unknown type, which is skipped. Raises
    MalformedRecords.
    """
    if key is None or len(key) < _KEY.size:
        raise MalformedRecords("the key of a control record is too short")
    number = _KEY.unpack_from(key)[1]
    return ControlType(number) if number in ControlType._value2member_map_ else None


def control_batch(
    records: Iterable[tuple[ControlType, bytes]],
    timestamp_ms: int,
    *,
    base_offset: int = 0,
    leader_epoch: LeaderEpoch = NO_LEADER_EPOCH,
    producer_id: int = NO_PRODUCER_ID,
    producer_epoch: int = NO_PRODUCER_EPOCH,
    transactional: bool = False,
) -> bytes:
    """Build a control batch of (type, encoded value) records; only the voters records of a snapshot share a batch."""
    return build_batch(
        [Record(timestamp_ms, control_key(type), value) for type, value in records],
        base_offset=base_offset,
        leader_epoch=leader_epoch,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=NO_SEQUENCE,
        transactional=transactional,
        control=True,
    )


def end_transaction_marker(
    type: ControlType, producer_id: int, producer_epoch: int, coordinator_epoch: int, timestamp_ms: int
) -> bytearray:
    """Build the 78-byte batch that ends a transaction on one partition; `type` is ABORT or COMMIT."""
    return build_single_record(
        _marker_record(type, coordinator_epoch),
        timestamp_ms,
        attributes=TRANSACTIONAL_FLAG | CONTROL_FLAG,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
    )


@lru_cache(_MARKERS_MAX)
def _marker_record(type: ControlType, coordinator_epoch: int) -> bytes:
    return encode_record(control_key(type), _MARKER_VALUE.pack(_MARKER_VERSION, coordinator_epoch))


def read_marker(batch: Buffer, position: int = 0) -> tuple[ControlType, int] | None:
    """Return (ABORT or COMMIT, coordinator epoch) of a control batch; None if it ends no transaction.

    Raises MalformedRecords.
    """
    for record in iter_records(batch, position):
        type = control_type(record.key)
        if type not in (ControlType.ABORT, ControlType.COMMIT):
            return None
        if record.value is None or len(record.value) < _MARKER_VALUE.size:
            raise MalformedRecords("the value of a transaction marker is too short")
        return type, _MARKER_VALUE.unpack_from(record.value)[1]
    return None
