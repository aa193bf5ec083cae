"""OffsetForLeaderEpoch, key 23 (`broker.api.records.offset_for_leader_epoch`)."""

import pytest

from broker.api.records.offset_for_leader_epoch import OffsetForLeaderEpochHandler
from protocol.errors import ErrorCode, KafkaError
from protocol.messages.offset_for_leader_epoch import (
    EpochEndOffset,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from tests.support.harnesses.data_plane import DataPlane


@pytest.fixture
def node() -> DataPlane:
    """Return a node with epochs 0, 1 and 3 in the log: [0, 2), [2, 3) and [3, 4)."""
    node = DataPlane()
    identity = node.create_topic(replicas=(1, 2))
    node.produce(b"a", b"b")
    node.elect(identity, 1)
    node.produce(b"c")
    node.elect(identity, 2)
    node.elect(identity, 1)
    node.produce(b"d")
    return node


def ask(node: DataPlane, epoch: int, *, current: int = -1, index: int = 0) -> EpochEndOffset:
    topics = [OffsetForLeaderTopic("t", [OffsetForLeaderPartition(index, current, epoch)])]
    handler = OffsetForLeaderEpochHandler(node.partitions)
    return handler(OffsetForLeaderEpochRequest(topics=topics), node.context(4)).topics[0].partitions[0]


@pytest.mark.parametrize(
    ("epoch", "answer"), [(0, (0, 2)), (1, (1, 3)), (2, (1, 3)), (3, (3, 4)), (4, (-1, -1)), (-1, (-1, -1))]
)
def test_epoch_ends_where_the_next_begins(node: DataPlane, epoch: int, answer: tuple[int, int]) -> None:
    end = ask(node, epoch)
    assert (end.error_code, end.leader_epoch, end.end_offset) == (0, *answer)


def test_deleted_epoch_ends_at_the_log_start_offset(node: DataPlane) -> None:
    """A replica without a later epoch has no record that still exists."""
    partition = node.partition()
    partition.log.advance_high_watermark(4)
    partition.record_deletion.delete_records(3)
    for epoch in (0, 1, 2):
        end = ask(node, epoch)
        assert (end.error_code, end.leader_epoch, end.end_offset) == (0, epoch, 3)


def test_failed_disk_is_a_storage_error(node: DataPlane) -> None:
    node.memory.fail("write", path_part="t-0")
    with pytest.raises(KafkaError):
        node.produce(b"e")
    node.loop.run_soon()
    assert ask(node, 0).error_code == ErrorCode.KAFKA_STORAGE_ERROR


def test_senders_are_fenced(node: DataPlane) -> None:
    assert ask(node, 0, current=2).error_code == ErrorCode.FENCED_LEADER_EPOCH
    assert ask(node, 0, current=3).error_code == 0
    assert ask(node, 0, current=4).error_code == ErrorCode.UNKNOWN_LEADER_EPOCH


def test_only_the_leader_answers(node: DataPlane) -> None:
    node.elect(node.partition().topic_id, 2)
    refused = ask(node, 0)
    assert (refused.error_code, refused.leader_epoch, refused.end_offset) == (6, -1, -1)
    assert ask(node, 0, index=9).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
