"""Assignments of partitions by the server, and their properties over random groups."""

from collections.abc import Mapping
from random import Random

import pytest

from broker.groups.consumer.assignment import Assignment, assignment_from, each_partition
from broker.groups.consumer.assignors.assignor import (
    AssignableGroup,
    AssignableMember,
    AssignorFailed,
    FormerTargets,
    PartitionAssignor,
)
from broker.groups.consumer.assignors.range import RangeAssignor
from broker.groups.consumer.assignors.uniform import UniformAssignor
from broker.groups.consumer.loads import MemberLoads
from broker.groups.consumer.targets import TargetTable
from protocol.primitives import Uuid


def topic(name: str) -> Uuid:
    return Uuid(name.encode().rjust(16, b"-"))


def group(
    topics: Mapping[str, int],
    subscriptions: Mapping[str, str],
    targets: Mapping[str, str] | None = None,
    instances: Mapping[str, str] | None = None,
) -> AssignableGroup:
    """Return a group: partition counts by topic, subscriptions such as "tu", former targets such as "t0 u1"."""
    targets, instances = targets or {}, instances or {}
    members = {
        name: AssignableMember(
            name,
            frozenset(map(topic, subscription)),
            assignment_from((topic(each[0]), int(each[1:])) for each in targets.get(name, "").split()),
            instances.get(name),
        )
        for name, subscription in subscriptions.items()
    }
    racks = {topic(name): [frozenset[str]()] * count for name, count in topics.items()}
    return AssignableGroup(members, racks, len(set(map(frozenset, subscriptions.values()))) <= 1)


def shown(targets: Mapping[str, Assignment]) -> dict[str, str]:
    return {
        name: " ".join(sorted(f"{topic_id.decode().lstrip('-')}{each}" for topic_id, each in each_partition(target)))
        for name, target in targets.items()
    }


def test_range_assigns_consecutive_partitions_of_each_topic() -> None:
    targets = RangeAssignor().assign(group({"t": 5, "u": 2}, {"b": "tu", "a": "tu"}))
    assert shown(targets) == {"a": "t0 t1 t2 u0", "b": "t3 t4 u1"}


def test_range_orders_static_members_first() -> None:
    targets = RangeAssignor().assign(group({"t": 3}, {"a": "t", "b": "t", "c": "t"}, instances={"c": "1", "b": "2"}))
    assert shown(targets) == {"c": "t0", "b": "t1", "a": "t2"}


def test_range_divides_a_topic_among_its_subscribers() -> None:
    targets = RangeAssignor().assign(group({"t": 4, "u": 2}, {"a": "tu", "b": "t", "c": "u"}))
    assert shown(targets) == {"a": "t0 t1 u0", "b": "t2 t3", "c": "u1"}


def test_uniform_keeps_the_former_target_up_to_the_quota() -> None:
    targets = UniformAssignor().assign(group({"t": 5}, {"a": "t", "b": "t"}, {"a": "t0 t1", "b": "t2 t3 t4"}))
    assert shown(targets) == {"a": "t0 t1", "b": "t2 t3 t4"}


def test_uniform_moves_only_what_a_new_member_needs() -> None:
    targets = UniformAssignor().assign(group({"t": 4, "u": 2}, {"a": "tu", "b": "tu", "c": "tu"}, {
        "a": "t0 t1 t2", "b": "t3 u0 u1"
    }))  # fmt: skip
    assert shown(targets) == {"a": "t0 t1", "b": "t3 u0", "c": "t2 u1"}


def test_uniform_gives_up_topics_without_subscription() -> None:
    targets = UniformAssignor().assign(group({"t": 2}, {"a": "t", "b": "t"}, {"a": "u0 u1 t0"}))
    assert shown(targets) == {"a": "t0", "b": "t1"}


def test_uniform_settles_a_partition_with_two_former_owners() -> None:
    targets = UniformAssignor().assign(group({"t": 2}, {"a": "t", "b": "t"}, {"a": "t0", "b": "t0"}))
    assert shown(targets) == {"a": "t0", "b": "t1"}


def test_uniform_balances_different_subscriptions() -> None:
    targets = UniformAssignor().assign(group({"t": 4, "u": 2}, {"a": "tu", "b": "t"}))
    assert shown(targets) == {"a": "t0 u0 u1", "b": "t1 t2 t3"} or len(shown(targets)["a"].split()) == 3


