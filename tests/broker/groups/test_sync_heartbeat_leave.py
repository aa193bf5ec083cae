"""SyncGroup, Heartbeat and LeaveGroup, rule by rule."""

import pytest

from broker.groups.state import GroupState
from protocol.errors import ErrorCode
from protocol.messages.leave_group import MemberIdentity
from tests.support.harnesses.group_harness import GroupHarness


def completing(*names: str, session_ms: int = 10_000, rebalance_ms: int = 60_000) -> GroupHarness:
    """Return a group whose members have joined and must send SyncGroup; the first one leads."""
    b = GroupHarness()
    for name in names:
        b.join(name, session_ms=session_ms, rebalance_ms=rebalance_ms)
    b.advance(3 * (len(names) + 1))
    assert b.state() is GroupState.COMPLETING_REBALANCE
    return b


# SyncGroup


def test_members_get_their_assignment_once_it_is_committed() -> None:
    b = completing("a", "b")
    b.log.holds_commits = True
    follower = b.sync("b")
    leader = b.sync("a", {"a": b"1", "b": b"2"})
    assert follower.answer is None
    assert b.state() is GroupState.COMPLETING_REBALANCE
    b.log.commit()
    assert follower.synced.assignment == b"2"
    assert leader.synced.assignment == b"1"
    assert (leader.synced.protocol_type, leader.synced.protocol_name) == ("consumer", "range")
    assert b.state() is GroupState.STABLE


def test_member_without_assignment_gets_an_empty_one() -> None:
    b = completing("a", "b")
    follower = b.sync("b")
    b.sync("a", {"a": b"1"})
    assert (follower.error, follower.synced.assignment) == (ErrorCode.NONE, b"")


def test_assignment_of_an_unknown_member_is_ignored() -> None:
    b = completing("a")
    b.client("unknown", member_id="s-9")
    assert b.sync("a", {"a": b"1", "unknown": b"2"}).synced.assignment == b"1"


def test_sync_in_a_stable_group_is_answered_at_once() -> None:
    b = GroupHarness()
    b.stable_group("a", "b")
    assert b.sync("b").synced.assignment == b"b"


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.UNKNOWN_SERVER_ERROR),
        (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.NOT_COORDINATOR),
    ],
)
def test_failed_write_of_an_assignment_starts_a_rebalance(error: ErrorCode, expected: ErrorCode) -> None:
    b = completing("a", "b")
    follower = b.sync("b")
    b.log.fail_next = error
    leader = b.sync("a", {"a": b"1", "b": b"2"})
    assert (leader.error, follower.error) == (expected, expected)
    assert b.state() is GroupState.PREPARING_REBALANCE
    assert b.group.members["a-1"].assignment == b""


def test_commit_timeout_of_an_assignment_starts_a_rebalance() -> None:
    b = completing("a")
    b.log.holds_commits = True
    leader = b.sync("a", {"a": b"1"})
    b.advance(5)
    assert leader.error is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert b.state() is GroupState.PREPARING_REBALANCE
    b.log.commit()
    assert b.state() is GroupState.PREPARING_REBALANCE


def test_late_commit_of_an_old_generations_assignment_changes_nothing() -> None:
    b = completing("a", "b")
    b.log.holds_commits = True
    parked = b.sync("a", {"a": b"1", "b": b"2"})
    b.join("c")
    assert parked.error is ErrorCode.REBALANCE_IN_PROGRESS
    b.log.commit()
    assert b.state() is GroupState.PREPARING_REBALANCE
    assert b.group.members["a-1"].assignment == b""


def test_repeated_assignment_of_the_leader_is_ignored() -> None:
    """The second assignment must not reach the log: the members are about to use the first."""
    b = completing("a", "b")
    b.log.holds_commits = True
    lost = b.sync("a", {"a": b"1", "b": b"2"})
    written = b.log.end_offset
    again = b.sync("a", {"a": b"3", "b": b"4"})
    assert lost.error is ErrorCode.REBALANCE_IN_PROGRESS
    assert b.log.end_offset == written
    b.log.commit()
    assert again.synced.assignment == b"1"


def test_sync_is_refused_while_members_join() -> None:
    b = GroupHarness()
    b.stable_group("a", "b")
    b.join("a")
    assert b.sync("b").error is ErrorCode.REBALANCE_IN_PROGRESS


def test_sync_checks_group_member_generation_and_protocol() -> None:
    b = completing("a")
    assert b.sync("a", group="unknown").error is ErrorCode.UNKNOWN_MEMBER_ID
    assert b.sync("a", generation=7).error is ErrorCode.ILLEGAL_GENERATION
    assert b.sync("a", protocol_type="connect").error is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert b.sync("a", protocol="sticky").error is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert b.sync("unknown").error is ErrorCode.UNKNOWN_MEMBER_ID
    assert b.sync("a", {"a": b""}, protocol_type=None, protocol="range").error is ErrorCode.NONE


def test_sync_in_an_empty_group_is_refused() -> None:
    b = GroupHarness()
    b.stable_group("a")
    b.leave("a")
    assert b.sync("a").error is ErrorCode.UNKNOWN_MEMBER_ID


