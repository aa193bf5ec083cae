"""Requests of a replica about itself (KIP-853, KIP-1186, `broker.quorum.membership.requests`)."""

from broker.quorum.identity import KRaftVersions, ListenerEndpoint, SocketAddress
from broker.quorum.membership.requests import auto_join, update_of_entry
from broker.quorum.membership.voters import VoterSet
from broker.quorum.messages import AddVoterRequest, RemoveVoterRequest
from protocol.ids import LeaderEpoch
from tests.broker.quorum.membership.test_voters import key, voter, voters
from tests.support.quorum_values import make_static_voter, make_update_voter_request

CLUSTER = "cluster"
STATIC = VoterSet.of_static([make_static_voter(1, SocketAddress("node1", 9093))], "CONTROLLER")


def test_voter_sends_update_voter_while_its_entry_differs() -> None:
    own = voter(2)
    assert update_of_entry(own, voters(1, 2), 1, cluster_id=CLUSTER, epoch=LeaderEpoch(5)) is None
    moved = own._replace(listeners=(ListenerEndpoint("CONTROLLER", "elsewhere", 1),))
    newer = own._replace(versions=KRaftVersions(0, 2))
    for changed in (moved, newer):
        request = update_of_entry(changed, voters(1, 2), 1, cluster_id=CLUSTER, epoch=LeaderEpoch(5))
        assert request == make_update_voter_request(CLUSTER, 5, key(2), changed.listeners, changed.versions)


def test_observer_sends_no_update_voter() -> None:
    assert update_of_entry(voter(3), voters(1, 2), 1, cluster_id=CLUSTER, epoch=LeaderEpoch(5)) is None
    assert update_of_entry(voter(2, home=9), voters(1, 2), 1, cluster_id=CLUSTER, epoch=LeaderEpoch(5)) is None


def test_static_voter_sends_update_voter_once_per_leader() -> None:
    own = voter(1)
    for updated_epoch, is_told in [(-1, False), (4, False), (5, True)]:
        request = update_of_entry(
            own, STATIC, 0, cluster_id=CLUSTER, epoch=LeaderEpoch(5), updated_epoch=LeaderEpoch(updated_epoch)
        )
        assert (request is None) is is_told


def test_controller_that_is_not_a_voter_adds_itself() -> None:
    own = voter(3)
    assert auto_join(own, voters(1, 2), 1, cluster_id=CLUSTER) == AddVoterRequest(CLUSTER, key(3), own.listeners, False)


def test_controller_with_a_new_disk_first_removes_its_former_voter() -> None:
    own = voter(2, home=9)
    assert auto_join(own, voters(1, 2), 1, cluster_id=CLUSTER) == RemoveVoterRequest(CLUSTER, key(2))
    assert isinstance(auto_join(own, voters(1), 1, cluster_id=CLUSTER), AddVoterRequest)


def test_auto_join_needs_known_dynamic_voters_without_this_node() -> None:
    assert auto_join(voter(2), voters(1, 2), 1, cluster_id=CLUSTER) is None
    assert auto_join(voter(2), voters(), 1, cluster_id=CLUSTER) is None
    assert auto_join(voter(2), STATIC, 0, cluster_id=CLUSTER) is None
