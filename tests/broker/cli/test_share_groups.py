"""The command share-groups, against a broker with the share group `s` that reads the topic `t`."""

import json

import pytest

from protocol.api_keys import ApiKey
from protocol.errors import ErrorCode
from protocol.messages.alter_share_group_offsets import (
    AlterShareGroupOffsetsRequest,
    AlterShareGroupOffsetsResponse,
    AlterShareGroupOffsetsResponsePartition,
    AlterShareGroupOffsetsResponseTopic,
)
from protocol.messages.delete_groups import DeletableGroupResult, DeleteGroupsRequest, DeleteGroupsResponse
from protocol.messages.delete_share_group_offsets import (
    DeleteShareGroupOffsetsRequest,
    DeleteShareGroupOffsetsResponse,
    DeleteShareGroupOffsetsResponseTopic,
)
from protocol.messages.describe_share_group_offsets import (
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsResponse,
    DescribeShareGroupOffsetsResponseGroup,
    DescribeShareGroupOffsetsResponsePartition,
    DescribeShareGroupOffsetsResponseTopic,
)
from protocol.messages.list_groups import ListedGroup, ListGroupsRequest, ListGroupsResponse
from protocol.messages.share_group_describe import (
    Assignment,
    DescribedGroup,
    Member,
    ShareGroupDescribeRequest,
    ShareGroupDescribeResponse,
    TopicPartitions,
)
from tests.broker.cli.conftest import Ottla
from tests.broker.cli.test_consumer_groups import Groups
from tests.support.fakes.fake_broker import FakeBroker, topic_id


class ShareGroups:
    """The state of the broker's group. Partition 0 of `t` starts at 30 of 5 to 100, 1 nowhere."""

    def __init__(self, broker: FakeBroker) -> None:
        self.state = "Empty"
        self.members: list[Member] = []
        self.error = ErrorCode.NONE
        Groups(broker)
        broker.answer(ApiKey.LIST_GROUPS, self.list)
        broker.answer(ApiKey.SHARE_GROUP_DESCRIBE, self.describe)
        broker.answer(ApiKey.DELETE_GROUPS, self.delete)
        broker.answer(ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS, self.offsets)
        broker.answer(ApiKey.ALTER_SHARE_GROUP_OFFSETS, self.alter)
        broker.answer(ApiKey.DELETE_SHARE_GROUP_OFFSETS, self.delete_offsets)

    def list(self, request: ListGroupsRequest) -> ListGroupsResponse:
        assert request.types_filter == ["share"]
        groups = [ListedGroup("s", "share", self.state, "share"), ListedGroup("b", "share", "Stable", "share")]
        return ListGroupsResponse(
            groups=[each for each in groups if not request.states_filter or each.group_state in request.states_filter]
        )

    def describe(self, request: ShareGroupDescribeRequest) -> ShareGroupDescribeResponse:
        (name,) = request.group_ids
        group = DescribedGroup(ErrorCode.GROUP_ID_NOT_FOUND, f"Share group {name} not found.", name)
        if name == "s":
            group = DescribedGroup(0, None, "s", self.state, 4, 3, "simple", self.members)
        return ShareGroupDescribeResponse(groups=[group])

    def delete(self, request: DeleteGroupsRequest) -> DeleteGroupsResponse:
        error = ErrorCode.NONE if self.state == "Empty" else ErrorCode.NON_EMPTY_GROUP
        return DeleteGroupsResponse(results=[DeletableGroupResult(name, error) for name in request.groups_names])

    def offsets(self, request: DescribeShareGroupOffsetsRequest) -> DescribeShareGroupOffsetsResponse:
        (group,) = request.groups
        partitions = [
            DescribeShareGroupOffsetsResponsePartition(1, -1, 0, -1),
            DescribeShareGroupOffsetsResponsePartition(0, 30, 2, 70),
        ]
        topic = DescribeShareGroupOffsetsResponseTopic("t", topic_id("t"), partitions)
        return DescribeShareGroupOffsetsResponse(
            groups=[DescribeShareGroupOffsetsResponseGroup(group.group_id, [topic])]
        )

    def alter(self, request: AlterShareGroupOffsetsRequest) -> AlterShareGroupOffsetsResponse:
        return AlterShareGroupOffsetsResponse(
            responses=[
                AlterShareGroupOffsetsResponseTopic(
                    topic.topic_name,
                    topic_id(topic.topic_name),
                    [
                        AlterShareGroupOffsetsResponsePartition(each.partition_index, self.error)
                        for each in topic.partitions
                    ],
                )
                for topic in request.topics
            ]
        )

    def delete_offsets(self, request: DeleteShareGroupOffsetsRequest) -> DeleteShareGroupOffsetsResponse:
        missing = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        return DeleteShareGroupOffsetsResponse(
            responses=[
                DeleteShareGroupOffsetsResponseTopic(
                    each.topic_name, error_code=0 if each.topic_name == "t" else missing
                )
                for each in request.topics
            ]
        )

    def start(self) -> None:
        """Let a member read both partitions."""
        self.state = "Stable"
        assignment = Assignment([TopicPartitions(topic_id("t"), "t", [1, 0])])
        self.members = [Member("m", None, 3, "client", "/host", ["t"], assignment)]


