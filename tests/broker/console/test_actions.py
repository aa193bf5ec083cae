"""Actions: requests in the node's own path, and offsets at the coordinator."""

from typing import Any

import pytest

from broker.api.pipeline.permission import AclOperation, AclResourceType
from broker.console.actions import Actions
from broker.console.answers import SharedAnswers
from broker.console.groups import GroupViews
from broker.console.request import ConsoleError, Json
from broker.console.topic_index import TopicIndex
from broker.console.topics import TopicViews
from protocol.api_keys import ApiKey
from protocol.errors import ErrorCode
from protocol.messages import (
    create_partitions,
    create_topics,
    delete_topics,
    elect_leaders,
    incremental_alter_configs,
    list_offsets,
    offset_commit,
)
from tests.broker.metadata.images import image_with
from tests.support.fakes.fake_authorizer import GrantedPermissions
from tests.support.harnesses.console_harness import ALICE, ConsoleHarness, asked

RIGHTS = [
    (ALICE, AclOperation.READ, AclResourceType.GROUP, "billing"),
    (ALICE, AclOperation.READ, AclResourceType.TOPIC, "a"),
]


class Own:
    """Actions on a cluster of two brokers; partitions of topic "a" have the offsets 5 to 50."""

    def __init__(self, authorizer: GrantedPermissions | None = None) -> None:
        image = image_with(topics={"a": 2, "__consumer_offsets": 1}, brokers=(1, 2))
        self.harness = ConsoleHarness(image, authorizer)
        cluster = self.harness.cluster
        shared = SharedAnswers(self.harness.clock.monotonic_ms, 1_000)
        topics = TopicViews(cluster, TopicIndex(self.harness.node.image, lambda image, topic: 1), shared)
        self.actions = Actions(cluster, GroupViews(cluster, topics, shared))
        self.code = ErrorCode.NONE
        self.committed: list[tuple[str, int, int]] = []
        self.harness.nodes.answers[list_offsets.ListOffsetsRequest] = self._offsets
        self.harness.nodes.answers[offset_commit.OffsetCommitRequest] = self._commit

    def _offsets(self, node: int, request: Any) -> list_offsets.ListOffsetsResponse:
        def offset(timestamp: int) -> int:
            return {-2: 5, -1: 50}.get(timestamp, timestamp if timestamp < 50 else -1)

        parts = [
            list_offsets.ListOffsetsPartitionResponse(each.partition_index, offset=offset(each.timestamp))
            for each in request.topics[0].partitions
        ]
        return list_offsets.ListOffsetsResponse(topics=[list_offsets.ListOffsetsTopicResponse("a", parts)])

    def _commit(self, node: int, request: Any) -> offset_commit.OffsetCommitResponse:
        topic = request.topics[0]
        self.committed += [(topic.name, each.partition_index, each.committed_offset) for each in topic.partitions]
        parts = [
            offset_commit.OffsetCommitResponsePartition(each.partition_index, self.code) for each in topic.partitions
        ]
        return offset_commit.OffsetCommitResponse(
            topics=[offset_commit.OffsetCommitResponseTopic("a", partitions=parts)]
        )

    async def run(self, action: str, /, **body: Any) -> Json:
        return await self.actions.by_name[action](asked(body=body))


async def test_topic_is_created_by_the_principal() -> None:
    own = Own()
    own.harness.own[create_topics.CreateTopicsRequest] = lambda request: create_topics.CreateTopicsResponse(
        topics=[create_topics.CreatableTopicResult(request.topics[0].name)]
    )
    answer = await own.run("create-topic", name="t", partitions=3, configs={"retention.ms": "7"})
    assert answer["message"] == 'Topic "t" is created.'
    ((principal, request),) = own.harness.submitted
    assert principal == ALICE
    assert isinstance(request, create_topics.CreateTopicsRequest)
    (topic,) = request.topics
    assert (topic.name, topic.num_partitions, topic.replication_factor) == ("t", 3, -1)
    assert [(each.name, each.value) for each in topic.configs] == [("retention.ms", "7")]


async def test_refusal_of_the_node_is_a_sentence() -> None:
    own = Own()
    own.harness.own[delete_topics.DeleteTopicsRequest] = lambda request: delete_topics.DeleteTopicsResponse(
        responses=[delete_topics.DeletableTopicResult("t", error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED)]
    )
    with pytest.raises(ConsoleError, match=r'Topic "t": .* \(TOPIC_AUTHORIZATION_FAILED\)') as refused:
        await own.run("delete-topic", name="t")
    assert refused.value.status == 403


async def test_partitions_are_added() -> None:
    own = Own()
    own.harness.own[create_partitions.CreatePartitionsRequest] = lambda request: (
        create_partitions.CreatePartitionsResponse(results=[create_partitions.CreatePartitionsTopicResult("a")])
    )
    assert (await own.run("create-partitions", name="a", count=4))["message"] == 'Topic "a" has 4 partitions.'


