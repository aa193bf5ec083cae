"""Redirects of consumers of remote records, and of those that return from a replica (KIP-392, KIP-405)."""

import pytest

from broker.fetch.replica_selector import REMEMBERED_MS, RackAwareReplicaSelector
from broker.runtime.partitions.reads import NO_REPLICA
from protocol.ids import BrokerId
from tests.support.harnesses.tiered_plane import TieredPlane

LISTENER = "PLAINTEXT"


@pytest.fixture
def plane() -> TieredPlane:
    """Two replicas; offsets 0 to 3 are in remote storage only, 4 to 5 are local."""
    plane = TieredPlane()
    for broker in (2, 3):
        plane.register_broker(broker)
    plane.create_tiered_topic(replicas=(1, 2, 3))
    plane.make_remote(2, 2)
    plane.fill(2)
    for follower in plane.partition().leader_role.followers.values():
        follower.log_end_offset = plane.log().log_end_offset
    return plane


@pytest.fixture
def selector(plane: TieredPlane) -> RackAwareReplicaSelector:
    return RackAwareReplicaSelector(lambda: plane.image, plane.clock)


def replica_for(selector: RackAwareReplicaSelector, plane: TieredPlane, offset: int, rack: str = "rack-2") -> BrokerId:
    return selector.replica_for(plane.partition(), offset, rack, LISTENER)


def test_leader_serves_a_consumer_that_returns_to_a_remote_offset(
    plane: TieredPlane, selector: RackAwareReplicaSelector
) -> None:
    assert replica_for(selector, plane, 2) == 2
    assert [replica_for(selector, plane, 2) for _ in range(3)] == [NO_REPLICA] * 3


def test_returns_are_counted_by_offset_and_rack(plane: TieredPlane, selector: RackAwareReplicaSelector) -> None:
    assert replica_for(selector, plane, 2) == 2
    assert replica_for(selector, plane, 3) == 2
    assert replica_for(selector, plane, 2, "rack-3") == 3


def test_consumer_that_returns_to_a_local_offset_is_redirected_again(
    plane: TieredPlane, selector: RackAwareReplicaSelector
) -> None:
    assert [replica_for(selector, plane, 4) for _ in range(3)] == [2] * 3


def test_replica_gets_another_chance_after_a_minute(plane: TieredPlane, selector: RackAwareReplicaSelector) -> None:
    replica_for(selector, plane, 2)
    plane.clock.advance_ms(REMEMBERED_MS - 1)
    assert replica_for(selector, plane, 2) == NO_REPLICA, "the time begins anew with each fetch"
    plane.clock.advance_ms(REMEMBERED_MS - 1)
    assert replica_for(selector, plane, 2) == NO_REPLICA
    plane.clock.advance_ms(REMEMBERED_MS + 1)
    assert replica_for(selector, plane, 2) == 2
