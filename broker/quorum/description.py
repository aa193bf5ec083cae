"""The content of a DescribeQuorum response, independent of its version."""

from typing import NamedTuple

from broker.quorum.identity import NO_NODE, Instant, Listeners, ReplicaKey
from broker.quorum.messages import UNKNOWN_OFFSET
from broker.quorum.progress import ReplicaProgress
from broker.quorum.replica import QuorumReplica
from broker.quorum.state import LeaderState
from protocol.errors import ErrorCode
from protocol.ids import EPOCH_ZERO, BrokerId, LeaderEpoch, Offset
from protocol.lazy_dataclass import lazy_dataclass


class ReplicaStatus(NamedTuple):
    """A replica's log end offset and times as known to the leader; -1 means unknown. Wall-clock times in ms."""

    key: ReplicaKey
    log_end_offset: Offset = UNKNOWN_OFFSET
    last_fetch_ms: int = -1
    last_caught_up_ms: int = -1


class QuorumNode(NamedTuple):
    """The listeners of a voter."""

    id: BrokerId
    listeners: Listeners


@lazy_dataclass(frozen=True, slots=True)
class QuorumDescription:
    """The quorum's state on the leader. With an error, only leader and epoch are set, as far as known."""

    error: ErrorCode
    leader_id: BrokerId = NO_NODE
    epoch: LeaderEpoch = EPOCH_ZERO
    high_watermark: Offset = UNKNOWN_OFFSET
    voters: tuple[ReplicaStatus, ...] = ()
    observers: tuple[ReplicaStatus, ...] = ()
    nodes: tuple[QuorumNode, ...] = ()


def describe(replica: QuorumReplica, now: Instant) -> QuorumDescription:
    """Describe the quorum on the leader, whose own times are `now`. Observers with an expired session are removed."""
    role, hint = replica.role, replica.hint
    if not isinstance(role, LeaderState):
        return QuorumDescription(ErrorCode.NOT_LEADER_OR_FOLLOWER, hint.leader_id, hint.epoch)
    role.progress.expire_observers(now.monotonic_ms - replica.settings.observer_session_timeout_ms)
    own = ReplicaStatus(replica.key, replica.log.end, now.wall_ms, now.wall_ms)
    voters, observers = list(map(_status, role.progress.voters())), list(map(_status, role.progress.observers()))
    (voters if replica.voters.has(replica.key) else observers).append(own)
    return QuorumDescription(
        ErrorCode.NONE,
        replica.key.id,
        replica.term.epoch,
        replica.committed,
        tuple(sorted(voters)),
        tuple(sorted(observers)),
        tuple(QuorumNode(voter.key.id, voter.listeners) for voter in replica.voters),
    )


def _status(progress: ReplicaProgress) -> ReplicaStatus:
    return ReplicaStatus(progress.key, progress.end_offset, _wall_ms(progress.last_fetch), _wall_ms(progress.caught_up))


def _wall_ms(instant: Instant | None) -> int:
    return -1 if instant is None else instant.wall_ms
