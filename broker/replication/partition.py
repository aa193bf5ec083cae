"""What a replica is for its partition, and how metadata changes that.

    (none) ----> Leader <----> Follower
                 new reign: a new leader epoch; what is known of followers starts anew
                 same reign: only membership and the partition epoch change

Metadata may arrive late or twice: a lower partition epoch is ignored.
"""

from dataclasses import dataclass
from typing import Protocol

from broker.replication.follower import FollowerRole
from broker.replication.isr import CommittedIsr, IsrState
from broker.replication.leader import NEVER_MS, FollowerProgress, LeaderRole

NO_LEADER = -1

Role = LeaderRole | FollowerRole


class Assignment(Protocol):
    """A partition as the metadata log has it (the image's registration fits). `leader` is -1 while there is none."""

    @property
    def leader(self) -> int: ...

    @property
    def leader_epoch(self) -> int: ...

    @property
    def partition_epoch(self) -> int: ...

    @property
    def replicas(self) -> tuple[int, ...]: ...

    @property
    def isr(self) -> tuple[int, ...]: ...

    @property
    def adding_replicas(self) -> tuple[int, ...]: ...

    @property
    def removing_replicas(self) -> tuple[int, ...]: ...


@dataclass(frozen=True, slots=True)
class RoleChange:
    """The role after a change. `is_new_epoch` asks the caller to note the epoch in the log (as leader, with its log end
    offset, even before anything is appended), to restart fetching (as follower), and to wake who waits."""

    role: Role
    is_new_epoch: bool


def next_role(
    present: Role | None,
    assignment: Assignment,
    *,
    broker_id: int,
    log_end_offset: int,
    now_ms: int,
    may_lead: bool = True,
) -> RoleChange | None:
    """Apply metadata; None if it is older than what is known.

    A replica that may not lead yet, because its log is not what it must be, follows nobody until it may.
    """
    if present is not None and assignment.partition_epoch < present.partition_epoch:
        return None
    if assignment.leader == broker_id and may_lead:
        return _lead(present, assignment, broker_id, log_end_offset, now_ms)
    return _follow(present, assignment, broker_id)


def _lead(present: Role | None, assignment: Assignment, broker_id: int, log_end_offset: int, now_ms: int) -> RoleChange:
    is_new_epoch = not isinstance(present, LeaderRole) or assignment.leader_epoch > present.epoch
    leader = LeaderRole(
        broker_id=broker_id,
        epoch=assignment.leader_epoch,
        partition_epoch=assignment.partition_epoch,
        epoch_start_offset=log_end_offset if is_new_epoch else _epoch_start(present),
        replicas=assignment.replicas,
        isr=_isr(present, assignment, is_new_epoch=is_new_epoch),
        followers=_followers(present, assignment, broker_id, now_ms, is_new_epoch=is_new_epoch),
        coming=assignment.adding_replicas,
        is_reassigning=bool(assignment.adding_replicas or assignment.removing_replicas),
    )
    return RoleChange(leader, is_new_epoch)


def _epoch_start(present: Role | None) -> int:
    assert isinstance(present, LeaderRole)
    return present.epoch_start_offset


def _isr(present: Role | None, assignment: Assignment, *, is_new_epoch: bool) -> IsrState:
    """The in-sync set of the metadata; but where that is only what the controller has answered us already, a proposal
    made since then stands. It may have been accepted, and then whoever it adds could be elected: to forget it would let
    the high watermark pass that replica by. (Kafka forgets it.)"""
    if isinstance(present, LeaderRole) and not is_new_epoch and not isinstance(present.isr, CommittedIsr):
        is_known = assignment.partition_epoch == present.partition_epoch
        if is_known and present.isr.maximal.issubset(assignment.replicas):
            return present.isr
    return CommittedIsr(frozenset(assignment.isr))


def _followers(
    present: Role | None, assignment: Assignment, broker_id: int, now_ms: int, *, is_new_epoch: bool
) -> dict[int, FollowerProgress]:
    """What is known of the other replicas: kept within a reign, with a fresh caught-up time in the next reign of the
    same leader, nothing (not even a log end, so that the high watermark waits for their fetches) if another led.

    Another may have led, too, where the metadata skips an epoch: it comes in one piece, and this replica led before and
    leads again. To a follower it may come piece by piece. One that still held what it told us in our last reign would
    follow the leader in between, and be cut: to count it now would commit what it is about to lose (KIP-320: a leader
    commits what followers have acknowledged in its epoch). (Kafka counts it.)
    """
    known = (
        present.followers if isinstance(present, LeaderRole) and assignment.leader_epoch <= present.epoch + 1 else {}
    )
    others = (replica for replica in assignment.replicas if replica != broker_id)
    followers = {replica: known.get(replica) or FollowerProgress() for replica in others}
    if is_new_epoch:
        for replica, progress in followers.items():
            progress.caught_up_ms = now_ms if replica in assignment.isr else NEVER_MS
            progress.last_fetch_ms, progress.leader_end_at_last_fetch = NEVER_MS, 0
    return followers


def _follow(present: Role | None, assignment: Assignment, broker_id: int) -> RoleChange:
    leader_id = None if assignment.leader in (NO_LEADER, broker_id) else assignment.leader
    follower = FollowerRole(
        broker_id, leader_id, assignment.leader_epoch, assignment.partition_epoch, assignment.replicas
    )
    is_new_epoch = not isinstance(present, FollowerRole) or assignment.leader_epoch > present.epoch
    return RoleChange(follower, is_new_epoch)
