"""Placement of new replicas."""

from collections import Counter
from collections.abc import Sequence
from random import Random

import pytest

from broker.metadata.controller.placement import PlacementImpossible, UsableBroker, place


def brokers(*racks: str | None, fenced: Sequence[int] = ()) -> list[UsableBroker]:
    """Return brokers 0, 1, … on these racks."""
    return [UsableBroker(number, rack, number in fenced) for number, rack in enumerate(racks)]


@pytest.mark.parametrize("seed", range(20))
def test_every_broker_leads_equally_often(seed: int) -> None:
    placed = place(brokers(*[None] * 5), 20, 3, Random(seed))
    assert set(Counter(replicas[0] for replicas in placed).values()) == {4}
    assert all(len(set(replicas)) == 3 for replicas in placed)


@pytest.mark.parametrize("seed", range(20))
def test_replicas_lie_on_different_racks_where_there_are_enough(seed: int) -> None:
    racks = ("a", "a", "b", "b", "c", "c")
    for replicas in place(brokers(*racks), 12, 3, Random(seed)):
        assert {racks[replica] for replica in replicas} == {"a", "b", "c"}


def test_more_replicas_than_racks_use_all_brokers() -> None:
    (replicas,) = place(brokers("a", "a", "a", "b"), 1, 4, Random(1))
    assert sorted(replicas) == [0, 1, 2, 3]


@pytest.mark.parametrize("seed", range(10))
def test_fenced_brokers_follow_but_never_lead(seed: int) -> None:
    placed = place(brokers("a", "b", "c", fenced=(0,)), 9, 3, Random(seed))
    assert all(replicas[0] != 0 and 0 in replicas for replicas in placed)


def test_equal_random_seeds_give_equal_placements() -> None:
    cluster = brokers("a", "b", None, "a")
    assert place(cluster, 30, 2, Random(3)) == place(cluster, 30, 2, Random(3))
    assert place(cluster, 30, 2, Random(3)) != place(cluster, 30, 2, Random(4))


def test_placement_without_enough_brokers_fails() -> None:
    with pytest.raises(PlacementImpossible, match="fenced"):
        place(brokers(None, fenced=(0,)), 1, 1, Random(1))
    with pytest.raises(PlacementImpossible, match="factor 3 needs 3 brokers, 2 are usable"):
        place(brokers(None, None), 1, 3, Random(1))
