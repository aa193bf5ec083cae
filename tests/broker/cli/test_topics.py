"""The command topics: requests, output and errors."""

import json
from collections.abc import Callable

import pytest

from protocol.api_keys import ApiKey
from protocol.errors import ErrorCode
from protocol.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopicResult,
)
from protocol.messages.create_topics import CreatableTopicResult, CreateTopicsRequest, CreateTopicsResponse
from protocol.messages.delete_topics import DeletableTopicResult, DeleteTopicsRequest, DeleteTopicsResponse
from protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
)
from protocol.messages.describe_topic_partitions import (
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    DescribeTopicPartitionsResponseCursor,
    DescribeTopicPartitionsResponsePartition,
    DescribeTopicPartitionsResponseTopic,
)
from protocol.messages.list_partition_reassignments import (
    ListPartitionReassignmentsResponse,
    OngoingPartitionReassignment,
    OngoingTopicReassignment,
)
from protocol.primitives import uuid_to_text
from tests.broker.cli.conftest import Ottla
from tests.support.fakes.fake_broker import FakeBroker, topic_id

Partition = DescribeTopicPartitionsResponsePartition


def _created(code: ErrorCode = ErrorCode.NONE, message: str | None = None) -> CreateTopicsResponse:
    return CreateTopicsResponse(topics=[CreatableTopicResult(name="t", error_code=code, error_message=message)])


def _deleted(request: DeleteTopicsRequest) -> DeleteTopicsResponse:
    names = [topic.name for topic in request.topics] or list(request.topic_names)
    return DeleteTopicsResponse(responses=[DeletableTopicResult(name=name) for name in names])


@pytest.fixture
def described(broker: FakeBroker) -> Callable[[list[Partition]], None]:
    """A broker with a topic `t` of the given partitions and a dynamic config retention.ms."""

    def configs(request: DescribeConfigsRequest) -> DescribeConfigsResponse:
        entries = [
            DescribeConfigsResourceResult("min.insync.replicas", "2", config_source=4),
            DescribeConfigsResourceResult("retention.ms", "5", config_source=1),
            DescribeConfigsResourceResult("segment.bytes", "7", config_source=5),
        ]
        return DescribeConfigsResponse(
            results=[
                DescribeConfigsResult(resource_type=2, resource_name=resource.resource_name, configs=entries)
                for resource in request.resources
            ]
        )

    def make(partitions: list[Partition]) -> None:
        broker.topics = {"t": len(partitions)}
        topic = DescribeTopicPartitionsResponseTopic(name="t", topic_id=topic_id("t"), partitions=partitions)
        broker.answer(ApiKey.DESCRIBE_TOPIC_PARTITIONS, lambda _: DescribeTopicPartitionsResponse(topics=[topic]))
        broker.answer(ApiKey.DESCRIBE_CONFIGS, configs)

    return make


def _partition(index: int, *, leader: int = 1, replicas: int = 3, isr: int = 3) -> Partition:
    return Partition(
        partition_index=index,
        leader_id=leader,
        replica_nodes=list(range(1, replicas + 1)),
        isr_nodes=list(range(1, isr + 1)),
        eligible_leader_replicas=[],
        last_known_elr=[],
    )


def test_create_sends_the_topic(broker: FakeBroker, ottla: Ottla) -> None:
    broker.answer(ApiKey.CREATE_TOPICS, lambda _: _created())
    arguments = ["--partitions", "3", "--replication-factor", "2", "--config", "a=b=c", "--config", "d="]
    outcome = ottla("topics", "--create", "--topic", "t", *arguments)
    assert outcome == (0, "Created topic t.\n", "")
    topic = broker.received(CreateTopicsRequest)[0].topics[0]
    assert (topic.name, topic.num_partitions, topic.replication_factor) == ("t", 3, 2)
    assert [(config.name, config.value) for config in topic.configs] == [("a", "b=c"), ("d", "")]