def test_members_without_sync_are_removed_at_the_rebalance_timeout() -> None:
    b = completing("a", "b", rebalance_ms=20_000, session_ms=120_000)
    b.sync("a", {"a": b"1", "b": b"2"})
    assert b.state() is GroupState.STABLE
    b.advance(20)
    assert list(b.group.members) == ["a-1"]
    assert b.state() is GroupState.PREPARING_REBALANCE


def test_leader_without_sync_is_removed_and_the_group_rebalances() -> None:
    b = completing("a", "b", rebalance_ms=20_000, session_ms=120_000)
    parked = b.sync("b")
    b.advance(20)
    assert parked.error is ErrorCode.REBALANCE_IN_PROGRESS
    assert b.group.leader == "b-2"


def test_unloading_answers_parked_syncs_with_not_coordinator() -> None:
    b = completing("a", "b")
    parked = b.sync("b")
    b.hosted.close()
    assert parked.error is ErrorCode.NOT_COORDINATOR


# Heartbeat


def test_heartbeats_renew_the_session() -> None:
    b = GroupHarness()
    b.stable_group("a", session_ms=6_000)
    for _ in range(10):
        b.advance(5)
        assert b.heartbeat("a") is ErrorCode.NONE
    b.advance(6)
    assert b.state() is GroupState.EMPTY


def test_heartbeats_are_accepted_before_the_assignment() -> None:
    assert completing("a").heartbeat("a") is ErrorCode.NONE


def test_heartbeat_checks_group_member_and_generation() -> None:
    b = GroupHarness()
    b.stable_group("a")
    assert b.heartbeat("a", group="unknown") is ErrorCode.UNKNOWN_MEMBER_ID
    assert b.heartbeat("unknown") is ErrorCode.UNKNOWN_MEMBER_ID
    assert b.heartbeat("a", generation=0) is ErrorCode.ILLEGAL_GENERATION


def test_expired_session_starts_a_rebalance() -> None:
    b = GroupHarness()
    b.stable_group("a", "b", session_ms=10_000)
    b.advance(9)
    b.heartbeat("a")
    b.advance(1)
    assert list(b.group.members) == ["a-1"]
    assert b.heartbeat("a") is ErrorCode.REBALANCE_IN_PROGRESS


def test_expiry_of_the_last_absent_member_ends_the_join_phase() -> None:
    b = GroupHarness()
    b.stable_group("a", "b", session_ms=10_000)
    box = b.join("a")
    assert box.answer is None
    b.advance(10)
    assert box.joined.generation_id == 2


def test_offset_commit_renews_the_session() -> None:
    b = GroupHarness()
    b.stable_group("a", session_ms=6_000)
    b.advance(5)
    b.commit("a", {("t", 0): 1})
    b.advance(5)
    assert b.state() is GroupState.STABLE


# LeaveGroup


def test_leave_starts_a_rebalance() -> None:
    b = GroupHarness()
    b.stable_group("a", "b")
    response = b.leave("a")
    assert response.error_code == 0
    assert [(member.member_id, member.error_code) for member in response.members] == [("a-1", 0)]
    assert (b.state(), b.group.leader) == (GroupState.PREPARING_REBALANCE, "b-2")


def test_leave_of_the_last_member_writes_an_empty_group() -> None:
    b = GroupHarness()
    b.stable_group("a")
    b.leave("a")
    assert (b.state(), b.group.generation, b.group.protocol) == (GroupState.EMPTY, 2, None)
    replayed = b.replayed_shard().groups.get_or_raise("g")
    assert (replayed.state, replayed.generation, replayed.protocol_type) == (GroupState.EMPTY, 2, "consumer")


def test_leave_of_several_members_starts_one_rebalance() -> None:
    b = GroupHarness()
    b.stable_group("a", "b", "c")
    b.leave("a", "b")
    assert list(b.group.members) == ["c-3"]
    assert b.join("c").joined.generation_id == 2


def test_leave_ends_the_join_phase_if_all_others_have_rejoined() -> None:
    b = GroupHarness()
    b.stable_group("a", "b")
    box = b.join("a")
    b.leave("b")
    assert box.joined.generation_id == 2


def test_parked_join_of_a_leaving_member_is_answered() -> None:
    b = GroupHarness()
    b.stable_group("a", "b")
    box = b.join("a")
    b.leave("a")
    assert box.error is ErrorCode.UNKNOWN_MEMBER_ID


def test_pending_member_may_leave() -> None:
    b = GroupHarness()
    b.stable_group("a")
    b.join("p", follow_up=False)
    assert b.leave("p").members[0].error_code == 0
    assert not b.group.pending_joins


def test_leave_of_an_unknown_group_is_an_error_per_member() -> None:
    b = GroupHarness()
    response = b.execute(lambda shard: shard.leave_group("unknown", [MemberIdentity("m", None)]), soft=True)
    assert (response.error_code, response.members[0].error_code) == (0, ErrorCode.UNKNOWN_MEMBER_ID)


def test_leave_of_an_unknown_member_starts_no_rebalance() -> None:
    b = GroupHarness()
    b.stable_group("a")
    assert b.leave("unknown").members[0].error_code == ErrorCode.UNKNOWN_MEMBER_ID
    assert b.state() is GroupState.STABLE
