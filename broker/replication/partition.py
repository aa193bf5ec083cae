"""The role of a replica for its partition, and role changes by the metadata.

    (none) ----> LeaderRole <----> FollowerRole
                 new leader epoch: the state of followers starts anew
                 same leader epoch: only the replicas, the ISR and the partition epoch change

Metadata may arrive late or twice: a lower partition epoch is ignored.
"""

from typing import Protocol

from broker.replication.follower import FollowerRole
from broker.replication.isr import CommittedIsr, IsrState
from broker.replication.leader import NEVER_MS, FollowerProgress, LeaderRole, note_members
from protocol.ids import BrokerId, LeaderEpoch
from protocol.lazy_dataclass import lazy_dataclass

NO_LEADER = -1

Role = LeaderRole | FollowerRole


class Assignment(Protocol):
    """A partition in the metadata (implemented by `PartitionRegistration`). `leader` is -1 if there is none."""

    @property
    def leader(self) -> BrokerId: ...

    @property
    def leader_epoch(self) -> LeaderEpoch: ...

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


@lazy_dataclass(frozen=True, slots=True)
class RoleChange:
    """The role after a change.

    If `is_new_epoch`, the caller must note the epoch in the log (as leader, at the log end offset, even before the
    first append), restart fetching (as follower), and wake all waiters.
    """

    role: Role
    is_new_epoch: bool


def next_role(
    present: Role | None,
    assignment: Assignment,
    *,
    broker_id: BrokerId,
    log_end_offset: int,
    now_ms: int,
    may_lead: bool = True,
) -> RoleChange | None:
    """Apply metadata; return None if the metadata is older than the present role.

    A replica that must not lead yet (`may_lead` is false), because its log lacks records, follows no leader meanwhile.
    """
    if present is not None and assignment.partition_epoch < present.partition_epoch:
        return None
    if assignment.leader == broker_id and may_lead:
        return _lead(present, assignment, broker_id, log_end_offset, now_ms)
    return _follow(present, assignment, broker_id)


def _lead(
    present: Role | None, assignment: Assignment, broker_id: BrokerId, log_end_offset: int, now_ms: int
) -> RoleChange:
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
    """Return the ISR of the metadata, or a proposal that was made since.

    The metadata may only repeat the controller's last answer. A proposal made after that answer may have been accepted,
    and its new member could be elected: forgetting the proposal would let the high watermark pass that replica. (Kafka
    forgets it.)
    """
    if isinstance(present, LeaderRole) and not is_new_epoch and not isinstance(present.isr, CommittedIsr):
        is_known = assignment.partition_epoch == present.partition_epoch
        if is_known and present.isr.maximal.issubset(assignment.replicas):
            return present.isr
    return CommittedIsr(frozenset(assignment.isr))


def _followers(
    present: Role | None, assignment: Assignment, broker_id: BrokerId, now_ms: int, *, is_new_epoch: bool
) -> dict[BrokerId, FollowerProgress]:
    """Return the progress of the other replicas.

    The progress is kept within a leader epoch; a member that leaves the ISR is no longer caught up. In the next epoch
    of the same leader, the caught-up times start anew. If another broker led, the progress starts empty, even without
    log end offsets, so that the high watermark waits for fetches.

    Another broker may also have led where the metadata skips an epoch: this replica's metadata arrives in one piece,
    with this broker as leader before and after, while a follower's metadata may arrive in pieces. Such a follower would
    follow the leader in between and truncate; counting its former progress would commit records that it is about to
    lose (KIP-320: a leader commits what followers have acknowledged in its own epoch). (Kafka counts the former
    progress.)
    """
    known = (
        present.followers if isinstance(present, LeaderRole) and assignment.leader_epoch <= present.epoch + 1 else {}
    )
    others = (BrokerId(replica) for replica in assignment.replicas if replica != broker_id)
    followers = {replica: known.get(replica) or FollowerProgress() for replica in others}
    if is_new_epoch:
        for replica, progress in followers.items():
            progress.caught_up_ms = now_ms if replica in assignment.isr else NEVER_MS
            progress.last_fetch_ms, progress.leader_end_at_last_fetch = NEVER_MS, 0
            progress.contact = None
    elif isinstance(present, LeaderRole):
        note_members(followers, present.isr.committed, frozenset(assignment.isr))
    return followers


def _follow(present: Role | None, assignment: Assignment, broker_id: BrokerId) -> RoleChange:
    leader_id = None if assignment.leader in (NO_LEADER, broker_id) else assignment.leader
    follower = FollowerRole(
        broker_id, leader_id, assignment.leader_epoch, assignment.partition_epoch, assignment.replicas
    )
    is_new_epoch = not isinstance(present, FollowerRole) or assignment.leader_epoch > present.epoch
    return RoleChange(follower, is_new_epoch)
