"""Records in Kafka's formats, with bytes written by Apache Kafka 4.2's GroupCoordinatorRecordSerde."""

import pytest

from broker.groups.classic import ClassicGroup
from broker.groups.member import ClassicGroupMember, SupportedProtocol
from broker.groups.records import (
    CommittedOffset,
    GroupRemoved,
    GroupWritten,
    OffsetCommitted,
    OffsetKey,
    OffsetRemoved,
    decode_record,
    group_created,
    group_removed,
    group_written,
    offset_committed,
    offset_removed,
)
from broker.groups.replay import group_from_record
from broker.groups.state import GroupState
from protocol.errors import DecodeError
from protocol.ids import LeaderEpoch
from protocol.primitives import Uuid

OFFSET_KEY = "000100016700017400000007"
GROUP_KEY = "0002000167"


def a_group() -> ClassicGroup:
    group = ClassicGroup("g", state=GroupState.STABLE, state_since_ms=5)
    group.generation, group.protocol = 4, "range"
    protocols = (SupportedProtocol("range", b"\x01\x02"), SupportedProtocol("sticky", b"not written"))
    group.add(ClassicGroupMember("a-1", "i", "a", "/127.0.0.1", 60_000, 10_000, protocols), "consumer")
    return group


def test_commit_has_kafkas_bytes() -> None:
    record = offset_committed(OffsetKey("g", "t", 7), CommittedOffset(5, LeaderEpoch(3), "m", 1))
    assert record.key.hex() == OFFSET_KEY
    assert record.value is not None
    assert record.value.hex() == "0004000000000000000500000003026d000000000000000100"


def test_commit_by_topic_id_has_the_id() -> None:
    topic_id = Uuid((1).to_bytes(8, "big") + (2).to_bytes(8, "big"))
    record = offset_committed(OffsetKey("g", "t", 0), CommittedOffset(5, LeaderEpoch(-1), "m", 1, -1, topic_id))
    assert record.value is not None
    expected = "00040000000000000005ffffffff026d000000000000000101001000000000000000010000000000000002"
    assert record.value.hex() == expected


def test_commit_with_expiry_time_uses_a_version_with_that_field() -> None:
    record = offset_committed(OffsetKey("g", "t", 7), CommittedOffset(5, LeaderEpoch(3), "m", 1, 9))
    assert record.value is not None
    assert record.value.hex() == "0001000000000000000500016d00000000000000010000000000000009"


def test_group_has_kafkas_bytes() -> None:
    record = group_written(a_group(), {"a-1": b"\x03"})
    assert record.key.hex() == GROUP_KEY
    assert record.value is not None
    assert record.value.hex() == (
        "00030008636f6e73756d657200000004000572616e67650003612d310000000000000005000000010003612d31000169000161000a"
        "2f3132372e302e302e310000ea60000027100000000201020000000103"
    )


def test_group_without_generation_has_kafkas_bytes() -> None:
    record = group_created(ClassicGroup("g", state_since_ms=5))
    assert record.value is not None
    assert record.value.hex() == "0003000000000000ffffffff000000000000000500000000"


def test_tombstones_have_no_value() -> None:
    assert offset_removed(OffsetKey("g", "t", 7))[:2] == (bytes.fromhex(OFFSET_KEY), None)
    assert group_removed("g")[:2] == (bytes.fromhex(GROUP_KEY), None)


def test_written_records_are_decoded_again() -> None:
    key, value = OffsetKey("g", "t", 7), CommittedOffset(5, LeaderEpoch(3), "m", 1)
    for record in (
        offset_committed(key, value),
        offset_removed(key),
        group_written(a_group(), {"a-1": b"\x03"}),
        group_removed("g"),
    ):
        assert decode_record(record.key, record.value) == record.event


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("0000000000000000000500016d0000000000000001", CommittedOffset(5, LeaderEpoch(-1), "m", 1)),
        ("0001000000000000000500016d00000000000000010000000000000009", CommittedOffset(5, LeaderEpoch(-1), "m", 1, 9)),
        ("0002000000000000000500016d0000000000000001", CommittedOffset(5, LeaderEpoch(-1), "m", 1)),
        ("000300000000000000050000000300016d0000000000000001", CommittedOffset(5, LeaderEpoch(3), "m", 1)),
    ],
)
def test_commits_of_older_versions_are_read(value: str, expected: CommittedOffset) -> None:
    for record_type in ("0000", "0001"):
        key = bytes.fromhex(record_type + OFFSET_KEY[4:])
        assert decode_record(key, bytes.fromhex(value)) == OffsetCommitted(OffsetKey("g", "t", 7), expected)


def test_group_of_the_first_version_is_read() -> None:
    """No rebalance timeout, no state timestamp, no static members."""
    value = "00000008636f6e73756d657200000004000572616e67650003612d31000000010003612d31000161"
    value += "000a2f3132372e302e302e31000027100000000201020000000103"
    event = decode_record(bytes.fromhex(GROUP_KEY), bytes.fromhex(value))
    assert isinstance(event, GroupWritten)
    group = group_from_record("g", event.value)
    member = group.members["a-1"]
    assert (group.state, group.generation, group.state_since_ms) == (GroupState.STABLE, 4, -1)
    assert (member.rebalance_timeout_ms, member.instance_id, member.assignment) == (10_000, None, b"\x03")


@pytest.mark.parametrize("record_type", [9, 18, 99])
def test_records_of_other_group_protocols_are_ignored(record_type: int) -> None:
    assert decode_record(record_type.to_bytes(2, "big") + b"anything", b"anything") is None


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("", None),
        ("00", None),
        ("0001", None),
        (OFFSET_KEY, ""),
        (OFFSET_KEY, "0003"),
        (OFFSET_KEY, "00090000000000000005"),
        (OFFSET_KEY, "ffff0000000000000005"),
        (GROUP_KEY, "0003ff"),
    ],
)
def test_malformed_record_raises_decode_error(key: str, value: str | None) -> None:
    with pytest.raises(DecodeError):
        decode_record(bytes.fromhex(key), None if value is None else bytes.fromhex(value))


def test_keys_of_a_group_differ_in_their_partition() -> None:
    """The group and the topic of a key are cached, the partition is not."""
    keys = [OffsetKey(group, "t", partition) for partition in (0, 7, -1, 2**31 - 1) for group in ("g", "h", "")]
    assert [decode_record(offset_removed(key).key, None) for key in keys] == [OffsetRemoved(key) for key in keys]


def test_bytes_after_the_partition_of_a_key_are_ignored() -> None:
    for extra in range(1, 9):
        assert decode_record(bytes.fromhex(OFFSET_KEY) + bytes(extra), None) == OffsetRemoved(OffsetKey("g", "t", 7))


def test_every_truncation_of_a_key_raises_decode_error() -> None:
    key = bytes.fromhex(OFFSET_KEY)
    assert decode_record(key, None) is not None
    for size in range(2, len(key)):
        with pytest.raises(DecodeError):
            decode_record(key[:size], None)


def test_tombstones_are_decoded() -> None:
    assert decode_record(bytes.fromhex(OFFSET_KEY), None) == OffsetRemoved(OffsetKey("g", "t", 7))
    assert decode_record(bytes.fromhex(GROUP_KEY), None) == GroupRemoved("g")
