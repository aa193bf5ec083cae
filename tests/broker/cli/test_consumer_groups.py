"""The command consumer-groups, against a broker with a classic and a consumer group."""

import json
from pathlib import Path

import pytest

from protocol.api_keys import ApiKey
from protocol.compiler import encode_bytes
from protocol.errors import ErrorCode
from protocol.messages import consumer_group_describe as modern
from protocol.messages.common_records import ConsumerProtocolAssignment, ConsumerProtocolAssignmentTopicPartition
from protocol.messages.delete_groups import DeletableGroupResult, DeleteGroupsRequest, DeleteGroupsResponse
from protocol.messages.describe_groups import (
    DescribedGroup,
    DescribedGroupMember,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
)
from protocol.messages.list_groups import ListedGroup, ListGroupsRequest, ListGroupsResponse
from protocol.messages.list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from protocol.messages.offset_commit import OffsetCommitRequest, OffsetCommitResponse
from protocol.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)
from protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartition,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopic,
    OffsetFetchResponseTopics,
)
from tests.broker.cli.conftest import Ottla
from tests.support.fakes.fake_broker import NODE_ID, FakeBroker

EARLIEST_OFFSET = 5
LATEST_OFFSET = 100
OFFSET_BY_TIME = 42


class Groups:
    """The state of the broker's groups. Topic `t` has two partitions with offsets from 5 to 100."""

    def __init__(self, broker: FakeBroker) -> None:
        self.broker = broker
        self.group_id = "g"
        self.state = "Empty"
        self.members: list[DescribedGroupMember] = []
        self.modern: modern.DescribedGroup | None = None
        self.committed = {("t", 0): 30}
        self.deleted: dict[str, ErrorCode] = {}
        broker.topics = {"t": 2}
        broker.answer(ApiKey.LIST_GROUPS, self.list)
        broker.answer(ApiKey.DESCRIBE_GROUPS, self.describe)
        broker.answer(ApiKey.CONSUMER_GROUP_DESCRIBE, self.describe_modern)
        broker.answer(ApiKey.OFFSET_FETCH, self.fetch)
        broker.answer(ApiKey.OFFSET_COMMIT, lambda _: OffsetCommitResponse())
        broker.answer(ApiKey.LIST_OFFSETS, self.list_offsets)
        broker.answer(ApiKey.DELETE_GROUPS, self.delete)
        broker.answer(ApiKey.OFFSET_DELETE, self.delete_offsets)

    def list(self, request: ListGroupsRequest) -> ListGroupsResponse:
        groups = [
            ListedGroup("g", "consumer", "Empty", "classic"),
            ListedGroup("m", "consumer", "Stable", "consumer"),
            ListedGroup("connect", "connect", "Stable", "classic"),
        ]
        return ListGroupsResponse(groups=groups)

    def describe(self, request: DescribeGroupsRequest) -> DescribeGroupsResponse:
        (name,) = request.groups
        if name != "g":
            return DescribeGroupsResponse(groups=[DescribedGroup(group_id=name, group_state="Dead")])
        group = DescribedGroup(
            group_id="g",
            group_state=self.state,
            protocol_type="consumer",
            protocol_data="range" if self.members else "",
            members=self.members,
        )
        return DescribeGroupsResponse(groups=[group])

    def describe_modern(self, request: modern.ConsumerGroupDescribeRequest) -> modern.ConsumerGroupDescribeResponse:
        (name,) = request.group_ids
        if name == "m" and self.modern is not None:
            return modern.ConsumerGroupDescribeResponse(groups=[self.modern])
        missing = modern.DescribedGroup(error_code=ErrorCode.GROUP_ID_NOT_FOUND, group_id=name)
        return modern.ConsumerGroupDescribeResponse(groups=[missing])

    def fetch(self, request: OffsetFetchRequest) -> OffsetFetchResponse:
        found = self.committed if (request.group_id or request.groups[0].group_id) == self.group_id else {}
        if not request.groups:
            rows = [OffsetFetchResponseTopic(t, [OffsetFetchResponsePartition(p, o)]) for (t, p), o in found.items()]
            return OffsetFetchResponse(topics=rows)
        topics = [
            OffsetFetchResponseTopics(name=t, partitions=[OffsetFetchResponsePartitions(p, o)])
            for (t, p), o in found.items()
        ]
        return OffsetFetchResponse(groups=[OffsetFetchResponseGroup(request.groups[0].group_id, topics)])

    def list_offsets(self, request: ListOffsetsRequest) -> ListOffsetsResponse:
        offsets = {-2: EARLIEST_OFFSET, -1: LATEST_OFFSET}
        topics = [
            ListOffsetsTopicResponse(
                topic.name,
                [
                    ListOffsetsPartitionResponse(
                        p.partition_index,
                        0,
                        -1,
                        offsets.get(p.timestamp, OFFSET_BY_TIME if p.timestamp < 10**12 else -1),
                    )
                    for p in topic.partitions
                ],
            )
            for topic in request.topics
        ]
        return ListOffsetsResponse(topics=topics)

    def delete(self, request: DeleteGroupsRequest) -> DeleteGroupsResponse:
        results = [DeletableGroupResult(name, self.deleted.get(name, 0)) for name in request.groups_names]
        return DeleteGroupsResponse(results=results)

    def delete_offsets(self, request: OffsetDeleteRequest) -> OffsetDeleteResponse:
        topics = [
            OffsetDeleteResponseTopic(t.name, [OffsetDeleteResponsePartition(p.partition_index) for p in t.partitions])
            for t in request.topics
        ]
        return OffsetDeleteResponse(topics=topics)

    @property
    def commits(self) -> dict[tuple[str, int], int]:
        """Return the committed offsets; check that the commit has no member id."""
        (request,) = self.broker.received(OffsetCommitRequest)
        assert (request.group_id, request.generation_id_or_member_epoch, request.member_id) == ("g", -1, "")
        return {(t.name, p.partition_index): p.committed_offset for t in request.topics for p in t.partitions}


