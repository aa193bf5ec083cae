"""Static membership (KIP-345), and leaders that must not assign partitions (KIP-814)."""

import pytest

from broker.groups.state import GroupState
from protocol.errors import ErrorCode
from protocol.messages.leave_group import MemberIdentity
from tests.support.harnesses.group_harness import GroupHarness, subscription


def static_group(*names: str) -> GroupHarness:
    """Return a Stable group whose clients have the instance ids i-<name>."""
    b = GroupHarness()
    for name in names:
        b.client(name, instance_id=f"i-{name}")
    b.stable_group(*names)
    return b


def restarted(b: GroupHarness, name: str) -> str:
    """Restart the client's process, which keeps only its instance id; return its new member id."""
    old = b.client(name).member_id
    b.client(name, member_id="")
    return old


def test_static_member_joins_without_a_second_request() -> None:
    b = GroupHarness()
    b.join("a", instance_id="i", follow_up=False)
    assert list(b.group.members) == ["i-1"]


def test_restarted_static_member_takes_over_without_a_rebalance() -> None:
    b = static_group("a", "b")
    old = restarted(b, "b")
    box = b.join("b")
    assert box.joined.generation_id == 1
    assert box.joined.member_id == "i-b-3"
    assert b.state() is GroupState.STABLE
    assert b.sync("b").synced.assignment == b"b"
    assert old not in b.group.members


def test_new_member_id_survives_a_failover() -> None:
    b = static_group("a", "b")
    restarted(b, "b")
    b.join("b")
    b.restart()
    assert b.heartbeat("b") is ErrorCode.NONE
    assert b.group.members["i-b-3"].assignment == b"b"


def test_old_process_is_fenced() -> None:
    b = static_group("a")
    old = restarted(b, "a")
    b.join("a")
    b.client("zombie", instance_id="i-a", member_id=old, generation=1)
    assert b.heartbeat("zombie") is ErrorCode.FENCED_INSTANCE_ID
    assert b.sync("zombie").error is ErrorCode.FENCED_INSTANCE_ID
    assert b.join("zombie").error is ErrorCode.FENCED_INSTANCE_ID


def test_restarted_leader_must_skip_the_assignment() -> None:
    """KIP-814: the leader gets the members, with their subscriptions, but does not assign partitions."""
    b = static_group("a", "b")
    restarted(b, "a")
    box = b.join("a", version=9)
    assert box.joined.skip_assignment
    assert box.joined.leader == "i-a-3"
    assert len(box.joined.members) == 2


def test_restarted_follower_does_not_skip_the_assignment() -> None:
    b = static_group("a", "b")
    restarted(b, "b")
    box = b.join("b", version=9)
    assert not box.joined.skip_assignment
    assert box.joined.members == []


def test_restarted_leader_before_version_9_sees_the_old_member_id_as_leader() -> None:
    b = static_group("a", "b")
    old = restarted(b, "a")
    box = b.join("a", version=8)
    assert box.joined.leader == old
    assert box.joined.members == []
    assert not box.joined.skip_assignment
    assert b.group.leader == "i-a-3"


def test_failed_takeover_restores_the_old_member_id() -> None:
    b = static_group("a", "b")
    old = restarted(b, "b")
    b.log.fail_next = ErrorCode.NOT_LEADER_OR_FOLLOWER
    box = b.join("b", session_ms=20_000)
    assert (box.error, box.joined.member_id) == (ErrorCode.NOT_COORDINATOR, "")
    b.client("survivor", instance_id="i-b", member_id=old, generation=1)
    assert b.heartbeat("survivor") is ErrorCode.NONE
    assert b.group.members[old].session_timeout_ms == 10_000


def test_takeover_with_timed_out_commit_stays_in_effect() -> None:
    """The client gets an error and retries. Restoring the old id would make memory differ from the log."""
    b = static_group("a", "b")
    restarted(b, "b")
    b.log.holds_commits = True
    box = b.join("b")
    b.advance(5)
    assert box.error is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert "i-b-3" in b.group.members
    b.log.commit()
    assert "i-b-3" in b.replayed_shard().groups.get_or_raise("g").members


