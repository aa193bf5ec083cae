"""What a replica asks of the leader about itself: to update its entry among the voters, or to become one (KIP-853).

Sent by followers and observers every few fetch timeouts, for as long as there is a reason; the leader's side is
`reconfiguration.py`.
"""

from broker.quorum.identity import NO_NODE
from broker.quorum.membership.reconfiguration import DYNAMIC_VERSION
from broker.quorum.membership.voters import VoterNode, VoterSet
from broker.quorum.messages import AddVoterRequest, RemoveVoterRequest, UpdateVoterRequest


def update_of_entry(
    own: VoterNode, voters: VoterSet, kraft_version: int, *, cluster_id: str, epoch: int, told_epoch: int = NO_NODE
) -> UpdateVoterRequest | None:
    """What a voter tells the leader of itself; None if there is no need.

    1. It is a voter.
    2. At kraft.version 1: its entry is not what it is now.
       At version 0 there is nothing to correct, but every leader must hear it once (`told_epoch` is the last in which
       one did), so that the step to version 1 is possible.
    """
    if not voters.has(own.key):
        return None
    is_due = voters.get(own.key.id) != own if kraft_version >= DYNAMIC_VERSION else told_epoch != epoch
    return UpdateVoterRequest(cluster_id, epoch, own.key, own.listeners, own.versions) if is_due else None


def auto_join(
    own: VoterNode, voters: VoterSet, kraft_version: int, *, cluster_id: str
) -> AddVoterRequest | RemoveVoterRequest | None:
    """The next step of a controller that becomes a voter by itself (`controller.quorum.auto.join.enable`, KIP-1186).

    1. The voters may change, and it is none of them; and it knows some: an empty set means that it knows nothing yet.
    2. If a voter has its id, and another directory, that was this node before it lost its disk: remove it.
    3. Else: add this node. It does not wait for the commit, which may need its own next fetch.

    What it knows may be old; the leader, who knows better, refuses then. A node that was removed comes back at once:
    stop it, or switch this off, before removing it (KAFKA-19850).
    """
    if kraft_version < DYNAMIC_VERSION or not len(voters) or voters.has(own.key):
        return None
    former = voters.get(own.key.id)
    if former is not None:
        return RemoveVoterRequest(cluster_id, former.key)
    return AddVoterRequest(cluster_id, own.key, own.listeners, ack_when_committed=False)