def test_create_uses_the_brokers_defaults(broker: FakeBroker, ottla: Ottla) -> None:
    broker.answer(ApiKey.CREATE_TOPICS, lambda _: _created())
    ottla("topics", "--create", "--topic", "t")
    topic = broker.received(CreateTopicsRequest)[0].topics[0]
    assert (topic.num_partitions, topic.replication_factor) == (-1, -1)


def test_create_sends_the_assignment(broker: FakeBroker, ottla: Ottla) -> None:
    broker.answer(ApiKey.CREATE_TOPICS, lambda _: _created())
    ottla("topics", "--create", "--topic", "t", "--replica-assignment", "1:2,2:3")
    topic = broker.received(CreateTopicsRequest)[0].topics[0]
    assert [(a.partition_index, a.broker_ids) for a in topic.assignments] == [(0, [1, 2]), (1, [2, 3])]


def test_create_warns_of_colliding_names(broker: FakeBroker, ottla: Ottla) -> None:
    broker.answer(ApiKey.CREATE_TOPICS, lambda _: _created())
    assert "could collide" in ottla("topics", "--create", "--topic", "a.b").err


def test_brokers_error_message_is_printed(broker: FakeBroker, ottla: Ottla) -> None:
    broker.answer(ApiKey.CREATE_TOPICS, lambda _: _created(ErrorCode.INVALID_PARTITIONS, "Too many for me."))
    assert ottla("topics", "--create", "--topic", "t") == (1, "", "Error: Too many for me.\n")


def test_error_code_without_message_is_printed_by_its_meaning(broker: FakeBroker, ottla: Ottla) -> None:
    broker.answer(ApiKey.CREATE_TOPICS, lambda _: _created(ErrorCode.INVALID_PARTITIONS))
    assert ottla("topics", "--create", "--topic", "t").err == (
        f"Error: topic 't': {ErrorCode.INVALID_PARTITIONS.message}\n"
    )


def test_if_not_exists_ignores_an_existing_topic(broker: FakeBroker, ottla: Ottla) -> None:
    broker.answer(ApiKey.CREATE_TOPICS, lambda _: _created(ErrorCode.TOPIC_ALREADY_EXISTS, "There is one."))
    assert ottla("topics", "--create", "--topic", "t").code == 1
    assert ottla("topics", "--create", "--topic", "t", "--if-not-exists") == (0, "", "")


def test_list_prints_names(broker: FakeBroker, ottla: Ottla) -> None:
    broker.topics = {"b": 1, "__i": 1, "a": 2}
    broker.internal = {"__i"}
    assert ottla("topics", "--list").lines == ["__i", "a", "b"]
    assert ottla("topics", "--list", "--exclude-internal").lines == ["a", "b"]
    assert ottla("topics", "--list", "--topic", "a|b").lines == ["a", "b"]
    assert ottla("topics", "--list", "--topic", "a,nosuch").lines == ["a"]
    assert ottla("topics", "--list", "--topic", "nosuch") == (0, "", "")


def test_list_as_json(broker: FakeBroker, ottla: Ottla) -> None:
    broker.topics = {"a": 2}
    assert json.loads(ottla("topics", "--list", "--json").out) == [
        {"name": "a", "topicId": uuid_to_text(topic_id("a")), "internal": False}
    ]


def test_invalid_pattern_is_reported(broker: FakeBroker, ottla: Ottla) -> None:
    outcome = ottla("topics", "--list", "--topic", "a(")
    assert outcome.code == 1
    assert "'a(' is not a regular expression" in outcome.err


def test_delete(broker: FakeBroker, ottla: Ottla) -> None:
    broker.topics = {"t1": 1, "t2": 1, "u": 1}
    broker.answer(ApiKey.DELETE_TOPICS, _deleted)
    assert ottla("topics", "--delete", "--topic", "t.*") == (0, "", "")
    assert [topic.name for topic in broker.received(DeleteTopicsRequest)[0].topics] == ["t1", "t2"]