@pytest.fixture
def groups(broker: FakeBroker) -> Groups:
    return Groups(broker)


def _assignment(*partitions: int) -> bytes:
    topics = [ConsumerProtocolAssignmentTopicPartition("t", list(partitions))]
    return b"\0\0" + encode_bytes(ConsumerProtocolAssignment(assigned_partitions=topics), 0)


def _member(name: str, *partitions: int, instance_id: str | None = None) -> DescribedGroupMember:
    return DescribedGroupMember(name, instance_id, "client", "/1.2.3.4", b"", _assignment(*partitions))


def _modern_group() -> modern.DescribedGroup:
    assignment = modern.Assignment([modern.TopicPartitions(topic_name="t", partitions=[0, 1])])
    member = modern.Member(
        member_id="m1",
        member_epoch=4,
        client_id="client",
        client_host="/1.2.3.4",
        assignment=assignment,
        target_assignment=modern.Assignment(),
    )
    return modern.DescribedGroup(
        group_id="m", group_state="Stable", group_epoch=4, assignment_epoch=3, assignor_name="uniform", members=[member]
    )


@pytest.mark.usefixtures("groups")
def test_list_prints_names(ottla: Ottla) -> None:
    assert ottla("consumer-groups", "--list").lines == ["g", "m"]
    assert ottla("consumer-groups", "--list", "--type", "--state").lines == [
        "GROUP                            TYPE                 STATE               ",
        "g                                Classic              Empty               ",
        "m                                Consumer             Stable              ",
    ]
    assert json.loads(ottla("consumer-groups", "--list", "--json").out)[1] == {
        "groupId": "m",
        "type": "Consumer",
        "state": "Stable",
    }


