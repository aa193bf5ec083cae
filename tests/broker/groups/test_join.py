"""JoinGroup, rule by rule."""

import pytest

from broker.groups.config import GroupConfig
from broker.groups.state import GroupState
from protocol.errors import ErrorCode
from tests.support.harnesses.group_harness import GroupHarness, subscription

INITIAL_DELAY_S = 3


def make_harness(**settings: int) -> GroupHarness:
    return GroupHarness(GroupConfig(group_coordinator_append_linger_ms=0, **settings))


def test_new_member_must_rejoin_with_its_member_id() -> None:
    """KIP-394."""
    b = make_harness()
    box = b.join("a", follow_up=False)
    assert box.error is ErrorCode.MEMBER_ID_REQUIRED
    assert box.joined.member_id == "a-1"
    assert b.state() is GroupState.EMPTY
    assert b.group.pending_joins == {"a-1"}


def test_old_clients_join_without_a_member_id() -> None:
    b = make_harness()
    box = b.join("a", version=3)
    assert box.answer is None
    assert list(b.group.members) == ["a-1"]


def test_pending_member_expires_after_its_session_timeout() -> None:
    b = make_harness()
    b.join("a", follow_up=False, session_ms=6_000)
    b.advance(6)
    assert not b.group.pending_joins
    assert b.join("a").error is ErrorCode.UNKNOWN_MEMBER_ID


def test_new_group_is_written_before_its_first_generation() -> None:
    b = make_harness()
    b.join("a", follow_up=False)
    replayed = b.replayed_shard().groups.get_or_raise("g")
    assert (replayed.state, replayed.generation, replayed.protocol_type) == (GroupState.EMPTY, 0, None)


def test_failed_write_of_a_new_group_does_not_stop_the_group() -> None:
    b = make_harness()
    b.log.fail_next = ErrorCode.NOT_ENOUGH_REPLICAS
    b.stable_group("a")
    assert b.state() is GroupState.STABLE
    assert len(b.log.records) == 1


def test_member_id_is_unknown_in_a_group_that_does_not_exist() -> None:
    b = make_harness()
    b.client("a", member_id="a-9")
    assert b.join("a").error is ErrorCode.UNKNOWN_MEMBER_ID
    assert b.shard.groups.get("g") is None


def test_first_members_wait_for_the_initial_delay() -> None:
    b = make_harness()
    first = b.join("a")
    b.advance(2.9)
    second = b.join("b")
    b.advance(0.1)
    assert first.answer is None  # a member joined during the delay, so it continues
    b.advance(INITIAL_DELAY_S)
    assert first.joined.generation_id == 1
    assert second.joined.generation_id == 1
    assert first.joined.leader == "a-1"
    assert [member.member_id for member in first.joined.members] == ["a-1", "b-2"]
    assert second.joined.members == []


def test_initial_delay_ends_at_the_rebalance_timeout() -> None:
    b = make_harness()
    boxes = [b.join("m0", rebalance_ms=7_000)]
    for index in range(1, 8):
        b.advance(1)
        boxes.append(b.join(f"m{index}", rebalance_ms=7_000))
    assert boxes[0].joined.generation_id == 1
    assert boxes[6].joined.generation_id == 1  # the last member that joined within 7 s
    assert boxes[7].answer is None  # a new rebalance


def test_without_an_initial_delay_the_first_member_starts_at_once() -> None:
    b = make_harness(group_initial_rebalance_delay_ms=0)
    box = b.join("a")
    b.advance(0)
    assert box.joined.generation_id == 1


def test_later_rebalance_ends_when_all_members_have_rejoined() -> None:
    b = make_harness()
    b.stable_group("a", "b")
    newcomer = b.join("c")
    assert b.state() is GroupState.PREPARING_REBALANCE
    assert b.heartbeat("a") is ErrorCode.REBALANCE_IN_PROGRESS
    b.join("a")
    assert newcomer.answer is None
    b.join("b")
    assert newcomer.joined.generation_id == 2
    assert b.state() is GroupState.COMPLETING_REBALANCE


def test_join_phase_waits_for_pending_members() -> None:
    b = make_harness()
    b.stable_group("a")
    b.join("b", follow_up=False)
    box = b.join("a")  # the leader starts a rebalance
    assert box.answer is None
    b.join("b")
    assert box.joined.generation_id == 2


def test_dynamic_member_that_does_not_rejoin_is_removed_at_the_rebalance_timeout() -> None:
    b = make_harness()
    b.stable_group("a", "b", rebalance_ms=20_000, session_ms=30_000)
    box = b.join("a", rebalance_ms=20_000)
    b.advance(20)
    assert box.joined.generation_id == 2
    assert list(b.group.members) == ["a-1"]
    assert b.heartbeat("b") is ErrorCode.UNKNOWN_MEMBER_ID


def test_absent_leader_is_replaced_by_another_member() -> None:
    b = make_harness()
    b.stable_group("a", "b", rebalance_ms=20_000, session_ms=30_000)
    box = b.join("b", rebalance_ms=20_000, protocols={"range": subscription("other")})
    b.advance(20)
    assert box.joined.leader == "b-2"
    assert len(box.joined.members) == 1


def test_unchanged_follower_rejoining_a_stable_group_gets_the_current_generation() -> None:
    b = make_harness()
    b.stable_group("a", "b")
    box = b.join("b")
    assert (box.joined.generation_id, box.joined.leader, box.joined.members) == (1, "a-1", [])
    assert b.state() is GroupState.STABLE


def test_leader_rejoining_a_stable_group_starts_a_rebalance() -> None:
    """Only the leader notices that topics have more partitions."""
    b = make_harness()
    b.stable_group("a", "b")
    assert b.join("a").answer is None
    assert b.state() is GroupState.PREPARING_REBALANCE