def test_delete_uses_names_at_an_old_broker(broker: FakeBroker, ottla: Ottla) -> None:
    broker.topics = {"t": 1}
    broker.answer(ApiKey.DELETE_TOPICS, _deleted, versions=(1, 5))
    assert ottla("topics", "--delete", "--topic", "t").code == 0
    assert broker.received(DeleteTopicsRequest)[0].topic_names == ["t"]


@pytest.mark.parametrize("action", ["--delete", "--describe"])
def test_missing_topic_fails_unless_if_exists(action: str, broker: FakeBroker, ottla: Ottla) -> None:
    assert ottla("topics", action, "--topic", "nosuch") == (
        1,
        "",
        "Error: Topic 'nosuch' does not exist as expected; `ottla topics --list` shows the topics.\n",
    )
    assert ottla("topics", action, "--topic", "nosuch", "--if-exists") == (0, "", "")


def test_alter_assigns_only_new_partitions(broker: FakeBroker, ottla: Ottla) -> None:
    broker.topics = {"t": 2}
    done = CreatePartitionsResponse(results=[CreatePartitionsTopicResult("t")])
    broker.answer(ApiKey.CREATE_PARTITIONS, lambda _: done)
    arguments = ["--partitions", "4", "--replica-assignment", "1,1,2,3"]
    assert ottla("topics", "--alter", "--topic", "t", *arguments) == (0, "", "")
    topic = broker.received(CreatePartitionsRequest)[0].topics[0]
    assert (topic.name, topic.count) == ("t", 4)
    assert [assignment.broker_ids for assignment in topic.assignments or []] == [[2], [3]]


def test_refused_alter_prints_the_brokers_message(broker: FakeBroker, ottla: Ottla) -> None:
    broker.topics = {"t": 2}
    refused = CreatePartitionsTopicResult("t", ErrorCode.INVALID_PARTITIONS, "That would not be an increase.")
    broker.answer(ApiKey.CREATE_PARTITIONS, lambda _: CreatePartitionsResponse(results=[refused]))
    outcome = ottla("topics", "--alter", "--topic", "t", "--partitions", "1")
    assert outcome == (1, "", "Error: That would not be an increase.\n")


def test_describe(described: Callable[[list[Partition]], None], ottla: Ottla) -> None:
    described([_partition(0), _partition(1, leader=-1, isr=1)])
    assert ottla("topics", "--describe", "--topic", "t").lines == [
        f"Topic: t\tTopicId: {uuid_to_text(topic_id('t'))}\tPartitionCount: 2\tReplicationFactor: 3"
        "\tConfigs: min.insync.replicas=2,retention.ms=5",
        "\tTopic: t\tPartition: 0\tLeader: 1\tReplicas: 1,2,3\tIsr: 1,2,3\tElr: \tLastKnownElr: ",
        "\tTopic: t\tPartition: 1\tLeader: none\tReplicas: 1,2,3\tIsr: 1\tElr: \tLastKnownElr: ",
    ]


@pytest.mark.parametrize(
    ("option", "shown"),
    [
        ("--under-replicated-partitions", [1, 2]),
        ("--unavailable-partitions", [3]),
        ("--under-min-isr-partitions", [2]),
        ("--at-min-isr-partitions", [1]),
    ],
)
def test_describe_filters_partitions(
    option: str, shown: list[int], described: Callable[[list[Partition]], None], ottla: Ottla
) -> None:
    described([_partition(0), _partition(1, isr=2), _partition(2, isr=1), _partition(3, leader=9)])
    lines = ottla("topics", "--describe", option).lines
    assert [line.split("\t")[2] for line in lines] == [f"Partition: {index}" for index in shown]
    (document,) = json.loads(ottla("topics", "--describe", option, "--json").out)
    assert [partition["partition"] for partition in document["partitions"]] == shown
    assert document["partitionCount"] == 4


