"""ListGroups, DescribeGroups and metrics of groups."""

import pytest

from broker.groups.state import GroupState
from protocol.errors import ErrorCode
from tests.support.harnesses.group_harness import GroupHarness, subscription


def listed(b: GroupHarness, states: list[str] | None = None, types: list[str] | None = None) -> list[tuple[str, str]]:
    return [(group.group_id, group.group_state) for group in b.list_groups(states or [], types or [])]


def a_few_groups() -> GroupHarness:
    b = GroupHarness()
    b.stable_group("a")
    b.commit(None, {("t", 0): 5}, group="simple")
    b.join("x", group="joining")
    return b


def test_all_groups_are_listed() -> None:
    b = a_few_groups()
    assert listed(b) == [("g", "Stable"), ("simple", "Empty"), ("joining", "PreparingRebalance")]
    assert {(group.protocol_type, group.group_type) for group in b.list_groups()} == {
        ("consumer", "classic"),
        ("", "classic"),
    }


@pytest.mark.parametrize(
    ("states", "expected"),
    [
        (["Stable"], ["g"]),
        (["sTABLE", " empty "], ["g", "simple"]),
        (["preparingrebalance"], ["joining"]),
        (["nonsense"], []),
    ],
)
def test_groups_are_listed_by_state_in_any_case(states: list[str], expected: list[str]) -> None:
    assert [group_id for group_id, _ in listed(a_few_groups(), states)] == expected


@pytest.mark.parametrize(
    ("types", "count"), [(["Classic"], 3), (["consumer"], 0), (["consumer", "classic"], 3), (["?"], 0)]
)
def test_groups_are_listed_by_type(types: list[str], count: int) -> None:
    assert len(listed(a_few_groups(), types=types)) == count


def test_stable_group_is_described_in_full() -> None:
    b = GroupHarness()
    b.client("b", instance_id="i")
    b.stable_group("a", "b")
    group = b.describe()
    assert (group.group_state, group.protocol_type, group.protocol_data) == ("Stable", "consumer", "range")
    first, second = group.members
    assert (first.member_id, first.group_instance_id, first.client_id) == ("a-1", None, "a")
    assert (second.group_instance_id, second.client_host) == ("i", "/127.0.0.1")
    assert (second.member_metadata, second.member_assignment) == (subscription("t"), b"b")


def test_rebalancing_group_is_described_without_member_metadata() -> None:
    b = GroupHarness()
    b.stable_group("a", "b")
    b.join("a")
    group = b.describe()
    assert (group.group_state, group.protocol_data) == ("PreparingRebalance", "")
    assert [member.member_metadata for member in group.members] == [b"", b""]


@pytest.mark.parametrize(("version", "error"), [(5, ErrorCode.NONE), (6, ErrorCode.GROUP_ID_NOT_FOUND)])
def test_unknown_group_is_described_as_dead(version: int, error: ErrorCode) -> None:
    """KIP-1043."""
    group = GroupHarness().describe("unknown", version=version)
    assert (group.group_state, group.error_code) == ("Dead", error)
    assert group.error_message == ("Group unknown not found." if error else None)


def test_groups_are_counted_by_state() -> None:
    b = a_few_groups()
    counts = {state: count for state, count in b.shard.metrics.groups.items() if count}
    assert counts == {GroupState.STABLE: 1, GroupState.EMPTY: 1, GroupState.PREPARING_REBALANCE: 1}
    assert (b.shard.metrics.completed_rebalances, b.shard.metrics.offset_commits, b.shard.metrics.offsets) == (1, 1, 1)
    b.leave("a")
    b.delete_group()
    assert sum(b.shard.metrics.groups.values()) == 2
