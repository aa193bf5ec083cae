"""Requests of a replica about itself: update its entry in the voter set, or become a voter (KIP-853).

Followers and observers send them every few fetch timeouts while needed. `reconfiguration.py` is the leader's side.
"""

from broker.quorum.identity import NO_EPOCH
from broker.quorum.membership.reconfiguration import DYNAMIC_VERSION
from broker.quorum.membership.voters import VoterNode, VoterSet
from broker.quorum.messages import AddVoterRequest, RemoveVoterRequest, UpdateVoterRequest
from protocol.ids import LeaderEpoch


def update_of_entry(
    own: VoterNode,
    voters: VoterSet,
    kraft_version: int,
    *,
    cluster_id: str,
    epoch: LeaderEpoch,
    updated_epoch: LeaderEpoch = NO_EPOCH,
) -> UpdateVoterRequest | None:
    """Return the UpdateVoter request that this node needs to send, or None.

    1. The node is a voter.
    2. At kraft.version 1: its entry differs from its present listeners or versions.
       At version 0 there is no entry to update, but each leader must receive the request once, for a later upgrade to
       version 1. `updated_epoch` is the last epoch in which a leader received it.
    """
    if not voters.has(own.key):
        return None
    is_due = voters.get(own.key.id) != own if kraft_version >= DYNAMIC_VERSION else updated_epoch != epoch
    return UpdateVoterRequest(cluster_id, epoch, own.key, own.listeners, own.versions) if is_due else None


def auto_join(
    own: VoterNode, voters: VoterSet, kraft_version: int, *, cluster_id: str
) -> AddVoterRequest | RemoveVoterRequest | None:
    """Return the next request of a controller that joins the voters (`controller.quorum.auto.join.enable`, KIP-1186).

    1. The node is not a voter, kraft.version allows changes, and the voter set is known (not empty).
    2. A voter with the same id and another directory id is this node before it lost its disk: remove that voter.
    3. Otherwise add this node, without waiting for the commit, which may need the node's own next fetch.

    The leader refuses a request that is based on an outdated voter set. A removed node joins again at once: stop the
    node or disable auto-join before removing it (KAFKA-19850).
    """
    if kraft_version < DYNAMIC_VERSION or not len(voters) or voters.has(own.key):
        return None
    former = voters.get(own.key.id)
    if former is not None:
        return RemoveVoterRequest(cluster_id, former.key)
    return AddVoterRequest(cluster_id, own.key, own.listeners, ack_when_committed=False)
