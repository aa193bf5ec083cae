"""CreateTopics, CreatePartitions and DeleteTopics in the controller: every check and its error code."""

from collections.abc import Sequence

import pytest

from broker.metadata.controller.result import MAX_RECORDS_PER_BATCH, ControllerResult, PartialResult
from broker.metadata.image.config_image import ConfigResource, ResourceType, config_record
from broker.metadata.image.partition import UNASSIGNED_DIRECTORY
from protocol.errors import ErrorCode, KafkaError
from protocol.messages.create_partitions import (
    CreatePartitionsAssignment,
    CreatePartitionsRequest,
    CreatePartitionsTopic,
    CreatePartitionsTopicResult,
)
from protocol.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreatableTopicResult,
    CreateTopicsRequest,
)
from protocol.primitives import ONE_UUID, ZERO_UUID, Uuid
from tests.broker.metadata.images import Cluster, directory_of, uuid


@pytest.fixture
def cluster() -> Cluster:
    cluster = Cluster()
    cluster.start_brokers(1, 2, 3)
    return cluster


def create(cluster: Cluster, *topics: CreatableTopic, validate_only: bool = False) -> list[CreatableTopicResult]:
    request = CreateTopicsRequest(list(topics), validate_only=validate_only)
    return cluster.write(cluster.controller.create_topics(request)).topics


def codes(results: Sequence[CreatableTopicResult | CreatePartitionsTopicResult]) -> list[ErrorCode]:
    return [ErrorCode(result.error_code) for result in results]


def assigned(name: str, *lists: Sequence[int], start: int = 0) -> CreatableTopic:
    return CreatableTopic(
        name, -1, -1, [CreatableReplicaAssignment(index, list(each)) for index, each in enumerate(lists, start)]
    )


