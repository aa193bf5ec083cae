"""CreateTopics, CreatePartitions and DeleteTopics: checks before the controller."""

import pytest

from broker.api.topics.create_partitions import CreatePartitionsHandler
from broker.api.topics.create_topics import CreateTopicsHandler
from broker.api.topics.delete_topics import DeleteTopicsHandler
from broker.metadata.image.quota_image import quota_entity, quota_record
from protocol.errors import ErrorCode, KafkaError
from protocol.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from protocol.primitives import ZERO_UUID, Uuid
from tests.broker.api.metadata_harness import LiveCluster, context
from tests.broker.metadata.images import uuid


@pytest.fixture
def cluster() -> LiveCluster:
    cluster = LiveCluster()
    cluster.start_brokers(1)
    return cluster


class TestCreateTopics:
    async def create(self, cluster: LiveCluster, *names: str) -> dict[str, ErrorCode]:
        request = CreateTopicsRequest([CreatableTopic(name, 1, 1) for name in names])
        response = await CreateTopicsHandler(cluster)(request, context(7))
        assert len(response.topics) == len(set(names))
        return {topic.name: ErrorCode(topic.error_code) for topic in response.topics}

    async def test_valid_topics_are_created(self, cluster: LiveCluster) -> None:
        assert await self.create(cluster, "a", "b") == {"a": ErrorCode.NONE, "b": ErrorCode.NONE}
        assert cluster.image.topics.names() == ["a", "b"]

    async def test_repeated_topic_is_refused(self, cluster: LiveCluster) -> None:
        assert await self.create(cluster, "a", "b", "a") == {"a": ErrorCode.INVALID_REQUEST, "b": ErrorCode.NONE}
        assert cluster.image.topics.names() == ["b"]

    async def test_metadata_topic_is_refused(self, cluster: LiveCluster) -> None:
        assert await self.create(cluster, "__cluster_metadata") == {"__cluster_metadata": ErrorCode.INVALID_REQUEST}

    async def test_validate_only_creates_nothing(self, cluster: LiveCluster) -> None:
        request = CreateTopicsRequest([CreatableTopic("a", 1, 1)], validate_only=True)
        response = await CreateTopicsHandler(cluster)(request, context(7))
        assert response.topics[0].error_code == ErrorCode.NONE
        assert cluster.image.topics.names() == []

    async def test_missing_active_controller_fails_every_topic(self, cluster: LiveCluster) -> None:
        cluster.is_active = False
        answers = await self.create(cluster, "a", "__cluster_metadata")
        assert answers == {"a": ErrorCode.NOT_CONTROLLER, "__cluster_metadata": ErrorCode.INVALID_REQUEST}

    async def test_too_large_request_fails_every_topic(self, cluster: LiveCluster) -> None:
        request = CreateTopicsRequest([CreatableTopic("a", 1, 1), CreatableTopic("b", 2**31 - 1, 1)])
        response = await CreateTopicsHandler(cluster)(request, context(7))
        assert [(each.name, each.num_partitions) for each in response.topics] == [("a", -1), ("b", -1)]
        assert {ErrorCode(each.error_code) for each in response.topics} == {ErrorCode.POLICY_VIOLATION}


class TestCreatePartitions:
    async def test_each_topic_has_its_own_result(self, cluster: LiveCluster) -> None:
        cluster.create_topic("a", [[1]])
        cluster.create_topic("b", [[1]])
        partition_counts = [CreatePartitionsTopic(*each, None) for each in (("a", 3), ("b", 2), ("b", 4), ("nope", 2))]
        response = await CreatePartitionsHandler(cluster)(CreatePartitionsRequest(partition_counts), context(3))
        assert {each.name: ErrorCode(each.error_code) for each in response.results} == {
            "a": ErrorCode.NONE,
            "b": ErrorCode.INVALID_REQUEST,
            "nope": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        }
        assert cluster.image.topics.partition_count == 4


