"""A streams group: members, topology, current and target assignments, and the tables derived from them.

Only `table.py` calls the `set_…` and `remove_…` methods, with the records of the log. The soft state below does not
follow from the log: a new coordinator computes it again, or begins anew.

| state | condition |
|---|---|
| Empty | there are no members |
| NotReady | the topics of the topology have not been validated |
| Assigning | the group epoch is above the epoch of the target assignment |
| Reconciling | a member has not reached the target assignment |
| Stable | otherwise |
"""

from collections import Counter, defaultdict
from collections.abc import Mapping
from enum import Enum

from broker.groups.streams.configuration import ConfiguredTopology
from broker.groups.streams.member import (
    NEW_STREAMS_MEMBER,
    StreamsGroupMember,
    StreamsMemberAssignment,
    TaskReconciliationState,
)
from broker.groups.streams.tasks import NO_TARGET, AssignedTasks, TaskId, Tasks, each_task
from broker.groups.streams.topology import StreamsTopology
from protocol.errors import ErrorCode, KafkaError


class StreamsGroupState(Enum):
    """A state, named as clients see it."""

    EMPTY = "Empty"
    NOT_READY = "NotReady"
    ASSIGNING = "Assigning"
    RECONCILING = "Reconciling"
    STABLE = "Stable"


class StreamsGroup:
    """A group whose coordinator assigns the tasks of a topology.

    Soft state: `configured`, the topology with its partition counts; `needs_metadata_check`, a required topic may have
    changed since `metadata_hash` was computed; `shutdown_member`, the member that has asked all others to stop;
    `endpoint_epoch`, counted with every change of the tasks behind a user endpoint.
    """

    def __init__(self, group_id: str) -> None:
        self.group_id = group_id
        self.epoch = 0
        self.metadata_hash = 0
        self.validated_topology_epoch = -1
        self.assignment_configs: Mapping[str, str] = {}
        self.target_epoch = 0
        self.topology: StreamsTopology | None = None
        self.members: dict[str, StreamsGroupMember] = {}
        self.configured: ConfiguredTopology | None = None
        self.needs_metadata_check = True
        self.shutdown_member: str | None = None
        self.endpoint_epoch = 0
        self._current: dict[str, StreamsMemberAssignment] = {}
        self._targets: dict[str, Tasks] = {}
        self._active_processes: dict[TaskId, str] = {}
        self._copies: defaultdict[TaskId, Counter[str]] = defaultdict(Counter)
        self._reconciled: Counter[int] = Counter()

    # Views.

    @property
    def state(self) -> StreamsGroupState:
        if not self.members:
            return StreamsGroupState.EMPTY
        if self.topology is None or self.topology.epoch != self.validated_topology_epoch:
            return StreamsGroupState.NOT_READY
        if self.epoch > self.target_epoch:
            return StreamsGroupState.ASSIGNING
        if self._reconciled[self.target_epoch] < len(self.members):
            return StreamsGroupState.RECONCILING
        return StreamsGroupState.STABLE

    @property
    def is_empty(self) -> bool:
        return not self.members

    def member_or_raise(self, member_id: str) -> StreamsGroupMember:
        """Return the member. Raise KafkaError UNKNOWN_MEMBER_ID."""
        member = self.members.get(member_id)
        if member is None:
            raise KafkaError(
                ErrorCode.UNKNOWN_MEMBER_ID, f"Member {member_id} is not a member of group {self.group_id}."
            )
        return member

    def current(self, member_id: str) -> StreamsMemberAssignment:
        return self._current.get(member_id, NEW_STREAMS_MEMBER)

    def target(self, member_id: str) -> Tasks:
        return self._targets.get(member_id, NO_TARGET)

    def has_target(self, member_id: str) -> bool:
        return member_id in self._targets

    def is_subscribed_to(self, topic: str) -> bool:
        """Whether a member may read the topic."""
        return bool(self.members) and self.topology is not None and topic in self.topology.inputs

    # Tasks that cannot be given to a process yet.

    def is_held_for_active(self, process_id: str, subtopology: str, partition: int) -> bool:
        """Whether a process has the task as active, or this process has another copy of it."""
        task = TaskId(subtopology, partition)
        return task in self._active_processes or self._has_copy(process_id, task)

    def is_held_for_copy(self, process_id: str, subtopology: str, partition: int) -> bool:
        """Whether this process has the task in any role."""
        task = TaskId(subtopology, partition)
        return self._active_processes.get(task) == process_id or self._has_copy(process_id, task)

    def _has_copy(self, process_id: str, task: TaskId) -> bool:
        return task in self._copies and self._copies[task][process_id] > 0

    # Replay.

    def set_member(self, member: StreamsGroupMember) -> None:
        former = self.members.get(member.member_id)
        current = self.current(member.member_id)
        if former is None:
            self._count_reconciled(current, 1)
        else:
            self._hold(former.process_id, current, -1)
        self.members[member.member_id] = member
        self._hold(member.process_id, current, 1)

    def remove_member(self, member_id: str) -> None:
        member = self.members.pop(member_id, None)
        if member is None:
            return
        current = self.current(member_id)
        self._hold(member.process_id, current, -1)
        self._count_reconciled(current, -1)
        if not self.members:
            self.shutdown_member = None

    def set_current(self, member_id: str, assignment: StreamsMemberAssignment) -> None:
        self._replace_current(member_id, assignment)
        self._current[member_id] = assignment

    def remove_current(self, member_id: str) -> None:
        self._replace_current(member_id, NEW_STREAMS_MEMBER)
        self._current.pop(member_id, None)

    def set_target(self, member_id: str, target: Tasks) -> None:
        self._targets[member_id] = target

    def remove_target(self, member_id: str) -> None:
        self._targets.pop(member_id, None)

    @property
    def is_blank(self) -> bool:
        """Whether no record of the group is left."""
        is_unwritten = self.epoch == 0 and self.target_epoch == 0 and self.topology is None
        return is_unwritten and not (self.members or self._current or self._targets)

    def _replace_current(self, member_id: str, assignment: StreamsMemberAssignment) -> None:
        member, former = self.members.get(member_id), self.current(member_id)
        if member is not None:
            self._hold(member.process_id, former, -1)
            self._hold(member.process_id, assignment, 1)
            self._count_reconciled(former, -1)
            self._count_reconciled(assignment, 1)

    def _hold(self, process_id: str, assignment: StreamsMemberAssignment, change: int) -> None:
        for tasks in (assignment.assigned, assignment.revoking):
            self._hold_active(process_id, tasks, change)
            for role in (tasks.standby, tasks.warmup):
                for task in each_task(role):
                    self._copies[task][process_id] += change
                    if not any(self._copies[task].values()):
                        del self._copies[task]

    def _hold_active(self, process_id: str, tasks: AssignedTasks, change: int) -> None:
        for task in each_task(tasks.active):
            if change > 0:
                self._active_processes[task] = process_id
            # A log in compaction can show a task under a later member first (KAFKA-19862).
            elif self._active_processes.get(task) == process_id:
                del self._active_processes[task]

    def _count_reconciled(self, assignment: StreamsMemberAssignment, change: int) -> None:
        if assignment.state is TaskReconciliationState.STABLE:
            self._reconciled[assignment.epoch] += change
            if not self._reconciled[assignment.epoch]:
                del self._reconciled[assignment.epoch]