def test_list_filters_are_sent_to_the_broker(broker: FakeBroker, groups: Groups, ottla: Ottla) -> None:
    ottla("consumer-groups", "--list", "--state", "stable,empty", "--type", "classic")
    request = broker.received(ListGroupsRequest)[0]
    assert (request.states_filter, request.types_filter) == (["Stable", "Empty"], ["Classic"])


def test_describe_without_members(groups: Groups, ottla: Ottla) -> None:
    outcome = ottla("consumer-groups", "--describe", "--group", "g")
    assert outcome.lines == [
        "",
        "GROUP           TOPIC           PARTITION  CURRENT-OFFSET  LOG-END-OFFSET  LAG            "
        " CONSUMER-ID     HOST            CLIENT-ID",
        "g               t               0          30              100             70             "
        " -               -               -",
    ]
    assert outcome.err == "\nConsumer group 'g' has no active members.\n"


def test_describe_with_members(groups: Groups, ottla: Ottla) -> None:
    groups.state, groups.members = "Stable", [_member("m1", 0, 1), _member("idle")]
    rows = [line.split() for line in ottla("consumer-groups", "--describe", "--group", "g").lines[2:]]
    assert rows == [
        ["g", "t", "0", "30", "100", "70", "m1", "/1.2.3.4", "client"],
        ["g", "t", "1", "-", "100", "-", "m1", "/1.2.3.4", "client"],
        ["g", "-", "-", "-", "-", "-", "idle", "/1.2.3.4", "client"],
    ]


def test_describe_works_with_an_old_broker(broker: FakeBroker, groups: Groups, ottla: Ottla) -> None:
    broker.versions[ApiKey.OFFSET_FETCH] = (1, 7)
    del broker.versions[ApiKey.CONSUMER_GROUP_DESCRIBE]
    rows = [line.split() for line in ottla("consumer-groups", "--describe", "--group", "g").lines[2:]]
    assert rows == [["g", "t", "0", "30", "100", "70", "-", "-", "-"]]


def test_committed_offset_of_a_deleted_topic_has_no_log_end(groups: Groups, ottla: Ottla) -> None:
    groups.committed = {("gone", 0): 3, ("t", 0): 30}
    (document,) = json.loads(ottla("consumer-groups", "--describe", "--group", "g", "--json").out)
    assert [(p["topic"], p["currentOffset"], p["logEndOffset"], p["lag"]) for p in document["partitions"]] == [
        ("gone", 3, None, None),
        ("t", 30, 100, 70),
    ]


def test_describe_members(groups: Groups, ottla: Ottla) -> None:
    groups.state, groups.members = "Stable", [_member("m1", 0, 1, instance_id="i")]
    lines = ottla("consumer-groups", "--describe", "--group", "g", "--members", "--verbose").lines
    assert lines[1].split() == [
        *("GROUP", "CONSUMER-ID", "GROUP-INSTANCE-ID", "HOST", "CLIENT-ID", "#PARTITIONS"),
        *("CURRENT-EPOCH", "CURRENT-ASSIGNMENT", "TARGET-EPOCH", "TARGET-ASSIGNMENT"),
    ]
    assert lines[2].split() == ["g", "m1", "i", "/1.2.3.4", "client", "2", "-", "t:0,1", "-", "-"]


def test_describe_a_consumer_group(groups: Groups, ottla: Ottla) -> None:
    groups.modern = _modern_group()
    members = ottla("consumer-groups", "--describe", "--group", "m", "--members", "--verbose").lines
    assert members[2].split() == ["m", "m1", "/1.2.3.4", "client", "2", "4", "t:0,1", "3", "-"]
    state = ottla("consumer-groups", "--describe", "--group", "m", "--state", "--verbose").lines
    assert state[2].split() == [
        "m",
        f"127.0.0.1:{groups.broker.port}",
        f"({NODE_ID})",
        "uniform",
        "Stable",
        "4",
        "3",
        "1",
    ]


