"""Metadata: every version's form of request, leaders, and creation on first use."""

import pytest

from broker.api.serving.authorized_operations import CLUSTER_OPERATIONS, NOT_REQUESTED, TOPIC_OPERATIONS
from broker.api.topics.metadata import MetadataHandler
from broker.metadata.image.metadata_image import MetadataImage
from broker.metadata.image.partition import LOST_DIRECTORY
from protocol.errors import ErrorCode, KafkaError
from protocol.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponsePartition,
)
from protocol.messages.metadata_records import (
    BrokerRegistrationChangeRecord,
    PartitionChangeRecord,
    UnregisterBrokerRecord,
)
from protocol.primitives import ZERO_UUID
from tests.broker.api.metadata_harness import FixedMetadata, context
from tests.broker.metadata.images import LISTENER, directory_of, image_of, image_with, uuid

NEWEST = 13


class Creator:
    def __init__(self) -> None:
        self.requested: list[str] = []

    def request_topic(self, name: str) -> None:
        self.requested.append(name)


def ask(
    image: MetadataImage,
    *names: str,
    version: int = NEWEST,
    request: MetadataRequest | None = None,
    creator: Creator | None = None,
    controller_id: int | None = 1,
    listener: str = LISTENER,
) -> MetadataResponse:
    source = FixedMetadata(image, controller_id)
    handler = MetadataHandler(source, source, cluster_id="cluster", creator=creator)
    message = request or MetadataRequest([MetadataRequestTopic(name=name) for name in names])
    return handler(message, context(version, listener=listener))


def only_partition(response: MetadataResponse) -> MetadataResponsePartition:
    return response.topics[0].partitions[0]


def test_brokers_cluster_and_topics_are_described() -> None:
    response = ask(image_with(topics={"t": 2}, brokers=(1, 2)), "t")
    assert [(each.node_id, each.host, each.port, each.rack) for each in response.brokers] == [
        (1, "host-1", 9001, "rack-1"),
        (2, "host-2", 9002, "rack-2"),
    ]
    assert (response.cluster_id, response.controller_id, response.error_code) == ("cluster", 1, ErrorCode.NONE)
    (topic,) = response.topics
    assert (topic.name, topic.topic_id, topic.is_internal) == ("t", uuid(1), False)
    assert [each.partition_index for each in topic.partitions] == [0, 1]
    partition = topic.partitions[0]
    assert (partition.leader_id, partition.leader_epoch, partition.replica_nodes) == (1, 0, [1, 2])


class TestWhichTopics:
    IMAGE = image_with(topics={"b": 1, "a": 1, "__consumer_offsets": 1})

    @pytest.mark.parametrize("version", range(1, NEWEST + 1))
    def test_null_means_all_and_empty_means_none(self, version: int) -> None:
        everything = ask(self.IMAGE, request=MetadataRequest(None), version=version)
        assert [topic.name for topic in everything.topics] == ["__consumer_offsets", "a", "b"]
        assert [topic.is_internal for topic in everything.topics] == [True, False, False]
        assert ask(self.IMAGE, version=version).topics == []

    def test_empty_means_all_in_version_0(self) -> None:
        assert len(ask(self.IMAGE, version=0).topics) == 3

    def test_repeated_name_is_answered_once(self) -> None:
        assert [topic.name for topic in ask(self.IMAGE, "b", "b", "a").topics] == ["b", "a"]

    def test_topic_is_found_by_id(self) -> None:
        requested = [MetadataRequestTopic(uuid(2), None), MetadataRequestTopic(uuid(99), None)]
        known, unknown = ask(self.IMAGE, request=MetadataRequest(requested)).topics
        assert (known.name, known.topic_id, known.error_code) == ("a", uuid(2), ErrorCode.NONE)
        assert (unknown.name, unknown.topic_id) == (None, uuid(99))
        assert unknown.error_code == ErrorCode.UNKNOWN_TOPIC_ID

    def test_names_are_ignored_if_any_id_is_given(self) -> None:
        requested = [MetadataRequestTopic(uuid(2), None), MetadataRequestTopic(ZERO_UUID, "b")]
        assert [topic.name for topic in ask(self.IMAGE, request=MetadataRequest(requested)).topics] == ["a"]

    @pytest.mark.parametrize("version", [10, 11])
    @pytest.mark.parametrize("topic", [MetadataRequestTopic(uuid(2), "a"), MetadataRequestTopic(ZERO_UUID, None)])
    def test_ids_are_refused_before_version_12(self, version: int, topic: MetadataRequestTopic) -> None:
        with pytest.raises(KafkaError) as caught:
            ask(self.IMAGE, request=MetadataRequest([topic]), version=version)
        assert caught.value.code is ErrorCode.INVALID_REQUEST

    def test_topic_without_name_and_id_is_refused(self) -> None:
        with pytest.raises(KafkaError) as caught:
            ask(self.IMAGE, request=MetadataRequest([MetadataRequestTopic(ZERO_UUID, None)]))
        assert caught.value.code is ErrorCode.INVALID_REQUEST