@pytest.fixture
def share(broker: FakeBroker) -> ShareGroups:
    return ShareGroups(broker)


@pytest.mark.usefixtures("share")
def test_list_prints_names_and_states(ottla: Ottla) -> None:
    assert ottla("share-groups", "--list").lines == ["s", "b"]
    assert ottla("share-groups", "--list", "--state").lines == [
        "GROUP           STATE",
        "s               Empty",
        "b               Stable",
    ]
    assert json.loads(ottla("share-groups", "--list", "--state", "stable", "--json").out) == [
        {"groupId": "b", "state": "Stable"}
    ]


@pytest.mark.usefixtures("share")
def test_describe_prints_start_offsets_and_lag(ottla: Ottla) -> None:
    outcome = ottla("share-groups", "--describe", "--group", "s")
    assert [line.split() for line in outcome.lines] == [
        [],
        ["GROUP", "TOPIC", "PARTITION", "START-OFFSET", "LAG"],
        ["s", "t", "0", "30", "70"],
        ["s", "t", "1", "-", "-"],
    ]
    assert "Share group 's' has no active members." in outcome.err
    rows = ottla("share-groups", "--describe", "--group", "s", "--offsets", "--verbose").lines
    assert rows[2].split() == ["s", "t", "0", "2", "30", "70"]
    (document,) = json.loads(ottla("share-groups", "--describe", "--group", "s", "--json").out)
    assert [each["lag"] for each in document["partitions"]] == [70, None]


def test_describe_prints_members_and_states(share: ShareGroups, ottla: Ottla) -> None:
    share.start()
    _, heading, row = ottla("share-groups", "--describe", "--group", "s", "--members").lines
    assert heading.split() == ["GROUP", "CONSUMER-ID", "HOST", "CLIENT-ID", "#PARTITIONS", "ASSIGNMENT"]
    assert row.split() == ["s", "m", "/host", "client", "2", "t:0,1"]
    _, _, row = ottla("share-groups", "--describe", "--group", "s", "--members", "--verbose").lines
    assert row.split() == ["s", "m", "/host", "client", "2", "3", "t:0,1"]
    _, _, row = ottla("share-groups", "--describe", "--group", "s", "--state", "--verbose").lines
    assert row.split()[-4:] == ["Stable", "4", "3", "1"]


@pytest.mark.usefixtures("share")
def test_missing_group_is_an_error(ottla: Ottla) -> None:
    outcome = ottla("share-groups", "--describe", "--group", "nobody")
    assert (outcome.code, "Share group nobody not found" in outcome.err) == (1, True)


