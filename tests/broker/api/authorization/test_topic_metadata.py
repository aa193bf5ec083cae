"""Permissions on metadata and administration of topics (KIP-11, KIP-430, KIP-525)."""

import pytest

from broker.api.cluster.describe_cluster import DescribeClusterHandler
from broker.api.pipeline.permission import AclOperation, AclResourceType
from broker.api.serving.authorized_operations import NOT_REQUESTED, operation_bits
from broker.api.serving.context import RequestContext
from broker.api.topics.create_partitions import CreatePartitionsHandler
from broker.api.topics.create_topics import CreateTopicsHandler
from broker.api.topics.delete_topics import DeleteTopicsHandler
from broker.api.topics.describe_topic_partitions import DescribeTopicPartitionsHandler
from broker.api.topics.metadata import MetadataHandler
from protocol.errors import ErrorCode
from protocol.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from protocol.messages.describe_cluster import DescribeClusterRequest
from protocol.messages.describe_topic_partitions import DescribeTopicPartitionsRequest, TopicRequest
from protocol.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from protocol.primitives import ZERO_UUID, Uuid
from tests.broker.api.metadata_harness import LiveCluster
from tests.broker.api.metadata_harness import context as any_context
from tests.broker.metadata.images import uuid
from tests.support.fakes.fake_authorizer import Grant, GrantedPermissions

DENIED, UNKNOWN = ErrorCode.TOPIC_AUTHORIZATION_FAILED, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
CLUSTER = "kafka-cluster"


def on(name: str, *operations: AclOperation) -> list[Grant]:
    kind = AclResourceType.CLUSTER if name == CLUSTER else AclResourceType.TOPIC
    return [("User:ANONYMOUS", operation, kind, name) for operation in operations]


def context(version: int, granted: list[Grant]) -> RequestContext:
    context = any_context(version)
    context.authorizer = GrantedPermissions(granted)
    return context


@pytest.fixture
def cluster() -> LiveCluster:
    cluster = LiveCluster()
    cluster.start_brokers(1)
    cluster.create_topic("a", [[1]])
    cluster.create_topic("b", [[1]])
    return cluster


class Creator:
    def __init__(self) -> None:
        self.requested: list[str] = []

    def request_topic(self, name: str) -> None:
        self.requested.append(name)


class TestMetadata:
    def ask(
        self,
        cluster: LiveCluster,
        topics: list[MetadataRequestTopic] | None,
        granted: list[Grant],
        *,
        creator: Creator | None = None,
        version: int = 12,
    ) -> MetadataResponse:
        handler = MetadataHandler(cluster, cluster, cluster_id="c", creator=creator)
        wants_cluster = version in range(8, 11)
        request = MetadataRequest(topics, True, wants_cluster, include_topic_authorized_operations=version >= 8)
        return handler(request, context(version, granted))

    def test_all_topics_means_those_that_may_be_described(self, cluster: LiveCluster) -> None:
        response = self.ask(cluster, None, on("b", AclOperation.DESCRIBE))
        assert [topic.name for topic in response.topics] == ["b"]

    def test_topic_by_name_hides_whether_it_exists(self, cluster: LiveCluster) -> None:
        asked = [MetadataRequestTopic(name=name) for name in ("a", "b", "absent")]
        creator = Creator()
        response = self.ask(cluster, asked, on("b", AclOperation.DESCRIBE), creator=creator)
        answered = [(t.name, t.error_code, t.topic_id == ZERO_UUID, len(t.partitions)) for t in response.topics]
        assert answered == [("a", DENIED, True, 0), ("b", 0, False, 1), ("absent", DENIED, True, 0)]
        assert response.topics[0].topic_authorized_operations == NOT_REQUESTED
        assert not creator.requested

    def test_topic_by_id_hides_its_name(self, cluster: LiveCluster) -> None:
        ids = [topic.id for name in "ab" if (topic := cluster.image.topics.by_name(name))]
        asked = [MetadataRequestTopic(topic_id=each, name=None) for each in (*ids, uuid(77))]
        response = self.ask(cluster, asked, on("b", AclOperation.DESCRIBE))
        assert [(topic.name, topic.topic_id, topic.error_code) for topic in response.topics] == [
            (None, ids[0], DENIED),
            ("b", ids[1], 0),
            (None, uuid(77), ErrorCode.UNKNOWN_TOPIC_ID),
        ]

    @pytest.mark.parametrize("resource", [None, CLUSTER, "absent"])
    def test_creation_on_first_use_needs_create(self, cluster: LiveCluster, resource: str | None) -> None:
        granted = on("absent", AclOperation.DESCRIBE) + ([] if resource is None else on(resource, AclOperation.CREATE))
        creator = Creator()
        response = self.ask(cluster, [MetadataRequestTopic(name="absent")], granted, creator=creator)
        assert response.topics[0].error_code == (DENIED if resource is None else UNKNOWN)
        assert creator.requested == ([] if resource is None else ["absent"])

    @pytest.mark.parametrize("version", [7, 8, 10, 11])
    def test_authorized_operations_are_told_when_asked_for(self, cluster: LiveCluster, version: int) -> None:
        may = (AclOperation.DESCRIBE, AclOperation.READ)
        granted = on("a", *may) + on(CLUSTER, AclOperation.DESCRIBE, AclOperation.CREATE)
        response = self.ask(cluster, [MetadataRequestTopic(name="a")], granted, version=version)
        of_cluster = operation_bits((AclOperation.DESCRIBE, AclOperation.CREATE))
        assert response.topics[0].topic_authorized_operations == (
            operation_bits(may) if version >= 8 else NOT_REQUESTED
        )
        assert response.cluster_authorized_operations == (of_cluster if version in range(8, 11) else NOT_REQUESTED)

    def test_operations_of_a_cluster_that_may_not_be_described_are_none(self, cluster: LiveCluster) -> None:
        granted = on(CLUSTER, AclOperation.CREATE)
        assert self.ask(cluster, [], granted, version=10).cluster_authorized_operations == 0
        handler = DescribeClusterHandler(cluster, cluster, cluster_id="c")
        asked = DescribeClusterRequest(include_cluster_authorized_operations=True)
        assert handler(asked, context(2, granted)).cluster_authorized_operations == 0


