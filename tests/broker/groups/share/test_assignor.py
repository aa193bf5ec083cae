"""The assignor of share groups (`broker.groups.share.assignor`)."""

from random import Random

import pytest

from broker.groups.consumer.assignment import Assignment, each_partition
from broker.groups.share.assignor import assign_shared
from tests.support.harnesses.consumer_group_harness import topic_id_of

T, U = topic_id_of("t"), topic_id_of("u")


def sizes(targets: dict[str, Assignment]) -> list[int]:
    return sorted(sum(map(len, target.values())) for target in targets.values())


@pytest.mark.parametrize("members", range(1, 9))
@pytest.mark.parametrize("partitions", range(1, 9))
def test_members_of_the_same_topics_are_balanced(members: int, partitions: int) -> None:
    names = {f"m{index}": frozenset({T}) for index in range(members)}
    targets = assign_shared(names, {T: range(partitions)}, {})
    counts = [0] * partitions
    for target in targets.values():
        for index in target.get(T, ()):
            counts[index] += 1
    sharing = -(-members // partitions)
    assert min(counts) >= 1
    assert max(counts) <= sharing
    assert sizes(targets)[-1] - sizes(targets)[0] <= 1


def test_partition_is_shared_when_members_outnumber_partitions() -> None:
    targets = assign_shared({f"m{index}": frozenset({T}) for index in range(4)}, {T: [0, 1]}, {})
    assert sizes(targets) == [1, 1, 1, 1]
    assert {each for target in targets.values() for each in each_partition(target)} == {(T, 0), (T, 1)}


def test_topics_are_balanced_alone_where_subscriptions_differ() -> None:
    targets = assign_shared({"a": frozenset({T}), "b": frozenset({T, U})}, {T: [0, 1], U: [0, 1, 2]}, {})
    assert targets == {"a": {T: frozenset({0})}, "b": {T: frozenset({1}), U: frozenset({0, 1, 2})}}


def test_partitions_that_are_not_assignable_are_left_out() -> None:
    assert assign_shared({"a": frozenset({T, U})}, {T: [1]}, {"a": {T: frozenset({0}), U: frozenset({0})}}) == {
        "a": {T: frozenset({1})}
    }


@pytest.mark.parametrize("seed", range(20))
def test_members_keep_partitions_when_another_joins(seed: int) -> None:
    random = Random(seed)
    count, partitions = random.randrange(1, 6), random.randrange(6, 20)
    subscriptions = {f"m{index}": frozenset({T}) for index in range(count)}
    former = assign_shared(subscriptions, {T: range(partitions)}, {})
    targets = assign_shared({**subscriptions, "new": frozenset({T})}, {T: range(partitions)}, former)
    moved = sum(
        len(target.get(T, frozenset()) - former.get(member, {}).get(T, frozenset()))
        for member, target in targets.items()
    )
    assert moved <= len(targets["new"].get(T, frozenset())) + count
    again = assign_shared({**subscriptions, "new": frozenset({T})}, {T: range(partitions)}, targets)
    assert again == targets
