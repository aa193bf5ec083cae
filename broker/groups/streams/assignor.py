"""The sticky task assignor of Kafka 4.2: tasks stay where they are, and members get about equal numbers (KIP-1071).

Active tasks go, in this order, to

1. the member that had them in the target assignment before, up to its share of all active tasks;
2. a member that had a standby copy, up to the same share;
3. the least loaded member of the least loaded process. Load is the number of tasks per member.

A standby goes to a process without a copy of the task: first to the former active member or a former standby member, up
to a member's share of all tasks, then to the least loaded process. There are fewer copies than asked for when there are
too few processes. Kafka 4.2 assigns no warm-up tasks, and its assignor looks at neither racks nor client tags.
"""

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from heapq import heapify, heappop, heappush
from logging import getLogger

from broker.groups.streams.configuration import ConfiguredSubtopology
from broker.groups.streams.tasks import TaskId, Tasks, each_task, task_set_from
from protocol.errors import ErrorCode, KafkaError
from protocol.lazy_dataclass import lazy_dataclass

_log = getLogger(__name__)


@lazy_dataclass(frozen=True, slots=True)
class StreamsAssignmentMember:
    """A member to assign tasks to: its process, and its tasks in the target assignment before."""

    member_id: str
    process_id: str
    target: Tasks


def assign_tasks(
    members: Iterable[StreamsAssignmentMember],
    subtopologies: Mapping[str, ConfiguredSubtopology],
    standby_count: int,
) -> dict[str, Tasks]:
    """Return the new target of each member. Raise KafkaError when there is no member."""
    return _Assignment(list(members), subtopologies, standby_count).run()


class _Member:
    """A member, and the tasks that it has got so far."""

    __slots__ = ("active", "process", "standby")

    def __init__(self, process: "_Process") -> None:
        self.process = process
        self.active: list[TaskId] = []
        self.standby: list[TaskId] = []

    @property
    def task_count(self) -> int:
        return len(self.active) + len(self.standby)


class _Process:
    """The members of one instance, which keeps at most one copy of a task."""

    __slots__ = ("members", "order", "tasks")

    def __init__(self, order: int) -> None:
        self.order = order
        self.members: list[_Member] = []
        self.tasks: set[TaskId] = set()

    @property
    def load(self) -> float:
        return len(self.tasks) / len(self.members)

    def add(self, task: TaskId, member: _Member, *, is_active: bool) -> int:
        """Give the task to the member. Return the number of the member's tasks."""
        (member.active if is_active else member.standby).append(task)
        self.tasks.add(task)
        return member.task_count

    def least_loaded(self) -> _Member:
        return min(self.members, key=lambda member: member.task_count)


class _Quota:
    """The share of a member in a number of tasks, rounded up; full members take no part in the rest."""

    def __init__(self, task_count: int, member_count: int) -> None:
        self._tasks = task_count
        self._members = member_count
        self.share = self._share()

    def on_task(self, member_tasks: int) -> None:
        """Follow a member that has got one more task."""
        if member_tasks == self.share:
            self._members -= 1
            self._tasks -= member_tasks
            self.share = self._share()

    def _share(self) -> int:
        return -(-self._tasks // self._members) if self._members else 0


class _Assignment:
    def __init__(
        self,
        members: Collection[StreamsAssignmentMember],
        subtopologies: Mapping[str, ConfiguredSubtopology],
        standby_count: int,
    ) -> None:
        self._standby_count = standby_count
        self._active = [TaskId(name, index) for name, each in subtopologies.items() for index in range(each.task_count)]
        self._stateful = [task for task in self._active if subtopologies[task.subtopology].is_stateful]
        self._active_quota = _Quota(len(self._active), len(members))
        self._quota = _Quota(len(self._active) + len(self._stateful) * standby_count, len(members))
        processes: dict[str, _Process] = {}
        self._members: dict[str, _Member] = {}
        self._former_active: dict[TaskId, _Member] = {}
        self._former_standby: defaultdict[TaskId, list[_Member]] = defaultdict(list)
        for each in members:
            process = processes.setdefault(each.process_id, _Process(len(processes)))
            member = self._members[each.member_id] = _Member(process)
            process.members.append(member)
            self._former_active.update(dict.fromkeys(each_task(each.target.active), member))
            for task in each_task(each.target.standby):
                self._former_standby[task].append(member)
        self._processes = list(processes.values())

    def run(self) -> dict[str, Tasks]:
        if not self._members:
            raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, "There is no member to assign tasks to.")
        self._assign_active()
        if self._standby_count:
            self._assign_standby()
        return {
            member_id: Tasks(task_set_from(member.active), task_set_from(member.standby))
            for member_id, member in self._members.items()
        }

    def _assign_active(self) -> None:
        tasks = sorted(self._active, key=lambda task: (task.partition, task.subtopology))
        moved = [task for task in tasks if not self._keep_active(task, self._former_active.get(task))]
        rest = [task for task in moved if not self._keep_active(task, self._former_copy(task))]
        queue = self._by_load()
        for task in sorted(rest):
            process = heappop(queue)[-1]
            self._on_active(process.add(task, process.least_loaded(), is_active=True))
            heappush(queue, (process.load, process.order, process))

    def _former_copy(self, task: TaskId) -> _Member | None:
        return _least_loaded(self._former_standby.get(task, ()), None)

    def _keep_active(self, task: TaskId, member: _Member | None) -> bool:
        if member is None or member.task_count >= self._active_quota.share:
            return False
        self._on_active(member.process.add(task, member, is_active=True))
        return True

    def _on_active(self, member_tasks: int) -> None:
        self._active_quota.on_task(member_tasks)
        self._quota.on_task(member_tasks)

    def _assign_standby(self) -> None:
        rest = []
        for task in sorted(self._stateful, key=lambda task: (task.partition, task.subtopology), reverse=True):
            for index in range(self._standby_count):
                if not self._keep_standby(task):
                    rest.append((task, self._standby_count - index))
                    break
        queue = self._by_load()
        for task, count in sorted(rest, reverse=True):
            for index in range(count):
                if not self._spread_standby(task, queue):
                    _log.warning("too few processes for standby tasks task=%s-%d missing=%d", *task, count - index)
                    break

    def _keep_standby(self, task: TaskId) -> bool:
        former = self._former_active.get(task)
        candidates = [] if former is None else [former]
        standby = _least_loaded(self._former_standby.get(task, ()), task)
        candidates += [] if standby is None else [standby]
        for member in candidates:
            if task not in member.process.tasks and member.task_count < self._quota.share:
                self._quota.on_task(member.process.add(task, member, is_active=False))
                return True
        return False

    def _spread_standby(self, task: TaskId, queue: list[tuple[float, int, _Process]]) -> bool:
        """Give the standby to the least loaded process without the task. Return whether there is one."""
        passed = []
        found = False
        while queue and not found:
            entry = heappop(queue)
            process = entry[-1]
            found = task not in process.tasks
            if found:
                self._quota.on_task(process.add(task, process.least_loaded(), is_active=False))
                entry = (process.load, process.order, process)
            passed.append(entry)
        for entry in passed:
            heappush(queue, entry)
        return found

    def _by_load(self) -> list[tuple[float, int, _Process]]:
        queue = [(process.load, process.order, process) for process in self._processes]
        heapify(queue)
        return queue


def _least_loaded(members: Iterable[_Member], task: TaskId | None) -> _Member | None:
    """Return the member of the least loaded process, among processes without the task."""
    free = (member for member in members if task is None or task not in member.process.tasks)
    return min(free, key=lambda member: (member.process.load, member.task_count), default=None)
