"""Members of classic groups, whose assignments are opaque bytes."""

import pytest

from broker.console.group_members import describe_classic
from protocol.compiler import encode_bytes
from protocol.messages.common_records import ConsumerProtocolAssignment, ConsumerProtocolAssignmentTopicPartition
from protocol.messages.describe_groups import DescribedGroup, DescribedGroupMember


def member(assignment: bytes) -> DescribedGroupMember:
    return DescribedGroupMember("m", None, "app", "/10.0.0.1", b"", assignment)


def test_assignment_of_the_consumer_protocol_is_decoded() -> None:
    wire = encode_bytes(
        ConsumerProtocolAssignment(
            [ConsumerProtocolAssignmentTopicPartition("b", [1]), ConsumerProtocolAssignmentTopicPartition("a", [2, 0])]
        ),
        1,
    )
    view = describe_classic(DescribedGroup(0, None, "g", "Stable", "consumer", "range", [member(b"\x00\x01" + wire)]))
    assert view.members[0].assignment == [("a", 0), ("a", 2), ("b", 1)]
    assert view.owners == {("a", 0): "m", ("a", 2): "m", ("b", 1): "m"}
    assert view.topics == {"a", "b"}
    assert (view.assignor, view.members[0].host) == ("range", "10.0.0.1")
    assert view.members_seen_by({"b"})[0]["assignment"] == [{"topic": "b", "partitions": [1]}]


@pytest.mark.parametrize("data", [b"", b"\x00", b"\x00\x00", b"\x00\x01\xff\xff\xff", b"connect's own bytes"])
def test_other_assignments_are_empty(data: bytes) -> None:
    view = describe_classic(DescribedGroup(0, None, "g", "Stable", "connect", "default", [member(data)]))
    assert view.members[0].assignment == []
