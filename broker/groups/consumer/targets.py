"""The target assignments of a group's members, with the tables that an incremental assignor reads."""

from collections.abc import Collection, Mapping

from broker.groups.consumer.assignment import NO_PARTITIONS, Assignment
from protocol.primitives import Uuid


class TargetTable:
    """Targets by member id. `sizes` counts the partitions of each."""

    def __init__(self) -> None:
        self.sizes: dict[str, int] = {}
        self._targets: dict[str, Assignment] = {}
        self._covered: dict[Uuid, set[int]] | None = {}

    def __len__(self) -> int:
        return len(self._targets)

    def __contains__(self, member_id: str) -> bool:
        return member_id in self._targets

    def get(self, member_id: str) -> Assignment:
        return self._targets.get(member_id, NO_PARTITIONS)

    def set(self, member_id: str, target: Assignment) -> None:
        self._uncover(self.get(member_id))
        self._targets[member_id] = target
        self.sizes[member_id] = sum(map(len, target.values()))
        self._cover(target)

    def remove(self, member_id: str) -> None:
        self._uncover(self._targets.pop(member_id, NO_PARTITIONS))
        self.sizes.pop(member_id, None)

    def covered(self) -> Mapping[Uuid, Collection[int]] | None:
        """Return the partitions of all targets, by topic; None when two targets have a partition in common."""
        if self._covered is None:
            self._covered = {}
            for target in self._targets.values():
                self._cover(target)
        return self._covered

    def _cover(self, target: Assignment) -> None:
        """Add a target's partitions. A second owner stops the count, since the first one's removal would be wrong."""
        for topic_id, partitions in target.items():
            if self._covered is None:
                return
            others = self._covered.setdefault(topic_id, set())
            if others.isdisjoint(partitions):
                others |= partitions
            else:
                self._covered = None

    def _uncover(self, target: Assignment) -> None:
        if self._covered is None:
            return
        for topic_id, partitions in target.items():
            self._covered[topic_id] -= partitions
            if not self._covered[topic_id]:
                del self._covered[topic_id]