def test_describe_filters_topics_with_overrides(described: Callable[[list[Partition]], None], ottla: Ottla) -> None:
    described([_partition(0)])
    (line,) = ottla("topics", "--describe", "--topics-with-overrides").lines
    assert line.startswith("Topic: t\t")


def test_describe_selects_by_topic_id(described: Callable[[list[Partition]], None], ottla: Ottla) -> None:
    described([_partition(0)])
    assert ottla("topics", "--describe", "--topic-id", uuid_to_text(topic_id("t"))).code == 0
    assert ottla("topics", "--describe", "--topic-id", uuid_to_text(topic_id("u"))).code == 1
    assert "22 base64 characters" in ottla("topics", "--describe", "--topic-id", "x").err


def test_describe_prints_replicas_of_reassignments(
    broker: FakeBroker, described: Callable[[list[Partition]], None], ottla: Ottla
) -> None:
    described([_partition(0)])
    moving = OngoingTopicReassignment("t", [OngoingPartitionReassignment(0, [1, 2], [4, 5], [2])])
    broker.answer(ApiKey.LIST_PARTITION_REASSIGNMENTS, lambda _: ListPartitionReassignmentsResponse(topics=[moving]))
    assert ottla("topics", "--describe").lines[1].endswith("\tAdding Replicas: 4,5\tRemoving Replicas: 2")


def test_describe_continues_from_the_cursor(
    broker: FakeBroker, described: Callable[[list[Partition]], None], ottla: Ottla
) -> None:
    described([_partition(index) for index in range(3)])

    def page(request: DescribeTopicPartitionsRequest) -> DescribeTopicPartitionsResponse:
        first = 0 if request.cursor is None else request.cursor.partition_index
        assert request.response_partition_limit == 1
        topic = DescribeTopicPartitionsResponseTopic(name="t", topic_id=topic_id("t"), partitions=[_partition(first)])
        cursor = DescribeTopicPartitionsResponseCursor("t", first + 1) if first < 2 else None
        return DescribeTopicPartitionsResponse(topics=[topic], next_cursor=cursor)

    broker.answer(ApiKey.DESCRIBE_TOPIC_PARTITIONS, page)
    lines = ottla("topics", "--describe", "--partition-size-limit-per-response", "1").lines
    assert [line.split("\t")[2] for line in lines[1:]] == ["Partition: 0", "Partition: 1", "Partition: 2"]


def test_describe_falls_back_to_metadata(broker: FakeBroker, ottla: Ottla) -> None:
    broker.topics = {"t": 1}
    broker.answer(
        ApiKey.DESCRIBE_CONFIGS,
        lambda _: DescribeConfigsResponse(results=[DescribeConfigsResult(resource_type=2, resource_name="t")]),
    )
    assert ottla("topics", "--describe").lines[1].endswith("Isr: 1\tElr: N/A\tLastKnownElr: N/A")


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["--list", "--create"],
        ["--create"],
        ["--delete"],
        ["--alter", "--topic", "t"],
        ["--create", "--topic", "t", "--partitions", "0"],
        ["--create", "--topic", "t", "--partitions", "1", "--replica-assignment", "1"],
        ["--create", "--topic", "t", "--replica-assignment", "1:1"],
        ["--create", "--topic", "t", "--replica-assignment", "1:2,1"],
        ["--create", "--topic", "t", "--replica-assignment", "a"],
        ["--create", "--topic", "t", "--config", "x"],
        ["--list", "--config", "a=b"],
        ["--list", "--partitions", "1"],
        ["--list", "--under-replicated-partitions"],
        ["--list", "--topic-id", "x"],
        ["--list", "extra"],
    ],
)
def test_wrong_usage_is_refused(arguments: list[str], ottla: Ottla) -> None:
    outcome = ottla("topics", *arguments)
    assert outcome.code == 2
    assert outcome.err.startswith("Usage: ottla topics")