async def test_configs_are_set_and_deleted() -> None:
    own = Own()
    own.harness.own[incremental_alter_configs.IncrementalAlterConfigsRequest] = lambda request: (
        incremental_alter_configs.IncrementalAlterConfigsResponse(
            responses=[incremental_alter_configs.AlterConfigsResourceResponse(resource_name="a")]
        )
    )
    await own.run("alter-configs", resource="topic", name="a", set={"k": "v"}, delete=["x"])
    ((_, request),) = own.harness.submitted
    assert isinstance(request, incremental_alter_configs.IncrementalAlterConfigsRequest)
    (resource,) = request.resources
    assert [(each.name, each.config_operation, each.value) for each in resource.configs] == [
        ("k", 0, "v"),
        ("x", 1, None),
    ]
    with pytest.raises(ConsoleError, match="Nothing is to be set"):
        await own.run("alter-configs", resource="topic", name="a")


async def test_elections_count_the_elected_leaders() -> None:
    own = Own()
    results = [
        elect_leaders.PartitionResult(0, ErrorCode.NONE),
        elect_leaders.PartitionResult(1, ErrorCode.ELECTION_NOT_NEEDED),
    ]
    own.harness.own[elect_leaders.ElectLeadersRequest] = lambda request: elect_leaders.ElectLeadersResponse(
        replica_election_results=[elect_leaders.ReplicaElectionResult("a", results)]
    )
    partitions = [{"topic": "a", "partition": index} for index in (1, 0)]
    assert (await own.run("elect-leaders", kind="preferred", partitions=partitions))["message"] == "1 leader elected."


@pytest.mark.parametrize(
    ("to", "offsets"),
    [("earliest", 5), ("latest", 50), (7, 7), (0, 5), (99, 50), ("time:20", 20), ("time:999", 50)],
)
async def test_offsets_are_reset_within_the_log(to: object, offsets: int) -> None:
    own = Own()
    answer = await own.run("reset-offsets", group="billing", topic="a", to=to)
    assert own.committed == [("a", 0, offsets), ("a", 1, offsets)]
    assert answer["offsets"] == [{"partition": index, "offset": offsets} for index in (0, 1)]


async def test_reset_needs_the_rights_to_read_group_and_topic() -> None:
    authorizer = GrantedPermissions(RIGHTS)
    own = Own(authorizer)
    await own.run("reset-offsets", group="billing", topic="a", to="earliest", partitions=[1])
    assert own.committed == [("a", 1, 5)]
    assert own.harness.audit.decisions == [
        (ALICE, ApiKey.OFFSET_COMMIT, "billing", True),
        (ALICE, ApiKey.OFFSET_COMMIT, "a", True),
    ]
    for right in RIGHTS:
        authorizer.granted = set(RIGHTS) - {right}
        with pytest.raises(ConsoleError, match="not authorized") as refused:
            await own.run("reset-offsets", group="billing", topic="a", to="earliest")
        assert refused.value.status == 403
    assert len(own.committed) == 1


async def test_group_with_members_keeps_its_offsets() -> None:
    own = Own()
    own.code = ErrorCode.UNKNOWN_MEMBER_ID
    with pytest.raises(ConsoleError, match='Group "billing" has members; stop them') as refused:
        await own.run("reset-offsets", group="billing", topic="a", to="earliest")
    assert refused.value.status == 409


async def test_silent_leader_prevents_a_reset() -> None:
    own = Own()
    own.harness.nodes.silent.add(1)
    with pytest.raises(ConsoleError, match="The leader of partition a-0 does not answer"):
        await own.run("reset-offsets", group="billing", topic="a", to="earliest")
    assert own.committed == []


@pytest.mark.parametrize(
    ("action", "body", "sentence"),
    [
        ("create-topic", {}, '"name" must be a text'),
        ("create-topic", {"name": 7}, '"name" must be a text'),
        ("create-topic", {"name": "x" * 2_000}, '"name" must be a text'),
        ("create-topic", {"name": "t", "partitions": True}, '"partitions" must be a number'),
        ("create-topic", {"name": "t", "partitions": 10**9}, '"partitions" must be a number'),
        ("create-topic", {"name": "t", "configs": {"k": 7}}, '"configs" must be an object of texts'),
        ("create-partitions", {"name": "t", "count": 0}, '"count" must be a number'),
        ("alter-configs", {"resource": "user", "name": "x"}, '"resource" must be one of'),
        ("alter-configs", {"resource": "topic", "name": "a", "delete": [7]}, '"delete" must be a list of keys'),
        ("elect-leaders", {"kind": "fair"}, '"kind" must be one of'),
        ("elect-leaders", {"kind": "unclean", "partitions": [7]}, '"topic" must be a text'),
        ("elect-leaders", {"kind": "unclean", "partitions": {}}, '"partitions" must be a list'),
        ("reset-offsets", {"group": "g", "topic": "a", "to": "soon"}, '"to" must be "earliest"'),
        ("reset-offsets", {"group": "g", "topic": "a", "to": -1}, '"to" must be "earliest"'),
        ("reset-offsets", {"group": "g", "topic": "none", "to": "latest"}, "does not exist"),
        ("reset-offsets", {"group": "g", "topic": "a", "to": "latest", "partitions": [9]}, "a-9 does not exist"),
    ],
)
async def test_wrong_bodies_are_refused_before_anything_is_sent(action: str, body: Json, sentence: str) -> None:
    own = Own()
    with pytest.raises(ConsoleError, match=sentence) as refused:
        await own.run(action, **body)
    assert refused.value.status in (400, 404)
    assert (own.harness.submitted, own.committed) == ([], [])
