"""Records of consumer groups in Kafka's formats, with bytes written by the serde of Apache Kafka 4.2."""

from dataclasses import replace

import pytest

from broker.groups.consumer import records
from broker.groups.consumer.member import (
    ClassicProtocolSupport,
    ConsumerGroupMember,
    MemberAssignment,
    ReconciliationState,
)
from broker.groups.consumer.records import ConsumerGroupRecord, ResolvedRegex
from broker.groups.member import SupportedProtocol
from broker.groups.records import decode_record
from protocol.errors import DecodeError
from protocol.primitives import Uuid

TOPIC_ID = Uuid((1).to_bytes(8, "big") + (2).to_bytes(8, "big"))
MEMBER = ConsumerGroupMember("m", "c", "/h", "i", None, 1000, frozenset({"u", "t"}))
CLASSIC = replace(MEMBER, classic=ClassicProtocolSupport(9, (SupportedProtocol("range", b"\x01\x02"),)))
CURRENT = MemberAssignment(
    7,
    6,
    ReconciliationState.UNREVOKED_PARTITIONS,
    {TOPIC_ID: frozenset({0})},
    {TOPIC_ID: frozenset({1})},
)

WRITTEN_BY_KAFKA = [
    (records.epoch_written("g", 7, 5), "0003000167", "0000000000070100080000000000000005"),
    (
        records.member_written("g", MEMBER),
        "000500016700016d",
        "00000269000263032f68030274027501000003e80001000100",
    ),
    (
        records.member_written("g", CLASSIC),
        "000500016700016d",
        "00000269000263032f68030274027501000003e8000100110100000009020672616e67650301020000",
    ),
    (records.target_epoch_written("g", 7), "0006000167", "00000000000700"),
    (
        records.target_written("g", "m", {TOPIC_ID: frozenset({1, 0})}),
        "000700016700016d",
        "000002000000000000000100000000000000020300000000000000010000",
    ),
    (
        records.current_written("g", "m", CURRENT),
        "000800016700016d",
        "00000000000700000006010200000000000000010000000000000002020000000000020000000000000001000000000000000202"
        "000000010000",
    ),
    (
        records.regex_resolved("g", "t.*", ResolvedRegex(frozenset({"t"}), 3, 4)),
        "00100001670003742e2a",
        "00000202740000000000000003000000000000000400",
    ),
]


@pytest.mark.parametrize(("record", "key", "value"), WRITTEN_BY_KAFKA)
def test_records_have_kafkas_bytes(record: ConsumerGroupRecord, key: str, value: str) -> None:
    assert record.key.hex() == key
    assert record.value is not None
    assert record.value.hex() == value


@pytest.mark.parametrize(("record", "key", "value"), WRITTEN_BY_KAFKA)
def test_kafkas_bytes_decode_to_the_event(record: ConsumerGroupRecord, key: str, value: str) -> None:
    assert decode_record(bytes.fromhex(key), bytes.fromhex(value)) == record.event


def test_tombstones_of_a_group_decode_to_their_events() -> None:
    tombstones = records.group_removed("g", ["m", "n"], ["t.*"], has_partition_metadata=True)
    assert [decode_record(each.key, each.value) for each in tombstones] == [each.event for each in tombstones]
    types = [int.from_bytes(each.key[:2], "big") for each in tombstones]
    assert types == [8, 8, 7, 7, 6, 5, 5, 16, 4, 3]


def test_state_of_a_later_version_is_unknown() -> None:
    value = bytes.fromhex("00000000000700000006090101" + "00")
    event = decode_record(bytes.fromhex("000800016700016d"), value)
    assert isinstance(event, records.CurrentAssignmentWritten)
    assert event.assignment.state is ReconciliationState.UNKNOWN


@pytest.mark.parametrize("value", ["", "00", "000100", "0000"])
def test_malformed_value_is_refused(value: str) -> None:
    with pytest.raises(DecodeError):
        decode_record(bytes.fromhex("0003000167"), bytes.fromhex(value))