def test_empty_group_is_deleted_and_groups_of_other_types_are_not(
    broker: FakeBroker, share: ShareGroups, ottla: Ottla
) -> None:
    outcome = ottla("share-groups", "--delete", "--group", "s")
    assert outcome.lines == ["Deletion of requested share groups ('s') was successful."]
    outcome = ottla("share-groups", "--delete", "--group", "classic")
    assert (outcome.code, "Group 'classic' is not a share group." in outcome.err) == (1, True)
    assert [each.groups_names for each in broker.received(DeleteGroupsRequest)] == [["s"]]
    share.start()
    outcome = ottla("share-groups", "--delete", "--group", "s")
    assert (outcome.code, "Deletion of some share groups failed" in outcome.err) == (1, True)


@pytest.mark.usefixtures("share")
def test_reset_alters_start_offsets(broker: FakeBroker, ottla: Ottla) -> None:
    arguments = ("--group", "s", "--reset-offsets", "--topic", "t:0", "--to-datetime", "2000-01-01T00:00:00.000")
    outcome = ottla("share-groups", *arguments, "--execute")
    assert [line.split() for line in outcome.lines] == [
        [],
        ["GROUP", "TOPIC", "PARTITION", "NEW-OFFSET"],
        ["s", "t", "0", "42"],
    ]
    (request,) = broker.received(AlterShareGroupOffsetsRequest)
    assert [(each.partition_index, each.start_offset) for each in request.topics[0].partitions] == [(0, 42)]


@pytest.mark.usefixtures("share")
def test_dry_run_shows_all_topics_and_alters_nothing(broker: FakeBroker, ottla: Ottla) -> None:
    arguments = ("--group", "s", "--reset-offsets", "--all-topics", "--to-latest", "--dry-run", "--json")
    documents = json.loads(ottla("share-groups", *arguments).out)
    assert [(each["partition"], each["newOffset"]) for each in documents] == [(0, 100), (1, 100)]
    assert broker.received(AlterShareGroupOffsetsRequest) == []


def test_refused_resets_are_errors(share: ShareGroups, ottla: Ottla) -> None:
    arguments = ("--group", "s", "--reset-offsets", "--all-topics", "--to-earliest", "--execute")
    share.error = ErrorCode.NON_EMPTY_GROUP
    assert ottla("share-groups", *arguments).code == 1
    share.start()
    outcome = ottla("share-groups", *arguments)
    assert (outcome.code, "Share group 's' is not empty: its state is Stable." in outcome.err) == (1, True)


@pytest.mark.usefixtures("share")
def test_offsets_of_topics_are_deleted(ottla: Ottla) -> None:
    outcome = ottla("share-groups", "--group", "s", "--delete-offsets", "--topic", "t")
    assert outcome.lines == ["", "TOPIC           STATUS", "t               Successful"]
    outcome = ottla("share-groups", "--group", "s", "--delete-offsets", "--topic", "t", "--topic", "x")
    assert (outcome.code, outcome.lines[-1].split()[:2]) == (1, ["x", "Error:"])


@pytest.mark.usefixtures("share")
@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (("--reset-offsets", "--group", "s", "--to-latest", "--dry-run"), "needs either --topic or --all-topics"),
        (("--reset-offsets", "--group", "s", "--topic", "t", "--to-latest"), "needs either --dry-run or --execute"),
        (("--reset-offsets", "--group", "s", "--topic", "t", "--execute"), "needs exactly one of --to-earliest"),
        (("--reset-offsets", "--all-groups", "--topic", "t", "--to-latest", "--execute"), "needs one --group"),
        (("--delete-offsets", "--group", "s"), "needs --topic"),
        (("--describe",), "needs --group or --all-groups"),
        (("--describe", "--group", "s", "--state", "Empty"), "takes no value"),
        (("--list", "--execute"), "--execute requires --reset-offsets"),
        (("--delete", "--group", "s", "--topic", "t"), "--topic requires --reset-offsets or --delete-offsets"),
        (("--list", "--state", "NotReady"), "use one of Empty, Stable, Dead"),
    ],
)
def test_wrong_options_are_refused(ottla: Ottla, arguments: tuple[str, ...], text: str) -> None:
    outcome = ottla("share-groups", *arguments)
    assert (outcome.code, text in outcome.err) == (2, True), outcome.err