class TestCreate:
    def test_controller_places_replicas(self, cluster: Cluster) -> None:
        (result,) = create(cluster, CreatableTopic("t", 4, 2))
        topic = cluster.image.topics.by_name("t")
        assert topic is not None
        assert cluster.image.topics.by_id(topic.id) is topic
        assert (result.topic_id, result.num_partitions, result.replication_factor) == (topic.id, 4, 2)
        assert sorted(topic.partitions) == [0, 1, 2, 3]
        for partition in topic.partitions.values():
            assert len(set(partition.replicas)) == 2
            assert partition.isr == partition.replicas
            assert partition.leader == partition.replicas[0]
            assert (partition.leader_epoch, partition.partition_epoch) == (0, 0)
            assert partition.directories == tuple(directory_of(broker) for broker in partition.replicas)

    def test_minus_one_uses_cluster_defaults(self, cluster: Cluster) -> None:
        (result,) = create(cluster, CreatableTopic("t", -1, -1))
        assert (result.num_partitions, result.replication_factor) == (1, 1)

    def test_response_has_effective_configs(self, cluster: Cluster) -> None:
        topic = CreatableTopic("t", 1, 1, configs=[CreatableTopicConfig("cleanup.policy", "compact")])
        (result,) = create(cluster, topic)
        assert result.configs is not None
        assert ("cleanup.policy", "compact") in [(each.name, each.value) for each in result.configs]
        assert dict(cluster.image.configs.topic("t")) == {"cleanup.policy": "compact"}

    def test_pinned_defaults_are_stored_at_creation(self, cluster: Cluster) -> None:
        create(cluster, CreatableTopic("settled", 1, 1, configs=[CreatableTopicConfig("cleanup.policy", "compact")]))
        assert dict(cluster.image.configs.topic("settled")) == {"cleanup.policy": "compact", "default": "kept"}

    def test_configs_are_hidden_without_authorization(self, cluster: Cluster) -> None:
        result = cluster.controller.create_topics(
            CreateTopicsRequest([CreatableTopic("t", 1, 1)]), may_describe=lambda _name: False
        )
        assert isinstance(result, ControllerResult)
        (topic,) = result.response.topics
        assert (topic.topic_config_error_code, topic.configs) == (ErrorCode.TOPIC_AUTHORIZATION_FAILED, None)
        assert topic.error_code == ErrorCode.NONE

    def test_validate_only_responds_alike_and_writes_nothing(self, cluster: Cluster) -> None:
        results = create(cluster, CreatableTopic("t", 2, 1), CreatableTopic("..", 1, 1), validate_only=True)
        assert codes(results) == [ErrorCode.NONE, ErrorCode.INVALID_TOPIC_EXCEPTION]
        assert cluster.image.topics.names() == []

    @pytest.mark.parametrize(
        ("topic", "code"),
        [
            (CreatableTopic("", 1, 1), ErrorCode.INVALID_TOPIC_EXCEPTION),
            (CreatableTopic(".", 1, 1), ErrorCode.INVALID_TOPIC_EXCEPTION),
            (CreatableTopic("..", 1, 1), ErrorCode.INVALID_TOPIC_EXCEPTION),
            (CreatableTopic("../x", 1, 1), ErrorCode.INVALID_TOPIC_EXCEPTION),
            (CreatableTopic("ä", 1, 1), ErrorCode.INVALID_TOPIC_EXCEPTION),
            (CreatableTopic("t\n", 1, 1), ErrorCode.INVALID_TOPIC_EXCEPTION),
            (CreatableTopic("a" * 250, 1, 1), ErrorCode.INVALID_TOPIC_EXCEPTION),
            (CreatableTopic("a" * 249, 1, 1), ErrorCode.NONE),
            (CreatableTopic("old", 1, 1), ErrorCode.TOPIC_ALREADY_EXISTS),
            (CreatableTopic("old_topic", 1, 1), ErrorCode.INVALID_TOPIC_EXCEPTION),
            (CreatableTopic("t", 0, 1), ErrorCode.INVALID_PARTITIONS),
            (CreatableTopic("t", -2, 1), ErrorCode.INVALID_PARTITIONS),
            (CreatableTopic("t", 1, 0), ErrorCode.INVALID_REPLICATION_FACTOR),
            (CreatableTopic("t", 0, 0), ErrorCode.INVALID_REPLICATION_FACTOR),
            (CreatableTopic("t", 1, 4), ErrorCode.INVALID_REPLICATION_FACTOR),
            (CreatableTopic("t", 1, 1, configs=[CreatableTopicConfig("k", None)]), ErrorCode.INVALID_CONFIG),
            (CreatableTopic("t", 1, 1, configs=[CreatableTopicConfig("k", "bad")]), ErrorCode.INVALID_CONFIG),
            (assigned("t", [1, 2], [2, 3]), ErrorCode.NONE),
            (CreatableTopic("t", 1, -1, [CreatableReplicaAssignment(0, [1])]), ErrorCode.INVALID_REQUEST),
            (CreatableTopic("t", -1, 1, [CreatableReplicaAssignment(0, [1])]), ErrorCode.INVALID_REQUEST),
            (assigned("t", []), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
            (assigned("t", [9]), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
            (assigned("t", [1, 1]), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
            (assigned("t", [1, 2], [3]), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
            (assigned("t", [1], start=1), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ],
    )
    def test_invalid_requests_are_refused(self, cluster: Cluster, topic: CreatableTopic, code: ErrorCode) -> None:
        cluster.create_topic("old", [[1]])
        cluster.create_topic("old.topic", [[1]])
        (result,) = create(cluster, topic)
        assert ErrorCode(result.error_code) is code
        assert (result.error_message is None) is (code is ErrorCode.NONE)

    def test_partition_assigned_twice_is_refused(self, cluster: Cluster) -> None:
        topic = assigned("t", [1])
        topic.assignments.append(CreatableReplicaAssignment(0, [2]))
        assert codes(create(cluster, topic)) == [ErrorCode.INVALID_REPLICA_ASSIGNMENT]

    def test_creation_needs_an_active_broker(self) -> None:
        cluster = Cluster()
        assert codes(create(cluster, CreatableTopic("t", 1, 1))) == [ErrorCode.INVALID_REPLICATION_FACTOR]
        cluster.register(1)
        assert codes(create(cluster, CreatableTopic("t", 1, 1))) == [ErrorCode.INVALID_REPLICATION_FACTOR]
        assert codes(create(cluster, assigned("t", [1]))) == [ErrorCode.INVALID_REPLICA_ASSIGNMENT]

    def test_fenced_brokers_hold_replicas_but_are_not_in_sync(self, cluster: Cluster) -> None:
        cluster.heartbeat(2, want_fence=True)
        create(cluster, assigned("t", [2, 3]))
        assert (cluster.partition("t").isr, cluster.partition("t").leader) == ((3,), 3)

    def test_topics_of_a_request_must_differ_in_metric_names(self, cluster: Cluster) -> None:
        results = create(cluster, CreatableTopic("a.b", 1, 1), CreatableTopic("a_b", 1, 1))
        assert codes(results) == [ErrorCode.NONE, ErrorCode.INVALID_TOPIC_EXCEPTION]

    def test_one_invalid_topic_does_not_affect_others(self, cluster: Cluster) -> None:
        results = create(cluster, CreatableTopic("bad name", 1, 1), CreatableTopic("good", 1, 1))
        assert codes(results) == [ErrorCode.INVALID_TOPIC_EXCEPTION, ErrorCode.NONE]
        assert cluster.image.topics.names() == ["good"]

    @pytest.mark.parametrize("counts", [[MAX_RECORDS_PER_BATCH + 1], [6_000, 6_000], [2**31 - 1]])
    def test_request_for_too_many_partitions_is_refused_at_once(self, cluster: Cluster, counts: list[int]) -> None:
        topics = [CreatableTopic(f"t{number}", count, 1) for number, count in enumerate(counts)]
        with pytest.raises(KafkaError) as caught:
            cluster.controller.create_topics(CreateTopicsRequest(topics, validate_only=True))
        assert caught.value.code is ErrorCode.POLICY_VIOLATION

    def test_request_larger_than_one_batch_is_refused(self, cluster: Cluster) -> None:
        request = CreateTopicsRequest([CreatableTopic("t", MAX_RECORDS_PER_BATCH, 1)], validate_only=True)
        with pytest.raises(KafkaError) as caught:
            cluster.controller.create_topics(request)
        assert caught.value.code is ErrorCode.POLICY_VIOLATION

    def test_many_partitions_are_created_and_deleted_in_parts(self, cluster: Cluster) -> None:
        topics = [CreatableTopic(f"t{number}", 4, 1) for number in range(250)]
        part = cluster.controller.create_topics(CreateTopicsRequest([*topics, CreatableTopic("a.b", 1, 1)]))
        assert isinstance(part, PartialResult)
        assert len(part.records) == 250, "50 topics with their partitions"
        cluster.write_part(part)
        assert cluster.image.topics.partition_count == 200
        assert codes(create(cluster, CreatableTopic("t200", 1, 1), CreatableTopic("a_b", 1, 1))) == [0, 0]
        refused = {each.name: each.error_code for each in cluster.write(part.rest(0)).topics if each.error_code}
        assert refused == {"t200": ErrorCode.TOPIC_ALREADY_EXISTS, "a.b": ErrorCode.INVALID_TOPIC_EXCEPTION}

        ids = list(cluster.image.topics.ids())
        deletion = cluster.controller.delete_topics(ids)
        assert isinstance(deletion, PartialResult)
        cluster.write_part(deletion)
        assert 0 < cluster.image.topics.partition_count < 800
        assert len(cluster.write(deletion.rest(0))) == len(ids)
        assert not cluster.image.topics.names()

    def test_reserved_ids_are_never_drawn(self) -> None:
        cluster = Cluster()
        dashed = Uuid(bytes([0xF8]) + bytes(15))
        ids = iter([ZERO_UUID, ONE_UUID, dashed, uuid(1)])
        cluster.controller._state.new_id = lambda: next(ids)
        cluster.start_brokers(1)
        assert cluster.create_topic("t", [[1]]) == uuid(1)

    def test_replicas_on_a_broker_with_two_directories_are_unassigned(self, cluster: Cluster) -> None:
        request = cluster.registration(4)
        request.log_dirs = [uuid(70), uuid(71)]
        cluster.write(cluster.controller.register_broker(request, now_ms=cluster.now_ms))
        cluster.heartbeat(4)
        cluster.create_topic("t", [[4, 1]])
        assert cluster.partition("t").directories == (UNASSIGNED_DIRECTORY, directory_of(1))

    def test_recreated_topic_has_another_id(self, cluster: Cluster) -> None:
        first = cluster.create_topic("t", [[1]])
        cluster.write(cluster.controller.delete_topics([first]))
        assert cluster.create_topic("t", [[1]]) != first


class TestCreatePartitions:
    def add(
        self, cluster: Cluster, count: int, assignments: Sequence[Sequence[int]] | None = None, *, name: str = "t"
    ) -> CreatePartitionsTopicResult:
        lists = None if assignments is None else [CreatePartitionsAssignment(list(each)) for each in assignments]
        request = CreatePartitionsRequest([CreatePartitionsTopic(name, count, lists)])
        return cluster.write(cluster.controller.create_partitions(request)).results[0]

    def test_new_partitions_have_the_same_replication_factor(self, cluster: Cluster) -> None:
        cluster.create_topic("t", [[1, 2]])
        assert self.add(cluster, 3).error_code == ErrorCode.NONE
        topic = cluster.image.topics.by_name("t")
        assert topic is not None
        assert [len(partition.replicas) for _, partition in topic.in_order()] == [2, 2, 2]

    def test_manual_assignments_are_used(self, cluster: Cluster) -> None:
        cluster.create_topic("t", [[1, 2]])
        assert self.add(cluster, 2, [[3, 1]]).error_code == ErrorCode.NONE
        assert cluster.partition("t", 1).replicas == (3, 1)

    @pytest.mark.parametrize(
        ("count", "assignments", "code"),
        [
            (1, None, ErrorCode.INVALID_PARTITIONS),
            (0, None, ErrorCode.INVALID_PARTITIONS),
            (-1, None, ErrorCode.INVALID_PARTITIONS),
            (2**31 - 1, None, ErrorCode.POLICY_VIOLATION),
            (3, [[1, 2]], ErrorCode.INVALID_REPLICA_ASSIGNMENT),
            (2, [], ErrorCode.INVALID_REPLICA_ASSIGNMENT),
            (2, [[1]], ErrorCode.INVALID_REPLICA_ASSIGNMENT),
            (2, [[1, 9]], ErrorCode.INVALID_REPLICA_ASSIGNMENT),
            (2, [[1, 1]], ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ],
    )
    def test_invalid_requests_are_refused(
        self, cluster: Cluster, count: int, assignments: list[list[int]] | None, code: ErrorCode
    ) -> None:
        cluster.create_topic("t", [[1, 2]])
        assert ErrorCode(self.add(cluster, count, assignments).error_code) is code
        assert cluster.image.topics.partition_count == 1

    def test_unknown_topic_is_refused(self, cluster: Cluster) -> None:
        assert self.add(cluster, 3, name="nope").error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

    def test_assignment_without_active_broker_is_refused(self, cluster: Cluster) -> None:
        cluster.create_topic("t", [[1]])
        cluster.heartbeat(2, want_fence=True)
        assert self.add(cluster, 2, [[2]]).error_code == ErrorCode.INVALID_REPLICA_ASSIGNMENT

    def test_validate_only_adds_nothing(self, cluster: Cluster) -> None:
        cluster.create_topic("t", [[1]])
        request = CreatePartitionsRequest([CreatePartitionsTopic("t", 2, None)], validate_only=True)
        assert codes(cluster.write(cluster.controller.create_partitions(request)).results) == [ErrorCode.NONE]
        assert cluster.image.topics.partition_count == 1


class TestRemoteMetadataTopic:
    """The topic that locates the remote segments of all tiered topics."""

    @pytest.fixture
    def topic_id(self, cluster: Cluster) -> Uuid:
        tiered = CreatableTopic("t", 1, 1, configs=[CreatableTopicConfig("remote.storage.enable", "true")])
        create(cluster, tiered, CreatableTopic("plain", 1, 1))
        return cluster.create_topic("__remote_log_metadata", [[1]])

    def delete(self, cluster: Cluster, topic_id: Uuid) -> tuple[ErrorCode, str]:
        result = cluster.write(cluster.controller.delete_topics([topic_id]))[topic_id]
        return ErrorCode(result.error_code), result.error_message or ""

    def test_deletion_is_refused_while_a_topic_is_tiered(self, cluster: Cluster, topic_id: Uuid) -> None:
        code, sentence = self.delete(cluster, topic_id)
        assert code is ErrorCode.POLICY_VIOLATION
        assert "topic 't'" in sentence
        assert cluster.image.topics.by_id(topic_id) is not None

    def test_deletion_succeeds_without_tiered_topics(self, cluster: Cluster, topic_id: Uuid) -> None:
        tiered = cluster.image.topics.by_name("t")
        assert tiered is not None
        self.delete(cluster, tiered.id)
        assert self.delete(cluster, topic_id)[0] is ErrorCode.NONE

    def test_deletion_can_be_enabled_cluster_wide(self, cluster: Cluster, topic_id: Uuid) -> None:
        change = config_record(
            ConfigResource(ResourceType.BROKER, ""), "ottla.remote.log.metadata.topic.deletion.enable", "true"
        )
        cluster.append([change])
        assert self.delete(cluster, topic_id)[0] is ErrorCode.NONE

    @pytest.mark.usefixtures("topic_id")
    def test_new_partitions_are_refused(self, cluster: Cluster) -> None:
        request = CreatePartitionsRequest([CreatePartitionsTopic("__remote_log_metadata", 2, None)])
        response = cluster.write(cluster.controller.create_partitions(request))
        assert codes(response.results) == [ErrorCode.POLICY_VIOLATION]


class TestDelete:
    def test_deletion_removes_partitions_and_configs(self, cluster: Cluster) -> None:
        create(cluster, CreatableTopic("t", 2, 2, configs=[CreatableTopicConfig("cleanup.policy", "compact")]))
        topic = cluster.image.topics.by_name("t")
        assert topic is not None
        results = cluster.write(cluster.controller.delete_topics([topic.id]))
        assert results[topic.id].name == "t"
        assert cluster.image.topics.by_id(topic.id) is None
        assert cluster.image.configs.names(ResourceType.TOPIC) == []
        create(cluster, CreatableTopic("t", 1, 1))
        assert dict(cluster.image.configs.topic("t")) == {}

    def test_unknown_id_is_refused(self, cluster: Cluster) -> None:
        results = cluster.write(cluster.controller.delete_topics([uuid(99)]))
        assert results[uuid(99)].error_code == ErrorCode.UNKNOWN_TOPIC_ID
