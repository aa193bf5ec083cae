"""The preferred read replica of a consumer, KIP-392 (`broker.replication.read_replica`)."""

from broker.replication.read_replica import ReplicaView, nearest_replica
from protocol.ids import BrokerId

LEADER = ReplicaView(BrokerId(1), "a", 0, 100)
NEAR = ReplicaView(BrokerId(2), "b", 0, 90)
NEARER = ReplicaView(BrokerId(3), "b", 0, 95)
TRIMMED = ReplicaView(BrokerId(4), "b", 80, 100)


def test_leader_serves_its_own_rack_and_consumers_without_rack() -> None:
    assert nearest_replica("a", 10, LEADER, [NEAR]) == 1
    assert nearest_replica("", 10, LEADER, [NEAR]) == 1


def test_most_caught_up_replica_of_the_rack_serves() -> None:
    assert nearest_replica("b", 10, LEADER, [NEAR, NEARER, TRIMMED]) == 3
    assert nearest_replica("b", 92, LEADER, [NEAR, NEARER]) == 3


def test_leader_serves_offsets_that_the_rack_lacks() -> None:
    assert nearest_replica("b", 99, LEADER, [NEAR, NEARER]) == 1
    assert nearest_replica("c", 10, LEADER, [NEAR]) == 1


def test_replica_with_less_lag_in_time_serves_among_equal_ends() -> None:
    late = ReplicaView(BrokerId(5), "b", 0, 95, lag_ms=40)
    assert nearest_replica("b", 10, LEADER, [late, NEARER]) == 3
