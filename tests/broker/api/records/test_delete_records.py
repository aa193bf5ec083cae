"""DeleteRecords, key 21 (`broker.api.records.delete_records`)."""

import pytest

from broker.api.records.delete_records import DeleteRecordsHandler
from broker.replication.leader import FollowerFetch
from protocol.errors import ErrorCode
from protocol.ids import BrokerEpoch, BrokerId, LeaderEpoch
from protocol.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsPartitionResult,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopic,
)
from storage.config import CleanupPolicy, LogConfig
from tests.support.harnesses.data_plane import Answer, DataPlane


@pytest.fixture
def node() -> DataPlane:
    return DataPlane()


def delete(node: DataPlane, offset: int, *, topic: str = "t", index: int = 0) -> Answer[DeleteRecordsResponse]:
    request = DeleteRecordsRequest([DeleteRecordsTopic(topic, [DeleteRecordsPartition(index, offset)])], 1000)
    handler = DeleteRecordsHandler(node.partitions, node.runtime)
    return Answer(handler(request, node.context(2)))


def only(answer: Answer[DeleteRecordsResponse]) -> DeleteRecordsPartitionResult:
    return answer.value.topics[0].partitions[0]


def replicated(node: DataPlane) -> None:
    node.register_broker(2)
    node.create_topic(replicas=(1, 2))
    node.produce(b"a", b"b", b"c")
    follow(node, 0)


def follow(node: DataPlane, log_start: int) -> None:
    node.partition().on_follower_fetch(FollowerFetch(BrokerId(2), BrokerEpoch(-1), LeaderEpoch(-1), 3, log_start))


def test_lone_replica_answers_at_once(node: DataPlane) -> None:
    node.create_topic()
    node.produce(b"a", b"b", b"c")
    assert (only(delete(node, 2)).low_watermark, only(delete(node, 2)).error_code) == (2, 0)
    assert only(delete(node, -1)).low_watermark == 3
    assert only(delete(node, 1)).low_watermark == 3  # the log start offset never decreases


@pytest.mark.parametrize("offset", [-2, 4])
def test_uncommitted_offsets_are_out_of_range(node: DataPlane, offset: int) -> None:
    node.create_topic()
    node.produce(b"a", b"b", b"c")
    refused = only(delete(node, offset))
    assert (refused.error_code, refused.low_watermark) == (ErrorCode.OFFSET_OUT_OF_RANGE, -1)


def test_invalid_partitions_are_refused(node: DataPlane) -> None:
    compacted = LogConfig(cleanup_policy=frozenset({CleanupPolicy.COMPACT}))
    node.create_topic("compacted", config=compacted)
    node.create_topic("__consumer_offsets", config=compacted)
    node.create_topic("elsewhere", replicas=(1, 2), leader=2)
    assert only(delete(node, 0, topic="compacted")).error_code == ErrorCode.POLICY_VIOLATION
    assert only(delete(node, 0, topic="__consumer_offsets")).error_code == ErrorCode.INVALID_TOPIC_EXCEPTION
    assert only(delete(node, 0, topic="elsewhere")).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert only(delete(node, 0, topic="unknown")).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_response_waits_for_the_replicas(node: DataPlane) -> None:
    replicated(node)
    answer = delete(node, 2)
    assert answer.is_waiting
    follow(node, 2)
    assert (only(answer).error_code, only(answer).low_watermark) == (0, 2)
    assert len(node.deadlines) == 0


def test_slow_replica_causes_a_timeout(node: DataPlane) -> None:
    replicated(node)
    answer = delete(node, 2)
    node.advance_ms(1000)
    assert (only(answer).error_code, only(answer).low_watermark) == (ErrorCode.REQUEST_TIMED_OUT, -1)
    follow(node, 2)


def test_dead_replicas_are_not_waited_for(node: DataPlane) -> None:
    replicated(node)
    node.register_broker(2, fenced=True, epoch=2)
    assert only(delete(node, 2)).low_watermark == 2


def test_deleted_topic_ends_the_wait(node: DataPlane) -> None:
    replicated(node)
    answer = delete(node, 2)
    node.delete_topic(node.partition().topic_id)
    assert only(answer).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_remote_metadata_is_pruned_by_brokers_alone(node: DataPlane) -> None:
    node.create_topic("__remote_log_metadata")
    node.produce(b"a", b"b", topic="__remote_log_metadata")
    refused = only(delete(node, 1, topic="__remote_log_metadata"))
    assert (refused.error_code, refused.low_watermark) == (ErrorCode.POLICY_VIOLATION, -1)
    assert node.partition("__remote_log_metadata").log.log_start_offset == 0
