"""Tasks: a subtopology and a partition of its input. Immutable sets by subtopology id, compared by value.

A task has one of three roles in a member: active (it processes), standby (it keeps a copy of the state), or warm-up (it
catches up before it becomes active). Kafka 4.2 assigns no warm-up tasks, but reconciles them.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import field
from itertools import chain
from types import MappingProxyType
from typing import Final, NamedTuple, Protocol

from protocol.lazy_dataclass import lazy_dataclass

TaskSet = Mapping[str, frozenset[int]]
"""The partitions of each subtopology; no subtopology has an empty set."""

ActiveTasks = Mapping[str, Mapping[int, int]]
"""Active tasks with the epoch in which the member got each of them."""

NO_TASKS: Final[TaskSet] = MappingProxyType({})
_NO_ACTIVE_TASKS: Final[ActiveTasks] = MappingProxyType({})


class TaskId(NamedTuple):
    """A task; sorts by subtopology, then by partition."""

    subtopology: str
    partition: int


class TaskIdList(Protocol):
    """The form of tasks in all messages and records."""

    subtopology_id: str
    partitions: list[int]


@lazy_dataclass(frozen=True, slots=True)
class Tasks:
    """The tasks of a member by role, as in a target assignment."""

    active: TaskSet = field(default_factory=lambda: NO_TASKS)
    standby: TaskSet = field(default_factory=lambda: NO_TASKS)
    warmup: TaskSet = field(default_factory=lambda: NO_TASKS)

    def __bool__(self) -> bool:
        return bool(self.active or self.standby or self.warmup)


@lazy_dataclass(frozen=True, slots=True)
class AssignedTasks:
    """The tasks that a member has now, by role."""

    active: ActiveTasks = field(default_factory=lambda: _NO_ACTIVE_TASKS)
    standby: TaskSet = field(default_factory=lambda: NO_TASKS)
    warmup: TaskSet = field(default_factory=lambda: NO_TASKS)

    def __bool__(self) -> bool:
        return bool(self.active or self.standby or self.warmup)

    def without_epochs(self) -> Tasks:
        """Return the same tasks without the epochs."""
        return Tasks(active_set(self.active), self.standby, self.warmup)


NO_TARGET: Final = Tasks()
NOTHING_ASSIGNED: Final = AssignedTasks()


def task_set(tasks: Iterable[TaskIdList]) -> TaskSet:
    """Return the tasks in a message or record."""
    found: dict[str, frozenset[int]] = {}
    for each in tasks:
        if each.partitions:
            found[each.subtopology_id] = found.get(each.subtopology_id, frozenset()).union(each.partitions)
    return found


def task_set_from(tasks: Iterable[TaskId]) -> TaskSet:
    """Return the set of single tasks."""
    found: dict[str, set[int]] = {}
    for subtopology, partition in tasks:
        found.setdefault(subtopology, set()).add(partition)
    return {subtopology: frozenset(partitions) for subtopology, partitions in found.items()}


def active_set(tasks: ActiveTasks) -> TaskSet:
    """Return active tasks without their epochs."""
    return {subtopology: frozenset(epochs) for subtopology, epochs in tasks.items()}


def in_task_order(tasks: TaskSet) -> Iterator[tuple[str, list[int]]]:
    """Yield each subtopology id, in order, with its partitions in ascending order."""
    for subtopology in sorted(tasks):
        yield subtopology, sorted(tasks[subtopology])


def each_task(tasks: TaskSet | ActiveTasks) -> Iterator[TaskId]:
    """Yield every task."""
    for subtopology, partitions in tasks.items():
        for partition in partitions:
            yield TaskId(subtopology, partition)


def have_common_tasks(one: Tasks, other: Tasks) -> bool:
    """Whether a task has the same role in both."""
    roles = ((one.active, other.active), (one.standby, other.standby), (one.warmup, other.warmup))
    return any(
        not partitions.isdisjoint(theirs.get(subtopology, ()))
        for mine, theirs in roles
        for subtopology, partitions in mine.items()
    )


def are_tasks_within(one: Tasks, other: Tasks) -> bool:
    """Whether `other` has every task of `one` in the same role."""
    roles = ((one.active, other.active), (one.standby, other.standby), (one.warmup, other.warmup))
    return all(
        partitions <= theirs.get(subtopology, frozenset())
        for mine, theirs in roles
        for subtopology, partitions in mine.items()
    )


def all_tasks(tasks: Tasks) -> Iterator[TaskId]:
    """Yield the tasks of every role."""
    return chain(each_task(tasks.active), each_task(tasks.standby), each_task(tasks.warmup))