class TestUnknownTopics:
    IMAGE = image_with()

    @pytest.mark.parametrize("name", ["", ".", "..", "a b", "x" * 250, "ümlaut"])
    def test_illegal_names_are_refused(self, name: str) -> None:
        creator = Creator()
        assert ask(self.IMAGE, name, creator=creator).topics[0].error_code == ErrorCode.INVALID_TOPIC_EXCEPTION
        assert creator.requested == []

    def test_unknown_topic_is_created_and_the_client_retries(self) -> None:
        creator = Creator()
        (topic,) = ask(self.IMAGE, "new", creator=creator).topics
        assert (topic.error_code, topic.topic_id) == (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ZERO_UUID)
        assert creator.requested == ["new"]

    def test_unknown_topic_is_not_created_if_broker_or_client_forbids_it(self) -> None:
        creator = Creator()
        existing_only = MetadataRequest([MetadataRequestTopic(name="new")], allow_auto_topic_creation=False)
        for response in (ask(self.IMAGE, "new"), ask(self.IMAGE, request=existing_only, creator=creator)):
            assert response.topics[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert creator.requested == []


class TestLeaders:
    def test_missing_leader_is_reported(self) -> None:
        image = image_of([PartitionChangeRecord(0, uuid(1), leader=-1)], image_with(topics={"t": 1}))
        partition = only_partition(ask(image, "t"))
        assert (partition.error_code, partition.leader_id) == (ErrorCode.LEADER_NOT_AVAILABLE, -1)
        assert partition.leader_epoch == 1

    def test_fenced_leader_still_leads(self) -> None:
        image = image_of([BrokerRegistrationChangeRecord(1, 1, fenced=1)], image_with(topics={"t": 1}, brokers=(1, 2)))
        response = ask(image, "t")
        assert only_partition(response).error_code == ErrorCode.NONE
        assert only_partition(response).leader_id == 1
        assert only_partition(response).offline_replicas == [1]
        assert [each.node_id for each in response.brokers] == [2]

    def test_unregistered_leader_is_not_available(self) -> None:
        image = image_of([UnregisterBrokerRecord(1, 1)], image_with(topics={"t": 1}, brokers=(1, 2)))
        partition = only_partition(ask(image, "t"))
        assert (partition.error_code, partition.leader_id) == (ErrorCode.LEADER_NOT_AVAILABLE, -1)
        assert (partition.replica_nodes, partition.offline_replicas) == ([1, 2], [1])

    @pytest.mark.parametrize(
        ("version", "code"),
        [(5, ErrorCode.LEADER_NOT_AVAILABLE), (6, ErrorCode.LISTENER_NOT_FOUND), (13, ErrorCode.LISTENER_NOT_FOUND)],
    )
    def test_leader_without_the_listener_is_reported(self, version: int, code: ErrorCode) -> None:
        partition = only_partition(ask(image_with(topics={"t": 1}), "t", version=version, listener="OTHER"))
        assert (ErrorCode(partition.error_code), partition.leader_id) == (code, -1)

    def test_replicas_without_endpoint_are_left_out_in_version_0(self) -> None:
        image = image_of([UnregisterBrokerRecord(2, 2)], image_with(topics={"t": 1}, brokers=(1, 2)))
        partition = only_partition(ask(image, "t", version=0))
        assert partition.error_code == ErrorCode.REPLICA_NOT_AVAILABLE
        assert (partition.replica_nodes, partition.isr_nodes) == ([1], [1])
        assert only_partition(ask(image, "t", version=1)).error_code == ErrorCode.NONE

    def test_replica_in_a_failed_directory_is_offline(self) -> None:
        change = PartitionChangeRecord(0, uuid(1), directories=[directory_of(1), LOST_DIRECTORY])
        image = image_of([change], image_with(topics={"t": 1}, brokers=(1, 2)))
        assert only_partition(ask(image, "t")).offline_replicas == [2]


class TestController:
    def test_active_controller_is_reported_if_clients_reach_it(self) -> None:
        image = image_with(brokers=(1, 2))
        assert ask(image, controller_id=2).controller_id == 2
        assert ask(image, controller_id=7).controller_id == 1
        assert ask(image, controller_id=None).controller_id == 1

    def test_missing_brokers_leave_no_controller(self) -> None:
        assert ask(image_with(brokers=())).controller_id == -1


class TestAuthorizedOperations:
    IMAGE = image_with(topics={"t": 1})

    def test_operations_are_returned_on_request(self) -> None:
        response = ask(self.IMAGE, "t")
        assert response.cluster_authorized_operations == NOT_REQUESTED == -2147483648
        assert response.topics[0].topic_authorized_operations == NOT_REQUESTED

    @pytest.mark.parametrize(("version", "cluster"), [(7, False), (8, True), (10, True), (11, False)])
    def test_cluster_operations_are_returned_in_versions_8_to_10(self, version: int, cluster: bool) -> None:
        request = MetadataRequest(
            [MetadataRequestTopic(name="t")],
            include_cluster_authorized_operations=True,
            include_topic_authorized_operations=True,
        )
        response = ask(self.IMAGE, request=request, version=version)
        assert response.cluster_authorized_operations == (CLUSTER_OPERATIONS if cluster else NOT_REQUESTED)
        assert response.topics[0].topic_authorized_operations == TOPIC_OPERATIONS

    def test_operation_bits_are_kafkas(self) -> None:
        assert (TOPIC_OPERATIONS, CLUSTER_OPERATIONS) == (3576, 8096)
