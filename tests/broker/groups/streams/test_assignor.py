"""The sticky task assignor: balance, stickiness and standby copies."""

from collections import Counter
from random import Random

import pytest

from broker.groups.streams.assignor import StreamsAssignmentMember, assign_tasks
from broker.groups.streams.configuration import ConfiguredSubtopology
from broker.groups.streams.tasks import Tasks, each_task
from broker.groups.streams.topology import InternalTopic
from protocol.errors import KafkaError


def subtopologies(*counts: int, stateful: bool = True) -> dict[str, ConfiguredSubtopology]:
    changelogs = (InternalTopic("c", 1),) if stateful else ()
    return {str(index): ConfiguredSubtopology(count, ("t",), (), (), changelogs) for index, count in enumerate(counts)}


def members(processes: dict[str, str], targets: dict[str, Tasks] | None = None) -> list[StreamsAssignmentMember]:
    """Return members with their processes and former targets."""
    return [StreamsAssignmentMember(name, each, (targets or {}).get(name, Tasks())) for name, each in processes.items()]


def own(*names: str) -> dict[str, str]:
    """Return members that are processes of their own."""
    return {name: name for name in names}


def sizes(targets: dict[str, Tasks]) -> list[int]:
    return sorted(sum(1 for _ in each_task(target.active)) for target in targets.values())


def test_tasks_are_spread_evenly() -> None:
    assert sizes(assign_tasks(members(own("a", "b", "c")), subtopologies(4, 3), 0)) == [2, 2, 3]


def test_tasks_are_spread_over_processes_before_members() -> None:
    targets = assign_tasks(members({"a": "p", "b": "p", "c": "q"}), subtopologies(6), 0)
    assert sizes(targets) == [2, 2, 2]


def test_tasks_stay_where_they_are() -> None:
    before = assign_tasks(members(own("a", "b", "c")), subtopologies(6), 0)
    assert assign_tasks(members(own("c", "a", "b"), before), subtopologies(6), 0) == before
    after = assign_tasks(members(own("a", "b"), before), subtopologies(6), 0)
    assert before["a"].active["0"] <= after["a"].active["0"]
    assert before["b"].active["0"] <= after["b"].active["0"]


def test_former_standby_becomes_active() -> None:
    before = assign_tasks(members(own("a", "b", "c")), subtopologies(3), 1)
    after = assign_tasks(members(own("b", "c"), before), subtopologies(3), 1)
    (lost,) = before["a"].active["0"]
    heir = next(name for name in "bc" if lost in before[name].standby.get("0", ()))
    assert lost in after[heir].active["0"]


def test_standby_tasks_are_on_other_processes() -> None:
    targets = assign_tasks(members({"a": "p", "b": "p", "c": "q"}), subtopologies(4), 1)
    for task in range(4):
        on = {"p" if name in "ab" else "q" for name, each in targets.items() if task in each.active.get("0", ())}
        copies = ["p" if name in "ab" else "q" for name, each in targets.items() if task in each.standby.get("0", ())]
        assert len(copies) == 1
        assert on.isdisjoint(copies)


def test_stateless_tasks_have_no_standby() -> None:
    targets = assign_tasks(members(own("a", "b")), subtopologies(4, stateful=False), 2)
    assert not any(target.standby for target in targets.values())


def test_one_process_gets_no_copies() -> None:
    (target,) = assign_tasks(members(own("a")), subtopologies(2), 1).values()
    assert target == Tasks({"0": frozenset((0, 1))}, {})


def test_group_without_members_has_no_assignment() -> None:
    with pytest.raises(KafkaError):
        assign_tasks([], subtopologies(1), 0)


@pytest.mark.parametrize("seed", range(40))
def test_random_histories_are_complete_balanced_and_sticky(seed: int) -> None:
    random = Random(seed)
    topology = subtopologies(*(random.randint(1, 9) for _ in range(random.randint(1, 3))))
    task_count = sum(each.task_count for each in topology.values())
    targets: dict[str, Tasks] = {}
    for _ in range(8):
        processes = {name: random.choice("pqrs") for name in random.sample("abcdefgh", random.randint(1, 8))}
        standby_count = random.randint(0, 2)
        targets = assign_tasks(members(processes, targets), topology, standby_count)
        active = Counter(task for target in targets.values() for task in each_task(target.active))
        assert len(active) == active.total() == task_count
        copies = Counter(
            (processes[name], task)
            for name, target in targets.items()
            for task in (*each_task(target.active), *each_task(target.standby))
        )
        assert max(copies.values()) == 1
        expected = min(standby_count, len(set(processes.values())) - 1) * task_count
        assert copies.total() - task_count == expected