def test_describe_the_state(groups: Groups, ottla: Ottla) -> None:
    lines = ottla("consumer-groups", "--describe", "--group", "g", "--state").lines
    assert lines[1] == "GROUP           COORDINATOR (ID)          ASSIGNMENT-STRATEGY  STATE                #MEMBERS"
    assert lines[2].split() == ["g", f"127.0.0.1:{groups.broker.port}", f"({NODE_ID})", "-", "Empty", "0"]
    (document,) = json.loads(ottla("consumer-groups", "--describe", "--group", "g", "--state", "--json").out)
    assert (document["type"], document["state"], document["members"]) == ("Classic", "Empty", 0)


def test_describe_all_groups(groups: Groups, ottla: Ottla) -> None:
    groups.modern = _modern_group()
    documents = json.loads(ottla("consumer-groups", "--describe", "--all-groups", "--members", "--json").out)
    assert [document["groupId"] for document in documents] == ["g", "m"]


@pytest.mark.usefixtures("groups")
def test_missing_group_is_reported(ottla: Ottla) -> None:
    outcome = ottla("consumer-groups", "--describe", "--group", "nosuch")
    assert (outcome.code, outcome.out) == (1, "")
    assert outcome.err == "Error: Group nosuch not found. `ottla groups --list` shows the groups.\n"


@pytest.mark.parametrize(
    ("specification", "expected"),
    [
        (["--to-earliest"], {("t", 0): 5, ("t", 1): 5}),
        (["--to-latest"], {("t", 0): 100, ("t", 1): 100}),
        (["--to-current"], {("t", 0): 30, ("t", 1): 100}),
        (["--to-offset", "7"], {("t", 0): 7, ("t", 1): 7}),
        (["--to-datetime", "1999-01-01T00:00:00.000"], {("t", 0): 42, ("t", 1): 42}),
        (["--by-duration", "PT1S"], {("t", 0): 100, ("t", 1): 100}),
    ],
)
def test_reset_commits_new_offsets(
    specification: list[str], expected: dict[tuple[str, int], int], groups: Groups, ottla: Ottla
) -> None:
    outcome = ottla("consumer-groups", "--reset-offsets", "--group", "g", "--topic", "t", *specification, "--execute")
    assert outcome.code == 0
    assert groups.commits == expected
    assert [line.split() for line in outcome.lines[2:]] == [
        ["g", topic, str(partition), str(offset)] for (topic, partition), offset in expected.items()
    ]


def test_shift_by_resets_one_partition(groups: Groups, ottla: Ottla) -> None:
    ottla("consumer-groups", "--reset-offsets", "--group", "g", "--topic", "t:0", "--shift-by", "-5", "--execute")
    assert groups.commits == {("t", 0): 25}


def test_reset_of_all_topics_applies_to_committed_offsets(groups: Groups, ottla: Ottla) -> None:
    ottla("consumer-groups", "--reset-offsets", "--group", "g", "--all-topics", "--to-earliest", "--execute")
    assert groups.commits == {("t", 0): 5}


def test_dry_run_changes_nothing(broker: FakeBroker, groups: Groups, ottla: Ottla) -> None:
    arguments = ["--reset-offsets", "--group", "g", "--topic", "t", "--to-earliest"]
    assert ottla("consumer-groups", *arguments).err.startswith("WARN: No action will be performed")
    assert ottla("consumer-groups", *arguments, "--dry-run").err == ""
    assert broker.received(OffsetCommitRequest) == []


def test_exported_plan_can_be_executed(groups: Groups, ottla: Ottla, tmp_path: Path) -> None:
    arguments = ["--reset-offsets", "--group", "g", "--topic", "t", "--to-offset", "9"]
    exported = ottla("consumer-groups", *arguments, "--dry-run", "--export").out
    assert exported == "t,0,9\nt,1,9\n"
    (tmp_path / "plan.csv").write_text(exported.replace("9", "200"))
    ottla("consumer-groups", "--reset-offsets", "--group", "g", "--from-file", str(tmp_path / "plan.csv"), "--execute")
    assert groups.commits == {("t", 0): 100, ("t", 1): 100}