class TestDescribeTopicPartitions:
    def ask(self, cluster: LiveCluster, names: str, granted: list[Grant]) -> list[tuple[str | None, int, int]]:
        handler = DescribeTopicPartitionsHandler(cluster, partition_limit=100)
        request = DescribeTopicPartitionsRequest([TopicRequest(name) for name in names], 100)
        response = handler(request, context(0, granted))
        return [(each.name, each.error_code, each.topic_authorized_operations) for each in response.topics]

    def test_named_topics_are_refused_and_others_left_out(self, cluster: LiveCluster) -> None:
        granted = on("b", AclOperation.DESCRIBE)
        described = ("b", 0, operation_bits((AclOperation.DESCRIBE,)))
        assert self.ask(cluster, "", granted) == [described]
        assert self.ask(cluster, "abz", granted) == [
            described,
            ("a", DENIED, NOT_REQUESTED),
            ("z", DENIED, NOT_REQUESTED),
        ]


class TestCreateTopics:
    @pytest.mark.parametrize(
        ("granted", "expected"),
        [
            ([], {"x": DENIED, "y": DENIED}),
            (on("x", AclOperation.CREATE), {"x": 0, "y": DENIED}),
            (on(CLUSTER, AclOperation.CREATE), {"x": 0, "y": 0}),
        ],
        ids=["none", "one topic", "cluster"],
    )
    async def test_create_on_the_cluster_or_the_topic(
        self, cluster: LiveCluster, granted: list[Grant], expected: dict[str, int]
    ) -> None:
        request = CreateTopicsRequest([CreatableTopic(name, 1, 1) for name in "xy"])
        response = await CreateTopicsHandler(cluster)(request, context(7, granted))
        assert {topic.name: topic.error_code for topic in response.topics} == expected
        created = {name for name, code in expected.items() if not code}
        assert set(cluster.image.topics.names()) == {"a", "b"} | created

    async def test_configs_are_shown_to_those_who_may_describe_them(self, cluster: LiveCluster) -> None:
        granted = on(CLUSTER, AclOperation.CREATE) + on("y", AclOperation.DESCRIBE_CONFIGS)
        request = CreateTopicsRequest([CreatableTopic(name, 1, 1) for name in "xy"])
        response = await CreateTopicsHandler(cluster)(request, context(7, granted))
        hidden, shown = sorted(response.topics, key=lambda topic: topic.name)
        assert (hidden.topic_config_error_code, hidden.num_partitions, hidden.configs) == (DENIED, -1, None)
        assert (shown.topic_config_error_code, shown.num_partitions) == (0, 1)
        assert shown.configs


class TestDeleteTopics:
    async def ask(
        self, cluster: LiveCluster, states: list[DeleteTopicState], granted: list[Grant]
    ) -> set[tuple[str | None, Uuid, int]]:
        request = DeleteTopicsRequest(topics=states)
        response = await DeleteTopicsHandler(cluster, enabled=True)(request, context(6, granted))
        return {(each.name, each.topic_id, each.error_code) for each in response.responses}

    async def test_names_need_describe_and_delete(self, cluster: LiveCluster) -> None:
        granted = on("a", AclOperation.DELETE) + on("b", AclOperation.DESCRIBE) + on("z", AclOperation.DESCRIBE)
        answered = await self.ask(cluster, [DeleteTopicState(name) for name in ("a", "b", "z", "hidden")], granted)
        assert answered == {
            ("a", ZERO_UUID, DENIED),
            ("b", ZERO_UUID, DENIED),
            ("z", ZERO_UUID, UNKNOWN),
            ("hidden", ZERO_UUID, DENIED),
        }
        assert cluster.image.topics.names() == ["a", "b"]

    async def test_refused_id_shows_the_name_to_those_who_may_describe_it(self, cluster: LiveCluster) -> None:
        a, b = (topic.id for name in "ab" if (topic := cluster.image.topics.by_name(name)))
        states = [DeleteTopicState(None, each) for each in (a, b, uuid(77))]
        assert await self.ask(cluster, states, on("b", AclOperation.DESCRIBE)) == {
            (None, a, DENIED),
            ("b", b, DENIED),
            (None, uuid(77), ErrorCode.UNKNOWN_TOPIC_ID),
        }

    @pytest.mark.parametrize(
        "granted",
        [on("a", AclOperation.DESCRIBE, AclOperation.DELETE), on(CLUSTER, AclOperation.DELETE)],
        ids=["topic", "cluster"],
    )
    async def test_authorized_topic_is_deleted(self, cluster: LiveCluster, granted: list[Grant]) -> None:
        await self.ask(cluster, [DeleteTopicState("a")], granted)
        assert cluster.image.topics.names() == ["b"]


async def test_partitions_are_added_where_the_topic_may_be_altered(cluster: LiveCluster) -> None:
    request = CreatePartitionsRequest([CreatePartitionsTopic(name, 2, None) for name in ("a", "b", "absent")])
    response = await CreatePartitionsHandler(cluster)(request, context(3, on("b", AclOperation.ALTER)))
    assert {each.name: each.error_code for each in response.results} == {"a": DENIED, "b": 0, "absent": DENIED}
    assert cluster.image.topics.partition_count == 3