class TestDeleteTopics:
    async def delete(
        self, cluster: LiveCluster, *states: DeleteTopicState, version: int = 6, enabled: bool = True
    ) -> list[tuple[str | None, Uuid, ErrorCode]]:
        request = DeleteTopicsRequest(topics=list(states))
        if version < 6:
            request = DeleteTopicsRequest(topic_names=[state.name or "" for state in states])
        response = await DeleteTopicsHandler(cluster, enabled=enabled)(request, context(version))
        return [(each.name, each.topic_id, ErrorCode(each.error_code)) for each in response.responses]

    @pytest.mark.parametrize("version", range(1, 7))
    async def test_topic_is_deleted_by_name(self, cluster: LiveCluster, version: int) -> None:
        topic_id = cluster.create_topic("a", [[1]])
        assert await self.delete(cluster, DeleteTopicState("a"), version=version) == [("a", topic_id, ErrorCode.NONE)]
        assert cluster.image.topics.names() == []

    async def test_topic_is_deleted_by_id(self, cluster: LiveCluster) -> None:
        topic_id = cluster.create_topic("a", [[1]])
        assert await self.delete(cluster, DeleteTopicState(None, topic_id)) == [("a", topic_id, ErrorCode.NONE)]

    async def test_unknown_topic_is_refused(self, cluster: LiveCluster) -> None:
        assert await self.delete(cluster, DeleteTopicState("a"), DeleteTopicState(None, uuid(99))) == [
            ("a", ZERO_UUID, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
            (None, uuid(99), ErrorCode.UNKNOWN_TOPIC_ID),
        ]

    async def test_ambiguous_requests_are_refused(self, cluster: LiveCluster) -> None:
        topic_id = cluster.create_topic("a", [[1]])
        for states in (
            [DeleteTopicState("a", topic_id)],
            [DeleteTopicState(None, ZERO_UUID)],
            [DeleteTopicState("a"), DeleteTopicState("a")],
            [DeleteTopicState("a"), DeleteTopicState(None, topic_id)],
        ):
            (answer,) = await self.delete(cluster, *states)
            assert answer[2] is ErrorCode.INVALID_REQUEST
        assert cluster.image.topics.names() == ["a"]

    @pytest.mark.parametrize(
        ("version", "code"), [(2, ErrorCode.INVALID_REQUEST), (3, ErrorCode.TOPIC_DELETION_DISABLED)]
    )
    async def test_disabled_deletion_is_refused(self, cluster: LiveCluster, version: int, code: ErrorCode) -> None:
        with pytest.raises(KafkaError) as caught:
            await self.delete(cluster, DeleteTopicState("a"), version=version, enabled=False)
        assert caught.value.code is code


class TestMutationQuota:
    """The controller mutation quota throttles and mutes clients that create too many partitions."""

    @pytest.fixture
    def limited(self, cluster: LiveCluster) -> LiveCluster:
        cluster.append([quota_record(quota_entity({"client-id": "client"}), "controller_mutation_rate", 1.0)])
        return cluster

    async def test_strict_versions_are_refused(self, limited: LiveCluster) -> None:
        request = CreateTopicsRequest([CreatableTopic("a", 21, 1), CreatableTopic("b", 1, 1)])
        client = context(6)
        response = await CreateTopicsHandler(limited)(request, client)
        codes = [ErrorCode(topic.error_code) for topic in response.topics]
        assert codes == [ErrorCode.NONE, ErrorCode.THROTTLING_QUOTA_EXCEEDED]
        assert (response.throttle_time_ms, client.connection.mute_ms) == (10_000, 10_000)

    async def test_older_versions_are_throttled_afterwards(self, limited: LiveCluster) -> None:
        client = context(5)
        response = await CreateTopicsHandler(limited)(CreateTopicsRequest([CreatableTopic("a", 12, 1)]), client)
        assert (response.topics[0].error_code, response.throttle_time_ms) == (0, 1_000)
        added = CreatePartitionsRequest([CreatePartitionsTopic("a", 13, None)])
        slowed = await CreatePartitionsHandler(limited)(added, context(2))
        assert (slowed.results[0].error_code, slowed.throttle_time_ms) == (0, 2_000)
        refused = await CreatePartitionsHandler(limited)(added, context(3))
        assert refused.throttle_time_ms == 0, "an unchanged partition count takes nothing from the quota"
        deleted = await DeleteTopicsHandler(limited, enabled=True)(DeleteTopicsRequest(topic_names=["a"]), context(5))
        assert ErrorCode(deleted.responses[0].error_code) is ErrorCode.THROTTLING_QUOTA_EXCEEDED
        assert deleted.throttle_time_ms == 2_000
