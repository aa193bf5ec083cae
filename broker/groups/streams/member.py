"""A member of a streams group: its description, and its way to the target assignment."""

from dataclasses import field
from enum import IntEnum
from typing import Final

from broker.groups.streams.tasks import NOTHING_ASSIGNED, AssignedTasks
from protocol.lazy_dataclass import lazy_dataclass

DELAYED_EPOCH: Final = 1
"""The member epoch during the initial rebalance delay; the first group epoch is the next one."""


class TaskReconciliationState(IntEnum):
    """The state of a member between two assignments, with its number in records; `reconciliation.py` has the table."""

    STABLE = 1
    UNREVOKED_TASKS = 2
    UNRELEASED_TASKS = 3
    UNKNOWN = 127

    @classmethod
    def of(cls, number: int) -> "TaskReconciliationState":
        """Return the state with that number; UNKNOWN for a state of a later version."""
        return cls(number) if number in cls._value2member_map_ else cls.UNKNOWN


@lazy_dataclass(frozen=True, slots=True)
class UserEndpoint:
    """The address of an instance for interactive queries."""

    host: str
    port: int


@lazy_dataclass(frozen=True, slots=True)
class StreamsGroupMember:
    """A member as its record describes it. Members of one Streams instance have the same process id."""

    member_id: str
    client_id: str = ""
    client_host: str = ""
    instance_id: str | None = None
    rack_id: str | None = None
    rebalance_timeout_ms: int = -1
    topology_epoch: int = -1
    process_id: str = ""
    endpoint: UserEndpoint | None = None
    client_tags: tuple[tuple[str, str], ...] = ()


@lazy_dataclass(frozen=True, slots=True)
class StreamsMemberAssignment:
    """The tasks of a member now. `revoking` are tasks that the member must give up, and still owns.

    `previous_epoch` is the epoch before the last change, which a client has whose last response was lost.
    """

    epoch: int = 0
    previous_epoch: int = 0
    state: TaskReconciliationState = TaskReconciliationState.STABLE
    assigned: AssignedTasks = field(default_factory=lambda: NOTHING_ASSIGNED)
    revoking: AssignedTasks = field(default_factory=lambda: NOTHING_ASSIGNED)

    def is_reconciled_to(self, epoch: int) -> bool:
        """Whether the member has reached the target assignment of that epoch."""
        return self.state is TaskReconciliationState.STABLE and self.epoch == epoch


NEW_STREAMS_MEMBER: Final = StreamsMemberAssignment()
