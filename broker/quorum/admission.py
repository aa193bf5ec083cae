"""Checks that requests pass before they touch anything: the right cluster, epoch, sender and receiver.

A misdirected request, or one from a node that claims to be this one, changes nothing here; its sender learns why.
"""

from broker.quorum.identity import ReplicaKey
from broker.quorum.replica import LARGEST_EPOCH, QuorumReplica
from broker.quorum.state import LeaderState
from protocol.errors import ErrorCode


def cluster_error(replica: QuorumReplica, cluster_id: str | None) -> ErrorCode:
    """None passes: old senders do not say."""
    is_ours = cluster_id is None or cluster_id == replica.settings.cluster_id
    return ErrorCode.NONE if is_ours else ErrorCode.INCONSISTENT_CLUSTER_ID


def voter_error(
    replica: QuorumReplica, cluster_id: str | None, epoch: int, sender_id: int, receiver: ReplicaKey | None
) -> ErrorCode:
    """For Vote, BeginQuorumEpoch and EndQuorumEpoch, in any role.

    Membership is not asked for: either side may know of voters that the other has not heard of (KIP-853).
    """
    if error := cluster_error(replica, cluster_id):
        return error
    if epoch < replica.term.epoch:
        return ErrorCode.FENCED_LEADER_EPOCH
    if sender_id < 0 or sender_id == replica.key.id or epoch > LARGEST_EPOCH:
        return ErrorCode.INVALID_REQUEST
    if receiver is not None and not receiver.matches(replica.key):
        return ErrorCode.INVALID_VOTER_KEY
    return ErrorCode.NONE


def leader_error(replica: QuorumReplica, cluster_id: str | None, epoch: int | None) -> ErrorCode:
    """For requests that only the leader of the sender's epoch answers; None and -1 are any epoch.

    One that shuts down has resigned and leads no more.
    """
    if error := cluster_error(replica, cluster_id):
        return error
    own = replica.term.epoch
    if epoch is not None and 0 <= epoch < own:
        return ErrorCode.FENCED_LEADER_EPOCH
    if epoch is not None and epoch > own:
        return ErrorCode.UNKNOWN_LEADER_EPOCH
    return ErrorCode.NONE if isinstance(replica.role, LeaderState) else ErrorCode.NOT_LEADER_OR_FOLLOWER
