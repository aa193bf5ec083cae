"""Role changes by the metadata (`broker.replication.partition`)."""

from dataclasses import dataclass

from broker.replication.follower import FollowerRole
from broker.replication.isr import CommittedIsr, PendingExpand
from broker.replication.leader import NEVER_MS, FollowerFetch, LeaderRole
from broker.replication.partition import Role, next_role
from protocol.ids import BrokerEpoch, BrokerId, LeaderEpoch

FIRST_BROKER = BrokerId(1)
FIRST_EPOCH = LeaderEpoch(0)


@dataclass(frozen=True)
class Registration:
    leader: BrokerId = FIRST_BROKER
    leader_epoch: LeaderEpoch = FIRST_EPOCH
    partition_epoch: int = 0
    replicas: tuple[int, ...] = (1, 2, 3)
    isr: tuple[int, ...] = (1, 2)
    adding_replicas: tuple[int, ...] = ()
    removing_replicas: tuple[int, ...] = ()


def become(present: Role | None, assignment: Registration, log_end_offset: int = 10, now_ms: int = 500) -> Role:
    change = next_role(present, assignment, broker_id=BrokerId(1), log_end_offset=log_end_offset, now_ms=now_ms)
    assert change is not None
    return change.role


def lead(present: Role | None, assignment: Registration, log_end_offset: int = 10, now_ms: int = 500) -> LeaderRole:
    role = become(present, assignment, log_end_offset, now_ms)
    assert isinstance(role, LeaderRole)
    return role


def test_new_leader_starts_its_epoch_at_its_log_end_without_follower_progress() -> None:
    role = lead(None, Registration())
    assert (role.epoch, role.epoch_start_offset) == (0, 10)
    assert role.isr == CommittedIsr(frozenset({1, 2}))
    assert {b: (f.log_end_offset, f.caught_up_ms) for b, f in role.followers.items()} == {
        2: (-1, 500),
        3: (-1, NEVER_MS),
    }


def test_replicas_and_isr_change_within_a_leader_epoch() -> None:
    first = lead(None, Registration())
    first.on_follower_fetch(FollowerFetch(BrokerId(2), BrokerEpoch(-1), LeaderEpoch(0), 9, 0), 10, 600, BrokerEpoch(-1))
    first.isr = PendingExpand(frozenset({1, 2}), 3)
    changed = Registration(partition_epoch=1, replicas=(1, 2, 4), isr=(1, 2))
    change = next_role(first, changed, broker_id=BrokerId(1), log_end_offset=50, now_ms=700)
    assert change is not None
    assert not change.is_new_epoch
    role = change.role
    assert isinstance(role, LeaderRole)
    assert (role.epoch_start_offset, role.partition_epoch) == (10, 1)
    assert role.isr == CommittedIsr(frozenset({1, 2}))
    assert {b: f.log_end_offset for b, f in role.followers.items()} == {2: 9, 4: -1}


def test_member_that_the_controller_removes_is_no_longer_caught_up() -> None:
    first = lead(None, Registration(isr=(1, 2, 3)))
    second = lead(first, Registration(isr=(1, 2), partition_epoch=1))
    assert {b: f.caught_up_ms for b, f in second.followers.items()} == {2: 500, 3: NEVER_MS}


def test_repeated_metadata_keeps_a_proposal() -> None:
    """The controller's answer came first, and a newer proposal may have been accepted already."""
    first = lead(None, Registration())
    first.on_isr_confirmed(LeaderEpoch(0), 3, frozenset({1, 2}))
    first.isr = first.isr.propose_expand(3) if isinstance(first.isr, CommittedIsr) else first.isr
    role = lead(first, Registration(partition_epoch=3))
    assert role.isr is first.isr
    newer = lead(first, Registration(partition_epoch=4, isr=(1, 2, 3)))
    assert newer.isr == CommittedIsr(frozenset({1, 2, 3}))
    next_reign = lead(first, Registration(leader_epoch=LeaderEpoch(1), partition_epoch=3))
    assert next_reign.isr == CommittedIsr(frozenset({1, 2}))