def test_group_with_members_is_not_reset(broker: FakeBroker, groups: Groups, ottla: Ottla) -> None:
    groups.state = "Stable"
    outcome = ottla("consumer-groups", "--reset-offsets", "--group", "g", "--topic", "t", "--to-latest", "--execute")
    assert outcome.code == 1
    assert "can only be reset if the group 'g' is inactive, but the current state is Stable." in outcome.err
    assert broker.received(OffsetCommitRequest) == []


@pytest.mark.usefixtures("groups")
def test_missing_group_can_be_given_offsets(broker: FakeBroker, ottla: Ottla) -> None:
    ottla("consumer-groups", "--reset-offsets", "--group", "new", "--topic", "t:1", "--to-latest", "--execute")
    assert broker.received(OffsetCommitRequest)[0].group_id == "new"


def test_delete(groups: Groups, ottla: Ottla) -> None:
    outcome = ottla("consumer-groups", "--delete", "--group", "g", "--group", "m")
    assert outcome == (0, "Deletion of requested consumer groups ('g', 'm') was successful.\n", "")


def test_delete_reports_each_failed_group(groups: Groups, ottla: Ottla) -> None:
    groups.deleted = {"g": ErrorCode.NON_EMPTY_GROUP}
    outcome = ottla("consumer-groups", "--delete", "--group", "g", "--group", "m")
    assert outcome.code == 1
    assert outcome.out == "These consumer groups were deleted successfully: 'm'\n"
    assert f"* Group 'g' could not be deleted due to: {ErrorCode.NON_EMPTY_GROUP.message}" in outcome.err


@pytest.mark.usefixtures("groups")
def test_delete_offsets(ottla: Ottla) -> None:
    outcome = ottla("consumer-groups", "--delete-offsets", "--group", "g", "--topic", "t:1")
    assert outcome.code == 0
    assert outcome.lines[0] == "Request succeeded for deleting offsets from group g."
    assert outcome.lines[3].split() == ["t", "1", "Successful"]


@pytest.mark.usefixtures("groups")
def test_delete_offsets_of_an_unknown_topic_fails(ottla: Ottla) -> None:
    outcome = ottla("consumer-groups", "--delete-offsets", "--group", "g", "--topic", "t", "--topic", "nosuch")
    assert outcome.code == 1
    assert [line.split()[:3] for line in outcome.lines[3:]] == [
        ["nosuch", "-", "Error:"],
        ["t", "0", "Successful"],
        ["t", "1", "Successful"],
    ]


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["--list", "--describe"],
        ["--list", "--group", "g"],
        ["--list", "--state", "sleepy"],
        ["--describe"],
        ["--describe", "--group", "g", "--all-groups"],
        ["--describe", "--group", "g", "--members", "--offsets"],
        ["--describe", "--group", "g", "--execute"],
        ["--delete", "--group", "g", "--members"],
        ["--delete-offsets", "--group", "g"],
        ["--reset-offsets", "--group", "g", "--to-latest"],
        ["--reset-offsets", "--group", "g", "--topic", "t"],
        ["--reset-offsets", "--group", "g", "--topic", "t", "--all-topics", "--to-latest"],
        ["--reset-offsets", "--group", "g", "--topic", "t", "--to-latest", "--to-earliest"],
        ["--reset-offsets", "--group", "g", "--topic", "t", "--to-latest", "--execute", "--dry-run"],
        ["--reset-offsets", "--group", "g", "--topic", "t", "--to-datetime", "yesterday"],
        ["--reset-offsets", "--group", "g", "--topic", "t", "--by-duration", "1h"],
    ],
)
def test_wrong_usage_is_refused(arguments: list[str], ottla: Ottla) -> None:
    assert ottla("consumer-groups", *arguments).code == 2
