"""RestoreTopics in the controller: topics with their former ids and higher leader epochs."""

import pytest

from protocol.errors import ErrorCode, KafkaError
from protocol.messages.restore_topics import (
    RestorableTopic,
    RestorableTopicConfig,
    RestoredTopic,
    RestoreTopicsRequest,
)
from protocol.primitives import ONE_UUID, ZERO_UUID, Uuid
from tests.broker.metadata.images import Cluster

OLD_ID = Uuid(bytes(15) + b"\x77")
OTHER_ID = Uuid(bytes(15) + b"\x78")


@pytest.fixture
def cluster() -> Cluster:
    cluster = Cluster()
    cluster.start_brokers(1, 2, 3)
    return cluster


def restore(
    cluster: Cluster, *topics: RestorableTopic, min_next_producer_id: int = 0, validate_only: bool = False
) -> list[RestoredTopic]:
    request = RestoreTopicsRequest(list(topics), min_next_producer_id, validate_only=validate_only)
    return cluster.write(cluster.controller.restore_topics(request)).topics


def topic(name: str = "t", topic_id: Uuid = OLD_ID, epochs: tuple[int, ...] = (7, 0, 12)) -> RestorableTopic:
    return RestorableTopic(name, topic_id, 2, list(epochs), [RestorableTopicConfig("retention.ms", "1000")])


def codes(results: list[RestoredTopic]) -> list[ErrorCode]:
    return [ErrorCode(result.error_code) for result in results]


def test_restored_topic_has_its_id_and_higher_epochs(cluster: Cluster) -> None:
    assert codes(restore(cluster, topic())) == [ErrorCode.NONE]
    image = cluster.image.topics.by_id(OLD_ID)
    assert image is not None
    assert image.name == "t"
    assert [image.partitions[index].leader_epoch for index in range(3)] == [7, 0, 12]
    assert all(len(partition.replicas) == 2 for partition in image.partitions.values())
    assert dict(cluster.image.configs.topic("t")) == {"retention.ms": "1000"}


def test_restore_request_can_be_repeated(cluster: Cluster) -> None:
    restore(cluster, topic())
    before = cluster.image.topics.by_id(OLD_ID)
    assert codes(restore(cluster, topic(epochs=(9,)))) == [ErrorCode.NONE]
    assert cluster.image.topics.by_id(OLD_ID) is before


def test_name_in_use_is_refused(cluster: Cluster) -> None:
    cluster.create_topic("t", [[1]])
    assert codes(restore(cluster, topic(), topic("u", OTHER_ID))) == [ErrorCode.TOPIC_ALREADY_EXISTS, ErrorCode.NONE]


@pytest.mark.parametrize("taken", [ZERO_UUID, ONE_UUID])
def test_reserved_id_is_refused(cluster: Cluster, taken: Uuid) -> None:
    assert codes(restore(cluster, topic(topic_id=taken))) == [ErrorCode.INVALID_REQUEST]


def test_id_of_another_topic_is_refused(cluster: Cluster) -> None:
    restore(cluster, topic())
    assert codes(restore(cluster, topic("u"))) == [ErrorCode.INVALID_REQUEST]


def test_invalid_topics_are_refused(cluster: Cluster) -> None:
    bad_config = RestorableTopic("t", OLD_ID, 1, [1], [RestorableTopicConfig("a", "bad")])
    too_many = RestorableTopic("u", OTHER_ID, 4, [1])
    negative = RestorableTopic("v", Uuid(bytes(15) + b"\x79"), 1, [-1])
    assert codes(restore(cluster, bad_config, too_many, negative)) == [
        ErrorCode.INVALID_CONFIG,
        ErrorCode.INVALID_REPLICATION_FACTOR,
        ErrorCode.INVALID_REQUEST,
    ]
    assert cluster.image.topics.names() == []


def test_names_that_collide_in_metrics_are_refused(cluster: Cluster) -> None:
    assert codes(restore(cluster, topic("a.b"), topic("a_b", OTHER_ID))) == [
        ErrorCode.NONE,
        ErrorCode.INVALID_TOPIC_EXCEPTION,
    ]


def test_producer_ids_in_restored_segments_are_not_allocated_again(cluster: Cluster) -> None:
    restore(cluster, topic(), min_next_producer_id=4_712)
    assert cluster.image.producer_ids.next_id == 4_712
    restore(cluster, min_next_producer_id=4_000)
    assert cluster.image.producer_ids.next_id == 4_712


def test_validate_only_writes_nothing(cluster: Cluster) -> None:
    assert codes(restore(cluster, topic(), min_next_producer_id=5, validate_only=True)) == [ErrorCode.NONE]
    assert cluster.image.topics.names() == []
    assert cluster.image.producer_ids.next_id == 0


def test_request_larger_than_one_batch_is_refused(cluster: Cluster) -> None:
    with pytest.raises(KafkaError) as refused:
        restore(cluster, topic(epochs=(0,) * 20_000))
    assert refused.value.code == ErrorCode.POLICY_VIOLATION