def test_proposal_of_an_unassigned_replica_is_dropped() -> None:
    """The answered change also ended a reassignment; the controller would never admit the replica."""
    first = lead(None, Registration())
    first.on_isr_confirmed(LeaderEpoch(0), 3, frozenset({1, 2}))
    first.isr = PendingExpand(frozenset({1, 2}), 3)
    role = lead(first, Registration(partition_epoch=3, replicas=(1, 2)))
    assert role.isr == CommittedIsr(frozenset({1, 2}))


def test_reelected_leader_keeps_log_ends_and_resets_caught_up_times() -> None:
    first = lead(None, Registration())
    first.on_follower_fetch(
        FollowerFetch(BrokerId(3), BrokerEpoch(-1), LeaderEpoch(0), 10, 0), 10, 600, BrokerEpoch(-1)
    )
    role = lead(first, Registration(leader_epoch=LeaderEpoch(1), partition_epoch=1), 12, 900)
    assert (role.epoch, role.epoch_start_offset) == (1, 12)
    assert role.followers[BrokerId(3)].log_end_offset == 10
    assert (role.followers[BrokerId(2)].caught_up_ms, role.followers[BrokerId(3)].caught_up_ms) == (900, NEVER_MS)


def test_leader_that_skips_an_epoch_forgets_follower_progress() -> None:
    """Another broker may have led meanwhile; followers may have yet to receive that metadata and to truncate."""
    first = lead(None, Registration())
    first.on_follower_fetch(
        FollowerFetch(BrokerId(2), BrokerEpoch(-1), LeaderEpoch(0), 10, 0), 10, 600, BrokerEpoch(-1)
    )
    later = lead(first, Registration(leader_epoch=LeaderEpoch(2), partition_epoch=2), now_ms=700)
    assert (later.followers[BrokerId(2)].log_end_offset, later.followers[BrokerId(2)].caught_up_ms) == (-1, 700)


def test_follower_that_becomes_leader_has_no_follower_progress() -> None:
    follower = become(None, Registration(leader=BrokerId(2)))
    role = lead(follower, Registration(leader_epoch=LeaderEpoch(1), partition_epoch=1), 12)
    assert all(f.log_end_offset == -1 for f in role.followers.values())


def test_replica_follows_the_assigned_leader() -> None:
    change = next_role(
        None,
        Registration(leader=BrokerId(2), leader_epoch=LeaderEpoch(4)),
        broker_id=BrokerId(1),
        log_end_offset=0,
        now_ms=0,
    )
    assert change is not None
    assert change.is_new_epoch
    assert change.role == FollowerRole(BrokerId(1), BrokerId(2), LeaderEpoch(4), 0, (1, 2, 3))
    same = next_role(
        change.role, Registration(BrokerId(2), LeaderEpoch(4), 1), broker_id=BrokerId(1), log_end_offset=0, now_ms=0
    )
    assert same is not None
    assert not same.is_new_epoch


def test_partition_without_leader_has_a_follower_role() -> None:
    role = become(None, Registration(leader=BrokerId(-1), leader_epoch=LeaderEpoch(3)))
    assert isinstance(role, FollowerRole)
    assert role.leader_id is None


def test_older_metadata_is_ignored() -> None:
    role = become(None, Registration(partition_epoch=5))
    assert next_role(role, Registration(partition_epoch=4), broker_id=BrokerId(1), log_end_offset=0, now_ms=0) is None


def test_adding_replica_does_not_count_as_missing() -> None:
    role = lead(None, Registration(replicas=(1, 2, 3), isr=(1, 2), adding_replicas=(3,)))
    assert role.standing(2) == (False, False, True, True)
    role = lead(None, Registration(replicas=(1, 2, 3), isr=(1,), adding_replicas=(3,)))
    assert role.standing(2) == (True, True, False, True)
    role = lead(None, Registration(replicas=(1, 2, 3), isr=(1, 2, 3), removing_replicas=(2,)))
    assert role.standing(2) == (False, False, False, True)
