"""DescribeProducers, key 61 (`broker.api.records.describe_producers`)."""

from broker.api.records.describe_producers import DescribeProducersHandler
from protocol.errors import ErrorCode
from protocol.messages.describe_producers import DescribeProducersRequest, PartitionResponse, TopicRequest
from tests.support.harnesses.data_plane import DataPlane, batch


def describe(node: DataPlane, *indexes: int, topic: str = "t") -> list[PartitionResponse]:
    request = DescribeProducersRequest([TopicRequest(topic, list(indexes))])
    return DescribeProducersHandler(node.partitions)(request, node.context(0)).topics[0].partitions


def test_producers_of_a_partition_are_described() -> None:
    node = DataPlane()
    node.create_topic()
    node.produce(b"without producer id")
    node.partition().append(batch(b"a", b"b", timestamp=7, producer_id=5, producer_epoch=1, sequence=0), 1)
    transactional = batch(b"c", timestamp=9, producer_id=6, producer_epoch=2, sequence=3, transactional=True)
    node.partition().append(transactional, 1)
    idempotent, in_transaction = describe(node, 0)[0].active_producers
    assert (idempotent.producer_id, idempotent.producer_epoch, idempotent.last_sequence) == (5, 1, 1)
    assert (idempotent.last_timestamp, idempotent.coordinator_epoch, idempotent.current_txn_start_offset) == (7, -1, -1)
    assert (in_transaction.producer_id, in_transaction.current_txn_start_offset) == (6, 3)


def test_any_replica_answers_and_missing_ones_have_an_error() -> None:
    node = DataPlane()
    node.create_topic("followed", replicas=(1, 2), leader=2)
    node.create_topic("elsewhere", replicas=(2, 3), leader=2)
    assert describe(node, 0, topic="followed")[0].error_code == 0
    assert describe(node, 0, topic="elsewhere")[0].error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    for index, topic, has_message in ((7, "followed", False), (0, "no-such-topic", True)):
        missing = describe(node, index, topic=topic)[0]
        assert missing.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert bool(missing.error_message) is has_message, "only a missing topic has a message, as in Kafka"
    assert describe(node, 0, topic="../x")[0].error_code == ErrorCode.INVALID_TOPIC_EXCEPTION
