"""Control batches: transaction markers and the other control records of brokers."""

import pytest

from protocol.ids import LeaderEpoch
from protocol.records.batch import parse_header
from protocol.records.builder import Record, build_batch
from protocol.records.control import (
    ControlType,
    control_batch,
    control_key,
    control_type,
    end_transaction_marker,
    read_marker,
)
from protocol.records.errors import MalformedRecords
from protocol.records.reader import iter_records


@pytest.mark.parametrize("type", [ControlType.ABORT, ControlType.COMMIT])
def test_marker_has_78_bytes_with_producer_and_coordinator_epoch(type: ControlType) -> None:
    marker = end_transaction_marker(type, producer_id=5, producer_epoch=3, coordinator_epoch=8, timestamp_ms=99)
    header = parse_header(marker)
    assert len(marker) == 78
    assert (header.producer_id, header.producer_epoch, header.base_sequence, header.max_timestamp) == (5, 3, -1, 99)
    assert header.is_control
    assert header.is_transactional
    assert read_marker(marker) == (type, 8)


def test_other_control_records_end_no_transaction() -> None:
    batch = control_batch([(ControlType.LEADER_CHANGE, b"encoded")], 5, base_offset=3, leader_epoch=LeaderEpoch(2))
    header = parse_header(batch)
    assert (header.base_offset, header.leader_epoch, header.is_transactional) == (3, 2, False)
    assert read_marker(batch) is None
    (record,) = iter_records(batch)
    assert (control_type(record.key), record.value) == (ControlType.LEADER_CHANGE, b"encoded")


def test_keys_of_later_versions_are_tolerated_and_unknown_types_skipped() -> None:
    assert control_type(control_key(ControlType.COMMIT) + b"more") is ControlType.COMMIT
    assert control_type(b"\x00\x05\x00\x63") is None


@pytest.mark.parametrize("key", [None, b"", b"\x00\x00\x00"])
def test_short_keys_are_refused(key: bytes | None) -> None:
    with pytest.raises(MalformedRecords):
        control_type(key)


@pytest.mark.parametrize("value", [None, b"\x00\x00\x00"])
def test_marker_without_coordinator_epoch_is_refused(value: bytes | None) -> None:
    batch = build_batch([Record(1, control_key(ControlType.COMMIT), value)], control=True)
    with pytest.raises(MalformedRecords):
        read_marker(batch)