def test_follower_with_other_metadata_starts_a_rebalance() -> None:
    b = make_harness()
    b.stable_group("a", "b")
    assert b.join("b", protocols={"range": subscription("other")}).answer is None
    assert b.state() is GroupState.PREPARING_REBALANCE


def test_repeated_join_while_assignments_are_awaited_gets_the_same_response() -> None:
    b = make_harness()
    b.join("a")
    b.join("b")
    b.advance(9)
    assert b.state() is GroupState.COMPLETING_REBALANCE
    again = b.join("a")
    assert again.joined.generation_id == 1
    assert len(again.joined.members) == 2
    assert b.join("b").joined.members == []


def test_changed_metadata_while_assignments_are_awaited_restarts_the_rebalance() -> None:
    b = make_harness()
    b.join("a")
    b.join("b")
    b.advance(9)
    parked = b.sync("b")
    b.join("a", protocols={"range": subscription("other")})
    assert b.state() is GroupState.PREPARING_REBALANCE
    assert parked.error is ErrorCode.REBALANCE_IN_PROGRESS


def test_repeated_join_replaces_the_parked_one() -> None:
    b = make_harness()
    b.stable_group("a", "b")
    lost = b.join("a")
    again = b.join("a")
    assert lost.error is ErrorCode.REBALANCE_IN_PROGRESS
    b.join("b")
    assert again.joined.generation_id == 2


def test_common_protocol_with_most_votes_is_elected() -> None:
    b = make_harness()
    x, y, z = b"x", b"y", b"z"
    b.join("a", protocols={"sticky": x, "range": y, "mine": z})
    b.join("b", protocols={"range": y, "sticky": x})
    b.join("c", protocols={"range": y, "sticky": x})
    b.advance(12)
    assert b.group.protocol == "range"


@pytest.mark.parametrize(
    ("protocol_type", "protocols"),
    [("connect", {"range": b""}), ("consumer", {"other": b""}), ("consumer", {}), ("", {"range": b""})],
)
def test_new_member_without_a_common_protocol_is_refused(protocol_type: str, protocols: dict[str, bytes]) -> None:
    b = make_harness()
    b.stable_group("a")
    box = b.join("b", protocol_type=protocol_type, protocols=protocols)
    assert box.error is ErrorCode.INCONSISTENT_GROUP_PROTOCOL


def test_empty_group_accepts_any_non_empty_protocol_type() -> None:
    b = make_harness()
    b.stable_group("a")
    b.leave("a")
    assert b.join("c", protocol_type="", follow_up=False).error is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    b.client("d", protocols={})
    assert b.join("d", follow_up=False).error is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert b.join("e", protocol_type="connect", protocols={"eager": b""}).answer is None


def test_member_id_of_an_empty_group_is_unknown() -> None:
    b = make_harness()
    b.stable_group("a")
    b.leave("a")
    assert b.join("a").error is ErrorCode.UNKNOWN_MEMBER_ID


def test_pending_id_cannot_become_a_static_member() -> None:
    b = make_harness()
    b.join("a", follow_up=False)
    assert b.join("a", instance_id="i").error is ErrorCode.UNKNOWN_SERVER_ERROR


def test_session_timeout_is_the_rebalance_timeout_in_version_0() -> None:
    b = make_harness()
    b.join("a", version=0, session_ms=7_000, rebalance_ms=-1)
    assert b.group.members["a-1"].rebalance_timeout_ms == 7_000


def test_group_has_room_for_group_max_size_members() -> None:
    b = make_harness(group_max_size=2)
    b.stable_group("a", "b")
    refused = b.join("c")
    assert (refused.error, refused.joined.member_id) == (ErrorCode.GROUP_MAX_SIZE_REACHED, "")
    assert b.join("b").error is ErrorCode.NONE


def test_group_max_size_counts_rejoined_members_during_a_rebalance() -> None:
    b = make_harness(group_max_size=2)
    b.stable_group("a", "b")
    b.join("a")
    assert b.join("c").answer is None  # one member has rejoined, so there is room for one more
    assert b.join("b").error is ErrorCode.GROUP_MAX_SIZE_REACHED
    assert b.group.generation == 1
    assert "b-2" not in b.group.members


def test_group_over_a_lowered_limit_rebalances_when_it_is_loaded() -> None:
    b = make_harness()
    b.stable_group("a", "b", "c")
    b.config = GroupConfig(group_coordinator_append_linger_ms=0, group_max_size=2)
    b.restart()
    assert b.state() is GroupState.PREPARING_REBALANCE


def test_new_member_expires_after_five_minutes_even_while_parked() -> None:
    b = make_harness()
    b.stable_group("a", session_ms=1_800_000, rebalance_ms=1_800_000)
    box = b.join("b")
    b.advance(299)
    assert box.answer is None
    b.advance(1)
    assert (box.error, box.joined.member_id) == (ErrorCode.UNKNOWN_MEMBER_ID, "")


def test_parked_member_does_not_expire() -> None:
    b = make_harness()
    b.stable_group("a", "b", session_ms=600_000, rebalance_ms=600_000)
    box = b.join("a", session_ms=10_000, rebalance_ms=600_000)
    b.advance(100)
    assert box.answer is None
    assert "a-1" in b.group.members


def test_unloading_answers_parked_joins_with_not_coordinator() -> None:
    b = make_harness()
    box = b.join("a")
    b.hosted.close()
    assert (box.error, box.joined.member_id) == (ErrorCode.NOT_COORDINATOR, "a-1")
