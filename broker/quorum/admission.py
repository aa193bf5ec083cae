"""Validation of requests before they change any state: cluster id, epoch, sender and receiver."""

from broker.quorum.identity import NO_EPOCH, ReplicaKey
from broker.quorum.replica import LARGEST_EPOCH, QuorumReplica
from broker.quorum.state import LeaderState
from protocol.errors import ErrorCode
from protocol.ids import BrokerId, LeaderEpoch


def cluster_error(replica: QuorumReplica, cluster_id: str | None) -> ErrorCode:
    """Accept an absent cluster id, which old versions do not send."""
    is_ours = cluster_id is None or cluster_id == replica.settings.cluster_id
    return ErrorCode.NONE if is_ours else ErrorCode.INCONSISTENT_CLUSTER_ID


def voter_error(
    replica: QuorumReplica, cluster_id: str | None, epoch: LeaderEpoch, sender_id: BrokerId, receiver: ReplicaKey | None
) -> ErrorCode:
    """Validate Vote, BeginQuorumEpoch and EndQuorumEpoch, which any role handles.

    Membership is not checked: either node may know voters that the other does not know yet (KIP-853).
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


def reader_error(replica: QuorumReplica, cluster_id: str | None, sender: ReplicaKey, epoch: LeaderEpoch) -> ErrorCode:
    """Validate Fetch and FetchSnapshot. Only consumers, which have a negative replica id, may omit the epoch (-1).

    A replica that has not learned the leader's epoch may hold other records at the same offsets, so its fetch offset
    must not count for the high watermark.
    """
    return leader_error(replica, cluster_id, None if sender.id < 0 and epoch == NO_EPOCH else epoch)


def leader_error(replica: QuorumReplica, cluster_id: str | None, epoch: LeaderEpoch | None) -> ErrorCode:
    """Validate a request that only the leader of the sender's epoch handles; None means any epoch."""
    if error := cluster_error(replica, cluster_id):
        return error
    own = replica.term.epoch
    if epoch is not None and epoch < own:
        return ErrorCode.FENCED_LEADER_EPOCH
    if epoch is not None and epoch > own:
        return ErrorCode.UNKNOWN_LEADER_EPOCH
    return ErrorCode.NONE if isinstance(replica.role, LeaderState) else ErrorCode.NOT_LEADER_OR_FOLLOWER
