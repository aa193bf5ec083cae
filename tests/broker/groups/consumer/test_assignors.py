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


def former_targets(current: AssignableGroup) -> FormerTargets:
    """Return the former targets of a homogeneous group in the form for changes."""
    table = TargetTable()
    for name, member in current.members.items():
        table.set(name, member.target)
    covered = table.covered()
    assert covered is not None
    counts = {
        topic_id: current.partition_count(topic_id) for topic_id in next(iter(current.members.values())).topic_ids
    }
    return FormerTargets(table.sizes, covered, counts, table.get)


def test_changes_of_a_uniform_assignment_are_those_of_the_whole_one() -> None:
    random = Random(1101)
    for _ in range(200):
        topics = {name: random.randrange(1, 12) for name in "tuv"}
        subscribed = "".join(random.sample("tuv", random.randrange(1, 4)))
        names = [f"m{number}" for number in range(random.randrange(1, 12))]
        former: dict[str, Assignment] = {}
        for number in range(8):
            current = group(topics, dict.fromkeys(names, subscribed), shown(former))
            whole = UniformAssignor().assign(current)
            changes = UniformAssignor().changes(former_targets(current))
            if changes is None:
                assert subscribed == "t", "only a dropped topic refuses"
            else:
                assert {**{name: former.get(name, {}) for name in names}, **changes} == whole
                assert all(former.get(name, {}) != target for name, target in changes.items())
                assert list(changes) == [name for name in names if name in changes]
            former = dict(whole)
            if random.random() < 0.5 and len(names) > 1:
                former.pop(names.pop(random.randrange(len(names))))
            else:
                names.append(f"n{number}")
            if random.random() < 0.2:
                subscribed = "t"


def test_changes_are_refused_when_a_partition_is_gone() -> None:
    current = group({"t": 2}, {"a": "t", "b": "t"}, {"a": "t0 t1", "b": "t2"})
    assert UniformAssignor().changes(former_targets(current)) is None


def test_targets_with_a_common_partition_have_no_count_until_they_are_disjoint() -> None:
    table = TargetTable()
    table.set("a", assignment_from([(topic("t"), 0), (topic("t"), 1)]))
    table.set("b", assignment_from([(topic("t"), 1)]))
    assert table.covered() is None
    table.set("a", assignment_from([(topic("t"), 0)]))
    assert table.covered() == {topic("t"): {0, 1}}
    table.remove("b")
    assert table.covered() == {topic("t"): {0}}
    assert (len(table), "a" in table, "b" in table) == (1, True, False)