def test_uniform_moves_partitions_from_the_most_to_the_least_loaded() -> None:
    targets = UniformAssignor().assign(
        group({"t": 6, "u": 1}, {"a": "tu", "b": "t", "c": "t"}, {"a": "t0 t1 t2 t3 t4 t5"})
    )
    assert sorted(len(each.split()) for each in shown(targets).values()) == [2, 2, 3]


@pytest.mark.parametrize("assignor", [RangeAssignor(), UniformAssignor()])
def test_group_without_members_has_no_targets(assignor: PartitionAssignor) -> None:
    assert dict(assignor.assign(group({"t": 1}, {}))) == {}


@pytest.mark.parametrize("assignor", [RangeAssignor(), UniformAssignor()])
@pytest.mark.parametrize("subscriptions", [{"a": "t"}, {"a": "t", "b": "u"}])
def test_missing_topic_fails(assignor: PartitionAssignor, subscriptions: Mapping[str, str]) -> None:
    with pytest.raises(AssignorFailed):
        assignor.assign(group({"u": 1}, subscriptions))


@pytest.mark.parametrize("assignor", [RangeAssignor(), UniformAssignor()])
@pytest.mark.parametrize("is_homogeneous", [True, False])
def test_each_partition_has_one_subscriber_in_random_groups(assignor: PartitionAssignor, is_homogeneous: bool) -> None:
    random = Random(848)
    for _ in range(60):
        topics = {name: random.randrange(1, 9) for name in "tuvw"}
        names = [f"m{number}" for number in range(random.randrange(1, 7))]
        common = "".join(random.sample("tuvw", random.randrange(1, 5)))
        subscriptions = {
            name: common if is_homogeneous else "".join(random.sample("tuvw", random.randrange(0, 5))) for name in names
        }
        former: Mapping[str, Assignment] = {}
        for _ in range(3):
            current = group(
                topics, subscriptions, {name: text for name, text in shown(former).items() if name in subscriptions}
            )
            former = assignor.assign(current)
            assigned = [each for target in former.values() for each in each_partition(target)]
            subscribed = {name for each in subscriptions.values() for name in each}
            assert len(assigned) == len(set(assigned)) == sum(topics[name] for name in subscribed)
            for name, target in former.items():
                assert target.keys() <= current.members[name].topic_ids
            if is_homogeneous and assignor.name == "uniform":
                loads = [sum(map(len, target.values())) for target in former.values()]
                assert max(loads) - min(loads) <= 1
            subscriptions.pop(random.choice(names), None)
            if not subscriptions:
                break


def test_uniform_keeps_a_balanced_assignment_of_different_subscriptions() -> None:
    subscriptions = {"a": "tu", "b": "tv", "c": "uv", "d": "tuv"}
    first = UniformAssignor().assign(group({"t": 7, "u": 5, "v": 9}, subscriptions))
    second = UniformAssignor().assign(group({"t": 7, "u": 5, "v": 9}, subscriptions, shown(first)))
    assert shown(second) == shown(first)
    loads = [sum(map(len, target.values())) for target in first.values()]
    assert max(loads) - min(loads) <= 1


def target_table(current: AssignableGroup) -> TargetTable:
    """Return the former targets of a group in the form that the group keeps."""
    table = TargetTable()
    for name, member in current.members.items():
        table.add_member(name)
        table.set(name, member.target)
    return table


def partition_counts(current: AssignableGroup) -> dict[Uuid, int]:
    topic_ids = next(iter(current.members.values())).topic_ids
    return {topic_id: current.partition_count(topic_id) for topic_id in topic_ids}


def former_targets(table: TargetTable, counts: Mapping[Uuid, int], newcomer: str | None = None) -> FormerTargets | None:
    """Return the former targets of a homogeneous group in the form for changes."""
    free = table.free(counts)
    return None if free is None else FormerTargets(table.loads, newcomer, free, sum(counts.values()), table.get)


