"""The groups of a shard by id. `GroupTable` alone adds or removes a classic group, or changes its state."""

from collections.abc import Callable, Iterator
from logging import getLogger
from typing import Generic, TypeVar

from broker.groups.classic import ClassicGroup
from broker.groups.metrics import GroupMetrics
from broker.groups.state import GroupState, Transition, next_state
from protocol.errors import ErrorCode, KafkaError

G = TypeVar("G")

_log = getLogger(__name__)


class GroupsById(Generic[G]):
    """Groups of one type by id."""

    def __init__(self) -> None:
        self._groups: dict[str, G] = {}

    def __len__(self) -> int:
        return len(self._groups)

    def __iter__(self) -> Iterator[G]:
        return iter(self._groups.values())

    def __contains__(self, group_id: object) -> bool:
        return group_id in self._groups

    def ids(self) -> list[str]:
        return list(self._groups)

    def get(self, group_id: str) -> G | None:
        return self._groups.get(group_id)


class GroupTable(GroupsById[ClassicGroup]):
    """Finds groups and counts them by state. `before_use` replays the offsets of a group."""

    def __init__(self, metrics: GroupMetrics, before_use: Callable[[str], None]) -> None:
        super().__init__()
        self._metrics = metrics
        self._before_use = before_use

    def __contains__(self, group_id: object) -> bool:
        return isinstance(group_id, str) and self.get(group_id) is not None

    def get(self, group_id: str) -> ClassicGroup | None:
        self._before_use(group_id)
        return self._groups.get(group_id)

    def get_or_raise(self, group_id: str) -> ClassicGroup:
        """Return the group. Raise KafkaError(GROUP_ID_NOT_FOUND)."""
        group = self.get(group_id)
        if group is None:
            raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} not found.")
        return group

    def put(self, group: ClassicGroup) -> ClassicGroup:
        """Add the group, in place of one with the same id."""
        self.remove(group.group_id)
        self._groups[group.group_id] = group
        self._metrics.groups[group.state] += 1
        return group

    def remove(self, group_id: str) -> None:
        group = self._groups.pop(group_id, None)
        if group is not None:
            self._metrics.groups[group.state] -= 1

    def move(self, group: ClassicGroup, transition: Transition, now_ms: int) -> None:
        """Change the group's state. Raise IllegalGroupTransition.

        A write in progress may end after the group has become a consumer group, which is counted elsewhere.
        """
        state = next_state(group.state, transition)
        if self._groups.get(group.group_id) is group:
            self._metrics.groups[group.state] -= 1
            self._metrics.groups[state] += 1
        group.was_empty = group.state is GroupState.EMPTY
        group.state = state
        group.state_since_ms = now_ms
