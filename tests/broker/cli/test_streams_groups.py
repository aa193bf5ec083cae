"""The command streams-groups, against a broker with the group `app` that reads the topic `t`."""

import json

import pytest

from protocol.api_keys import ApiKey
from protocol.errors import ErrorCode
from protocol.messages.delete_groups import DeletableGroupResult, DeleteGroupsRequest, DeleteGroupsResponse
from protocol.messages.delete_topics import DeletableTopicResult, DeleteTopicsRequest, DeleteTopicsResponse
from protocol.messages.list_groups import ListedGroup, ListGroupsRequest, ListGroupsResponse
from protocol.messages.offset_commit import OffsetCommitRequest
from protocol.messages.offset_delete import OffsetDeleteRequest
from protocol.messages.streams_group_describe import (
    Assignment,
    DescribedGroup,
    Member,
    StreamsGroupDescribeRequest,
    StreamsGroupDescribeResponse,
    Subtopology,
    TaskIds,
    TopicInfo,
    Topology,
)
from tests.broker.cli.conftest import Ottla
from tests.broker.cli.test_consumer_groups import Groups
from tests.support.fakes.fake_broker import FakeBroker

INTERNAL = ["app-counts-changelog", "app-words-repartition"]


class StreamsGroups:
    """The state of the broker's group. Its committed offset is that of `t`, partition 0, which is 30 of 5 to 100."""

    def __init__(self, broker: FakeBroker) -> None:
        self.state = "Empty"
        self.members: list[Member] = []
        self.changelog = INTERNAL[0]
        others = Groups(broker)
        broker.topics = {"t": 2, INTERNAL[1]: 2}
        broker.answer(ApiKey.LIST_GROUPS, self.list)
        broker.answer(ApiKey.STREAMS_GROUP_DESCRIBE, self.describe)
        broker.answer(ApiKey.DELETE_GROUPS, self.delete)
        broker.answer(ApiKey.DELETE_TOPICS, self.delete_topics)
        self.missing_topics: set[str] = set()
        others.group_id = "app"

    def list(self, request: ListGroupsRequest) -> ListGroupsResponse:
        assert request.types_filter == ["streams"]
        return ListGroupsResponse(
            groups=[
                ListedGroup("app", "streams", self.state, "streams"),
                ListedGroup("b", "streams", "NotReady", "streams"),
            ]
        )

    def describe(self, request: StreamsGroupDescribeRequest) -> StreamsGroupDescribeResponse:
        (name,) = request.group_ids
        if name != "app":
            missing = DescribedGroup(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {name} not found.", name)
            return StreamsGroupDescribeResponse(groups=[missing])
        subtopologies = [
            Subtopology("0", ["t"], [INTERNAL[1]]),
            Subtopology("1", [], [], [TopicInfo(self.changelog, 2)], [TopicInfo(INTERNAL[1], 2)]),
        ]
        group = DescribedGroup(
            group_id="app",
            group_state=self.state,
            group_epoch=4,
            assignment_epoch=3,
            topology=Topology(0, subtopologies),
            members=self.members,
        )
        return StreamsGroupDescribeResponse(groups=[group])

    def delete(self, request: DeleteGroupsRequest) -> DeleteGroupsResponse:
        error = ErrorCode.NONE if self.state == "Empty" else ErrorCode.NON_EMPTY_GROUP
        return DeleteGroupsResponse(results=[DeletableGroupResult(name, error) for name in request.groups_names])

    def delete_topics(self, request: DeleteTopicsRequest) -> DeleteTopicsResponse:
        missing = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        return DeleteTopicsResponse(
            responses=[
                DeletableTopicResult(topic.name, error_code=missing if topic.name in self.missing_topics else 0)
                for topic in request.topics
            ]
        )

    def start(self) -> None:
        """Let a member process all tasks."""
        self.state = "Stable"
        tasks = Assignment([TaskIds("0", [0, 1]), TaskIds("1", [0])], [TaskIds("1", [1])])
        self.members = [
            Member(
                member_id="m",
                member_epoch=3,
                client_id="client",
                process_id="process",
                assignment=tasks,
                target_assignment=Assignment([TaskIds("0", [0])]),
            )
        ]


@pytest.fixture
def streams(broker: FakeBroker) -> StreamsGroups:
    return StreamsGroups(broker)


@pytest.mark.usefixtures("streams")
def test_list_prints_names_and_states(ottla: Ottla) -> None:
    assert ottla("streams-groups", "--list").lines == ["app", "b"]
    assert ottla("streams-groups", "--list", "--state").lines == [
        "GROUP           STATE",
        "app             Empty",
        "b               NotReady",
    ]
    assert json.loads(ottla("streams-groups", "--list", "--state", "notready", "--json").out) == [
        {"groupId": "b", "state": "NotReady"}
    ]


@pytest.mark.usefixtures("streams")
def test_unknown_state_is_refused(ottla: Ottla) -> None:
    outcome = ottla("streams-groups", "--list", "--state", "PreparingRebalance")
    assert outcome.code == 2
    assert "use one of Empty, NotReady, Stable, Assigning, Reconciling, Dead" in outcome.err


def test_describe_prints_the_lag_of_active_tasks(streams: StreamsGroups, ottla: Ottla) -> None:
    streams.start()
    outcome = ottla("streams-groups", "--describe", "--group", "app")
    assert [line.split() for line in outcome.lines] == [
        ["GROUP", "TOPIC", "PARTITION", "OFFSET-LAG"],
        ["app", INTERNAL[1], "0", "95"],
        ["app", "t", "0", "70"],
        ["app", "t", "1", "95"],
    ]
    rows = ottla("streams-groups", "--describe", "--group", "app", "--offsets", "--verbose").lines
    assert rows[2].split() == ["app", "t", "0", "30", "-", "100", "70"]
    (document,) = json.loads(ottla("streams-groups", "--describe", "--group", "app", "--json").out)
    assert document["partitions"][1]["offsetLag"] == 70


def test_describe_prints_members_with_their_tasks(streams: StreamsGroups, ottla: Ottla) -> None:
    streams.start()
    heading, row = ottla("streams-groups", "--describe", "--group", "app", "--members").lines
    assert heading.split() == ["GROUP", "MEMBER", "PROCESS", "CLIENT-ID", "ASSIGNMENTS"]
    assert row.endswith("client          ACTIVE: 0:[0,1]; 1:[0]; STANDBY: 1:[1]; ")
    _, row = ottla("streams-groups", "--describe", "--group", "app", "--members", "--verbose").lines
    assert row.split()[:5] == ["app", "3", "0", "m", "streams"]
    assert row.endswith("STANDBY: 1:[1]; TARGET-ACTIVE: 0:[0]; ")


def test_describe_prints_states(streams: StreamsGroups, ottla: Ottla) -> None:
    streams.start()
    _, row = ottla("streams-groups", "--describe", "--group", "app", "--state", "--verbose").lines
    assert row.split()[-4:] == ["Stable", "4", "3", "1"]


@pytest.mark.usefixtures("streams")
def test_missing_group_is_an_error(ottla: Ottla) -> None:
    outcome = ottla("streams-groups", "--describe", "--group", "nobody")
    assert (outcome.code, "Group nobody not found" in outcome.err) == (1, True)


def test_group_without_members_is_deleted_with_its_internal_topics(
    broker: FakeBroker, streams: StreamsGroups, ottla: Ottla
) -> None:
    streams.missing_topics = {INTERNAL[0]}
    outcome = ottla("streams-groups", "--delete", "--group", "app", "--delete-all-internal-topics")
    assert outcome.lines == [
        "Deletion of requested streams groups ('app') was successful.",
        f"Deleted internal topic '{INTERNAL[1]}'.",
    ]
    assert outcome.err == f"Internal topic '{INTERNAL[0]}' does not exist.\n"
    (request,) = broker.received(DeleteTopicsRequest)
    assert [topic.name for topic in request.topics] == INTERNAL


def test_topic_of_another_name_is_not_deleted(broker: FakeBroker, streams: StreamsGroups, ottla: Ottla) -> None:
    streams.changelog = "precious"
    outcome = ottla("streams-groups", "--delete", "--group", "app", "--delete-all-internal-topics")
    assert "Topic 'precious' is no internal topic of group 'app' by its name, and stays." in outcome.err
    (request,) = broker.received(DeleteTopicsRequest)
    assert [topic.name for topic in request.topics] == [INTERNAL[1]]


def test_group_with_members_is_not_deleted(broker: FakeBroker, streams: StreamsGroups, ottla: Ottla) -> None:
    streams.start()
    outcome = ottla("streams-groups", "--delete", "--group", "app", "--delete-all-internal-topics")
    assert (outcome.code, broker.received(DeleteTopicsRequest)) == (1, [])
    assert "Deletion of some streams groups failed" in outcome.err


def test_reset_commits_offsets_of_input_topics(broker: FakeBroker, streams: StreamsGroups, ottla: Ottla) -> None:
    arguments = ("--group", "app", "--reset-offsets", "--all-input-topics", "--to-earliest")
    outcome = ottla("streams-groups", *arguments, "--execute", "--delete-internal-topic", INTERNAL[1])
    assert outcome.lines[2].split() == ["app", "t", "0", "5"]
    (request,) = broker.received(OffsetCommitRequest)
    assert [(topic.name, [each.partition_index for each in topic.partitions]) for topic in request.topics] == [
        ("t", [0])
    ]
    assert [topic.name for topic in broker.received(DeleteTopicsRequest)[0].topics] == [INTERNAL[1]]


def test_dry_run_commits_no_offsets(broker: FakeBroker, streams: StreamsGroups, ottla: Ottla) -> None:
    outcome = ottla("streams-groups", "--group", "app", "--reset-offsets", "--input-topic", "t:0", "--shift-by", "-3")
    assert [line.split()[1:] for line in outcome.lines[2:]] == [["t", "0", "27"]]
    assert broker.received(OffsetCommitRequest) == []


def test_offsets_of_a_running_application_are_not_reset(streams: StreamsGroups, ottla: Ottla) -> None:
    streams.start()
    outcome = ottla("streams-groups", "--group", "app", "--reset-offsets", "--all-input-topics", "--to-latest")
    assert (outcome.code, "the current state is Stable" in outcome.err) == (1, True)


@pytest.mark.usefixtures("streams")
def test_offsets_of_another_kind_of_group_are_not_reset(ottla: Ottla) -> None:
    outcome = ottla("streams-groups", "--group", "g", "--reset-offsets", "--input-topic", "t", "--to-latest")
    assert (outcome.code, "There is no streams group 'g'" in outcome.err) == (1, True)


def test_offsets_are_deleted(broker: FakeBroker, streams: StreamsGroups, ottla: Ottla) -> None:
    outcome = ottla("streams-groups", "--group", "app", "--delete-offsets", "--all-input-topics")
    assert outcome.lines[0] == "Request succeeded for deleting offsets from group app."
    (request,) = broker.received(OffsetDeleteRequest)
    assert [(topic.name, [each.partition_index for each in topic.partitions]) for topic in request.topics] == [
        ("t", [0])
    ]


@pytest.mark.usefixtures("streams")
@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (("--reset-offsets", "--group", "app", "--to-latest"), "needs either --input-topic or --all-input-topics"),
        (("--delete-offsets", "--group", "app"), "needs either --input-topic or --all-input-topics"),
        (("--delete-offsets", "--all-groups", "--input-topic", "t"), "needs one --group"),
        (("--describe",), "needs --group or --all-groups"),
        (("--list", "--execute"), "--execute requires --reset-offsets"),
        (
            ("--reset-offsets", "--group", "app", "--to-latest", "--input-topic", "t", "--delete-all-internal-topics"),
            "--delete-all-internal-topics requires --execute",
        ),
    ],
)
def test_wrong_options_are_refused(ottla: Ottla, arguments: tuple[str, ...], text: str) -> None:
    outcome = ottla("streams-groups", *arguments)
    assert (outcome.code, text in outcome.err) == (2, True), outcome.err