def test_takeover_that_changes_the_protocol_starts_a_rebalance() -> None:
    b = GroupHarness()
    b.client("a", instance_id="i-a", protocols={"range": b"r", "sticky": b"s"})
    b.client("b", instance_id="i-b", protocols={"range": b"r", "sticky": b"s"})
    b.stable_group("a", "b")
    restarted(b, "b")
    box = b.join("b", protocols={"sticky": b"s"})
    assert box.answer is None
    assert b.state() is GroupState.PREPARING_REBALANCE


def test_takeover_with_another_subscription_keeps_the_generation() -> None:
    b = static_group("a", "b")
    restarted(b, "b")
    box = b.join("b", protocols={"range": subscription("other")})
    assert box.joined.generation_id == 1


def test_takeover_during_join_phase_fences_the_parked_member() -> None:
    b = static_group("a", "b")
    parked = b.join("a")  # the leader starts a rebalance
    restarted(b, "a")
    box = b.join("a")
    assert parked.error is ErrorCode.FENCED_INSTANCE_ID
    b.join("b")
    assert box.joined.generation_id == 2


def test_takeover_while_assignments_are_awaited_restarts_the_rebalance() -> None:
    b = GroupHarness()
    for name in ("a", "b"):
        b.client(name, instance_id=f"i-{name}")
        b.join(name)
    b.advance(9)
    parked = b.sync("b")
    restarted(b, "b")
    b.join("b")
    assert parked.error is ErrorCode.FENCED_INSTANCE_ID
    assert b.state() is GroupState.PREPARING_REBALANCE


def test_takeover_in_flight_joins_a_rebalance_that_begins() -> None:
    b = static_group("a", "b")
    restarted(b, "b")
    b.log.holds_commits = True
    box = b.join("b")
    b.join("a")  # the leader starts a rebalance before the takeover is committed
    assert box.joined.generation_id == 2
    b.log.commit()
    assert box.joined.generation_id == 2


def test_absent_static_member_stays_until_its_session_expires() -> None:
    b = GroupHarness()
    b.client("a", instance_id="i-a")
    b.client("b", instance_id="i-b")
    b.stable_group("a", "b", session_ms=60_000, rebalance_ms=10_000)
    box = b.join("a", session_ms=60_000, rebalance_ms=10_000)
    b.advance(10)
    assert box.joined.generation_id == 2
    assert len(box.joined.members) == 2


def test_rebalance_without_joins_lasts_until_static_members_expire() -> None:
    b = GroupHarness()
    b.client("s", instance_id="i-s")
    b.stable_group("a", "s", session_ms=60_000, rebalance_ms=10_000)
    b.leave("a")
    b.advance(45)
    assert b.state() is GroupState.PREPARING_REBALANCE
    b.advance(15)
    assert b.state() is GroupState.EMPTY


def test_administrator_removes_a_static_member_by_its_instance() -> None:
    b = static_group("a", "b")
    leavers = [MemberIdentity("", "i-b"), MemberIdentity("", "i-unknown"), MemberIdentity("", None)]
    response = b.execute(lambda shard: shard.leave_group("g", leavers), soft=True)
    assert [member.error_code for member in response.members] == [0, 25, 25]
    assert b.state() is GroupState.PREPARING_REBALANCE


@pytest.mark.parametrize("member_id", ["i-b-2", "other"])
def test_leave_checks_the_instance_id_of_the_member(member_id: str) -> None:
    b = static_group("a", "b")
    leavers = [MemberIdentity(member_id, "i-a")]
    response = b.execute(lambda shard: shard.leave_group("g", leavers), soft=True)
    assert response.members[0].error_code == ErrorCode.FENCED_INSTANCE_ID


def test_unknown_instance_is_an_unknown_member() -> None:
    b = static_group("a")
    b.client("x", instance_id="i-x", member_id="x-1", generation=1)
    assert b.heartbeat("x") is ErrorCode.UNKNOWN_MEMBER_ID
