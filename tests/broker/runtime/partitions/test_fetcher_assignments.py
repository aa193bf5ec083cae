"""Fetchers start and stop following partitions as the metadata changes (`fetcher_assignments.py`)."""

import pytest

from protocol.messages.metadata_records import (
    BrokerEndpoint,
    FenceBrokerRecord,
    PartitionChangeRecord,
    RegisterBrokerRecord,
    RemoveTopicRecord,
    UnregisterBrokerRecord,
)
from protocol.records.builder import Record, build_batch
from tests.support.data_plane import LISTENER, DataPlane

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


def test_a_replica_follows_from_its_first_moment(node: DataPlane) -> None:
    node.create_topic(partitions=2, replicas=(1, 2), leader=2)
    assert node.fetchers.take() == [("t-0", 2, 0), ("t-1", 2, 0)]


def test_a_leader_follows_nobody(node: DataPlane) -> None:
    node.create_topic(replicas=(1, 2))
    assert node.fetchers.take() == []


def test_each_reign_is_followed_anew_and_a_change_within_one_is_not(node: DataPlane) -> None:
    identity = node.create_topic(replicas=(1, 2, 3), leader=2)
    node.fetchers.take()
    node.change_isr(identity, 2, 3)
    assert node.fetchers.take() == []
    node.elect(identity, 2)
    assert node.fetchers.take() == [("t-0", 2, 1)]
    node.elect(identity, 3)
    assert node.fetchers.take() == [("t-0", 3, 2)]


def test_becoming_leader_ends_it(node: DataPlane) -> None:
    identity = node.create_topic(replicas=(1, 2), leader=2)
    node.fetchers.take()
    node.elect(identity, 1)
    assert node.fetchers.take() == [STOPPED]
    node.elect(identity, 2)
    assert node.fetchers.take() == [("t-0", 2, 2)]


def test_without_leader_there_is_nobody_to_follow(node: DataPlane) -> None:
    identity = node.create_topic(replicas=(1, 2), leader=2)
    node.fetchers.take()
    node.elect(identity, -1)
    assert node.fetchers.take() == [STOPPED]
    node.elect(identity, -1)
    assert node.fetchers.take() == []


def test_deletion_ends_it_before_the_log_goes(node: DataPlane) -> None:
    identity = node.create_topic(replicas=(1, 2), leader=2)
    node.fetchers.take()
    node.delete_topic(identity)
    assert node.fetchers.take() == [STOPPED]


def test_a_replica_that_is_assigned_elsewhere_stops(node: DataPlane) -> None:
    identity = node.create_topic(replicas=(1, 2), leader=2)
    node.fetchers.take()
    node.apply(PartitionChangeRecord(topic_id=identity, partition_id=0, replicas=[2, 3], isr=[2]))
    assert node.fetchers.take() == [STOPPED]


def test_deletions_come_first_then_leaders_then_followers(node: DataPlane) -> None:
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


def test_a_leader_at_another_address_is_followed_anew(node: DataPlane) -> None:
    node.create_topic(replicas=(1, 2), leader=2)
    node.fetchers.take()
    register(node, 2, 7777, epoch=5)
    assert node.fetchers.take() == [("t-0", 2, 0)]
    register(node, 2, 7777, epoch=6)
    register(node, 3, 8888, epoch=5)
    node.apply(FenceBrokerRecord(id=2, epoch=6))
    assert node.fetchers.take() == []


def test_a_leader_that_is_not_registered_is_followed_when_it_is(node: DataPlane) -> None:
    node.create_topic(replicas=(1, 4), leader=4)
    assert node.fetchers.take() == [STOPPED]
    node.register_broker(4)
    assert node.fetchers.take() == [("t-0", 4, 0)]
    node.apply(UnregisterBrokerRecord(broker_id=4, broker_epoch=1))
    assert node.fetchers.take() == [STOPPED]


def test_a_move_of_the_leader_during_a_cut_waits_for_its_end(node: DataPlane) -> None:
    node.create_topic(replicas=(1, 2), leader=2)
    partition = node.partition()
    partition.follower.append_fetched(0, 0, build_batch([Record(1, None, b"v")] * 3, leader_epoch=0), 0, 0)
    node.fetchers.take()
    node.io.is_held = True
    cut = partition.follower.truncate(0, 0)
    register(node, 2, 7777, epoch=5)
    assert node.fetchers.take() == []
    node.io.release()
    node.loop.run_soon()
    assert node.fetchers.take() == [("t-0", 2, 0)]
    assert cut.result()


def test_a_node_that_leaves_follows_only_where_it_is_in_sync(node: DataPlane) -> None:
    identity = node.create_topic(replicas=(1, 2, 3), leader=2)
    node.fetchers.take()
    node.partitions.roles.begin_controlled_shutdown()
    node.elect(identity, 2)
    assert node.fetchers.take() == [("t-0", 2, 1)]
    node.change_isr(identity, 2, 3)
    assert node.fetchers.take() == [STOPPED]
    node.elect(identity, 3)
    assert node.fetchers.take() == []
