"""Fetchers start and stop following partitions as the metadata changes (`fetcher_assignments.py`)."""

import pytest

from protocol.ids import LeaderEpoch
from protocol.messages.metadata_records import (
    BrokerEndpoint,
    FenceBrokerRecord,
    PartitionChangeRecord,
    RegisterBrokerRecord,
    RemoveTopicRecord,
    UnregisterBrokerRecord,
)
from protocol.records.builder import Record, build_batch
from tests.support.harnesses.data_plane import LISTENER, DataPlane

STOPPED = ("t-0", None, None)


@pytest.fixture
def node() -> DataPlane:
    plane = DataPlane()
    plane.register_broker(2)
    plane.register_broker(3)
    return plane


def register(node: DataPlane, broker: int, port: int, epoch: int) -> None:
    endpoint = BrokerEndpoint(name=LISTENER, host="moved", port=port, security_protocol=0)
    node.apply(RegisterBrokerRecord(broker_id=broker, broker_epoch=epoch, end_points=[endpoint], fenced=False))


def test_new_replica_follows_at_once(node: DataPlane) -> None:
    node.create_topic(partitions=2, replicas=(1, 2), leader=2)
    assert node.fetchers.take() == [("t-0", 2, 0), ("t-1", 2, 0)]


def test_leader_does_not_follow(node: DataPlane) -> None:
    node.create_topic(replicas=(1, 2))
    assert node.fetchers.take() == []


def test_replica_follows_anew_in_each_leader_epoch_only(node: DataPlane) -> None:
    identity = node.create_topic(replicas=(1, 2, 3), leader=2)
    node.fetchers.take()
    node.change_isr(identity, 2, 3)
    assert node.fetchers.take() == []
    node.elect(identity, 2)
    assert node.fetchers.take() == [("t-0", 2, 1)]
    node.elect(identity, 3)
    assert node.fetchers.take() == [("t-0", 3, 2)]


def test_new_leader_stops_following(node: DataPlane) -> None:
    identity = node.create_topic(replicas=(1, 2), leader=2)
    node.fetchers.take()
    node.elect(identity, 1)
    assert node.fetchers.take() == [STOPPED]
    node.elect(identity, 2)
    assert node.fetchers.take() == [("t-0", 2, 2)]


def test_partition_without_leader_is_not_followed(node: DataPlane) -> None:
    identity = node.create_topic(replicas=(1, 2), leader=2)
    node.fetchers.take()
    node.elect(identity, -1)
    assert node.fetchers.take() == [STOPPED]
    node.elect(identity, -1)
    assert node.fetchers.take() == []


def test_deleted_partition_is_unfollowed_before_its_log_is_removed(node: DataPlane) -> None:
    identity = node.create_topic(replicas=(1, 2), leader=2)
    node.fetchers.take()
    node.delete_topic(identity)
    assert node.fetchers.take() == [STOPPED]


def test_reassigned_replica_stops_following(node: DataPlane) -> None:
    identity = node.create_topic(replicas=(1, 2), leader=2)
    node.fetchers.take()
    node.apply(PartitionChangeRecord(topic_id=identity, partition_id=0, replicas=[2, 3], isr=[2]))
    assert node.fetchers.take() == [STOPPED]


def test_deletions_precede_leaders_and_leaders_precede_followers(node: DataPlane) -> None:
    first = node.create_topic("first", replicas=(1, 2), leader=2)
    second = node.create_topic("second", partitions=2, replicas=(1, 2), leader=2)
    node.apply(PartitionChangeRecord(topic_id=second, partition_id=1, leader=1))
    node.fetchers.take()
    node.apply(
        PartitionChangeRecord(topic_id=second, partition_id=1, leader=2),
        PartitionChangeRecord(topic_id=second, partition_id=0, leader=1),
        RemoveTopicRecord(topic_id=first),
    )
    assert node.fetchers.take() == [("first-0", None, None), ("second-0", None, None), ("second-1", 2, 2)]


def test_leader_with_new_endpoints_is_followed_anew(node: DataPlane) -> None:
    node.create_topic(replicas=(1, 2), leader=2)
    node.fetchers.take()
    register(node, 2, 7777, epoch=5)
    assert node.fetchers.take() == [("t-0", 2, 0)]
    register(node, 2, 7777, epoch=6)
    register(node, 3, 8888, epoch=5)
    node.apply(FenceBrokerRecord(id=2, epoch=6))
    assert node.fetchers.take() == []


def test_leader_is_followed_once_registered(node: DataPlane) -> None:
    node.create_topic(replicas=(1, 4), leader=4)
    assert node.fetchers.take() == [STOPPED]
    node.register_broker(4)
    assert node.fetchers.take() == [("t-0", 4, 0)]
    node.apply(UnregisterBrokerRecord(broker_id=4, broker_epoch=1))
    assert node.fetchers.take() == [STOPPED]


def test_new_endpoints_during_a_truncation_apply_after_it(node: DataPlane) -> None:
    node.create_topic(replicas=(1, 2), leader=2)
    partition = node.partition()
    partition.follower.append_fetched(
        LeaderEpoch(0), 0, build_batch([Record(1, None, b"v")] * 3, leader_epoch=LeaderEpoch(0)), 0, 0
    )
    node.fetchers.take()
    node.io.is_held = True
    cut = partition.follower.truncate(LeaderEpoch(0), 0)
    register(node, 2, 7777, epoch=5)
    assert node.fetchers.take() == []
    node.io.release()
    node.loop.run_soon()
    assert node.fetchers.take() == [("t-0", 2, 0)]
    assert cut.result()


def test_broker_in_controlled_shutdown_follows_only_as_isr_member(node: DataPlane) -> None:
    identity = node.create_topic(replicas=(1, 2, 3), leader=2)
    node.fetchers.take()
    node.partitions.roles.begin_controlled_shutdown()
    node.elect(identity, 2)
    assert node.fetchers.take() == [("t-0", 2, 1)]
    node.change_isr(identity, 2, 3)
    assert node.fetchers.take() == [STOPPED]
    node.elect(identity, 3)
    assert node.fetchers.take() == []
