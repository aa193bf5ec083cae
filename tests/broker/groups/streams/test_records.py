"""The records of streams groups: decoded as written, in the bytes of Apache Kafka 4.2."""

import pytest

from broker.groups.records import decode_record
from broker.groups.streams import records
from broker.groups.streams.member import (
    StreamsGroupMember,
    StreamsMemberAssignment,
    TaskReconciliationState,
    UserEndpoint,
)
from broker.groups.streams.tasks import AssignedTasks, Tasks
from broker.groups.streams.topology import topology_of
from protocol.errors import DecodeError
from tests.support.harnesses.streams_group_harness import word_count

MEMBER = StreamsGroupMember("m", "c", "/h", None, "rack", 5, 2, "p", UserEndpoint("one", 80), (("k", "v"),))
CURRENT = StreamsMemberAssignment(
    4,
    3,
    TaskReconciliationState.UNREVOKED_TASKS,
    AssignedTasks({"1": {0: 2, 3: 4}}, {"0": frozenset((1,))}, {"0": frozenset((2,))}),
    AssignedTasks({"0": {7: 1}}),
)
WRITTEN = [
    records.streams_epoch_written("g", 5, -7, 0, {"num.standby.replicas": "1"}),
    records.streams_topology_written("g", topology_of(word_count(3))),
    records.streams_member_written("g", MEMBER),
    records.streams_target_epoch_written("g", 5),
    records.streams_target_written("g", "m", Tasks({"1": frozenset((0, 3))}, {"0": frozenset((1,))})),
    records.streams_current_written("g", "m", CURRENT),
    *records.streams_member_removed("g", "m"),
    *records.streams_group_removed("g", ["m"]),
]


@pytest.mark.parametrize("record", WRITTEN, ids=lambda record: type(record.event).__name__)
def test_written_records_are_decoded_again(record: records.StreamsGroupRecord) -> None:
    assert decode_record(record.key, record.value) == record.event


@pytest.mark.parametrize(
    ("record", "key", "value"),
    [
        (
            WRITTEN[0],
            "0011000167",
            "000000000005fffffffffffffff902000400000000011902156e756d2e7374616e6462792e7265706c69636173023100",
        ),
        (
            WRITTEN[1],
            "0017000167",
            "000000000003030230020274010102027201010002310101020263000000000000020f636c65616e75702e706f6c69637908"
            "636f6d70616374000001020272000000000000020f636c65616e75702e706f6c6963790764656c6574650000010000",
        ),
        (
            WRITTEN[4],
            "001500016700016d",
            "0000020231030000000000000003000202300200000001000100",
        ),
        (
            WRITTEN[2],
            "001300016700016d",
            "000000057261636b0263032f680000000500000002027001046f6e6500500002026b02760000",
        ),
        (WRITTEN[3], "0014000167", "00000000000500"),
        (
            WRITTEN[5],
            "001600016700016d",
            "000000000004000000030202023103000000000000000301000903000000020000000402023002000000010002023002000000"
            "020002023002000000070100050200000001010100",
        ),
    ],
)
def test_records_have_kafkas_bytes(record: records.StreamsGroupRecord, key: str, value: str) -> None:
    assert record.key.hex() == key
    assert record.value is not None
    assert record.value.hex() == value


def test_tasks_without_epochs_have_the_member_epoch() -> None:
    """Kafka 4.1 writes no assignment epochs."""
    (record,) = [each for each in WRITTEN if isinstance(each.event, records.StreamsCurrentWritten)]
    assert record.value is not None
    value = "0000" + "00000004" + "00000003" + "01" + "02" + "0231" + "0200000005" + "00" + "01" * 5 + "00"
    event = decode_record(record.key, bytes.fromhex(value))
    assert isinstance(event, records.StreamsCurrentWritten)
    assert event.assignment.assigned.active == {"1": {5: 4}}


@pytest.mark.parametrize("value", ["00", "000100000005", "0000"])
def test_malformed_values_are_refused(value: str) -> None:
    with pytest.raises(DecodeError):
        decode_record(bytes.fromhex("0011000167"), bytes.fromhex(value))