def test_changes_of_a_uniform_assignment_are_those_of_the_whole_one() -> None:
    random = Random(1101)
    for _ in range(200):
        topics = {name: random.randrange(1, 12) for name in "tuv"}
        subscribed = "".join(random.sample("tuv", random.randrange(1, 4)))
        names = [f"m{number}" for number in range(random.randrange(1, 12))]
        former: dict[str, Assignment] = {}
        table = TargetTable()
        for name in names:
            table.add_member(name)
        newcomer: str | None = None
        for number in range(8):
            current = group(topics, dict.fromkeys(names, subscribed), shown(former))
            whole = UniformAssignor().assign(current)
            targets = former_targets(table, partition_counts(current), newcomer)
            if targets is None:
                assert subscribed == "t", "only a dropped topic refuses"
            else:
                changes = UniformAssignor().changes(targets)
                assert {**{name: former.get(name, {}) for name in names}, **changes} == whole
                assert all(former.get(name, {}) != target for name, target in changes.items())
                assert list(changes) == [name for name in names if name in changes]
            if newcomer is not None:
                table.add_member(newcomer)
            former = {
                name: each.target
                for name, each in group(topics, dict.fromkeys(names, "t"), shown(whole)).members.items()
            }
            for name, target in former.items():
                table.set(name, target)
            newcomer = None
            if random.random() < 0.5 and len(names) > 1:
                leaver = names.pop(random.randrange(len(names)))
                former.pop(leaver)
                table.remove(leaver)
                table.remove_member(leaver)
            else:
                newcomer = f"n{number}"
                names.append(newcomer)
            if random.random() < 0.2:
                subscribed = "t"
            if random.random() < 0.2:
                topics["t"] += random.randrange(3)


def test_targets_with_a_missing_partition_have_no_free_ones() -> None:
    current = group({"t": 2}, {"a": "t", "b": "t"}, {"a": "t0 t1", "b": "t2"})
    table = target_table(current)
    assert table.free(partition_counts(current)) is None
    table.remove("b")
    assert table.free(partition_counts(current)) == {}
    table.set("a", {topic("u"): frozenset((0,))})
    assert table.free(partition_counts(current)) is None
    table.set("a", {topic("t"): frozenset((1,))})
    assert table.free(partition_counts(current)) == {topic("t"): {0}}


def test_targets_with_a_common_partition_have_no_free_ones_until_they_are_disjoint() -> None:
    counts = {topic("t"): 3}
    table = TargetTable()
    table.set("a", assignment_from([(topic("t"), 0), (topic("t"), 1)]))
    table.set("b", assignment_from([(topic("t"), 1)]))
    assert table.free(counts) is None
    table.set("a", assignment_from([(topic("t"), 0)]))
    assert table.free(counts) == {topic("t"): {2}}
    table.remove("b")
    assert table.free(counts) == {topic("t"): {1, 2}}
    assert (len(table), "a" in table, "b" in table) == (1, True, False)


def test_targets_are_complete_when_members_and_targets_match() -> None:
    table = TargetTable()
    table.add_member("a")
    assert table.is_complete(except_for="a")
    assert not table.is_complete(except_for="b")
    table.set("a", assignment_from([(topic("t"), 0)]))
    assert table.is_complete(except_for="b")
    table.set("b", assignment_from([(topic("t"), 1)]))
    assert not table.is_complete(except_for="b"), "a target without a member"
    table.add_member("b")
    assert table.is_complete(except_for="b")
    table.remove_member("a")
    assert not table.is_complete(except_for="b")
    table.remove("a")
    assert table.is_complete(except_for="b")


def test_loads_keep_the_order_of_members() -> None:
    random = Random(848)
    loads, expected = MemberLoads(), dict[str, int]()
    for number in range(400):
        name = random.choice([*expected, f"m{number}"])
        if name not in expected:
            loads.add(name, 0)
            expected[name] = 0
        elif random.random() < 0.2:
            loads.remove(name)
            del expected[name]
        else:
            expected[name] = random.randrange(4)
            loads.change(name, expected[name])
        bound = random.randrange(4)
        above = [each for each, load in expected.items() if load > bound]
        assert list(loads.above(bound)) == above[::-1]
        assert loads.count_above(bound) == len(above)
        assert list(loads.up_to(bound)) == [each for each in expected if each not in above]
        assert list(loads.below(bound)) == [each for each, load in expected.items() if load < bound]
        assert sorted(expected, key=loads.rank) == list(expected)
        assert len(loads) == len(expected)
