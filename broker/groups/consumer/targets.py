"""The target assignments of a group's members, with the tables that an incremental assignor reads."""

from collections.abc import Collection, Mapping
from typing import Final

from broker.groups.consumer.assignment import NO_PARTITIONS, Assignment, without
from broker.groups.consumer.loads import MemberLoads
from protocol.primitives import Uuid

_NO_COUNTS: Final[Mapping[Uuid, int]] = {}
_Partitions = dict[Uuid, set[int]]  # here, since the class has a method of that name


class TargetTable:
    """Targets by member id. `loads` counts the partitions of each member, with or without a target.

    The cost of setting a target grows with the number of partitions that the member gains or loses.
    """

    def __init__(self) -> None:
        self.loads = MemberLoads()
        self._targets: dict[str, Assignment] = {}
        self._of_members = 0
        self._covered: _Partitions | None = {}
        self._counts = _NO_COUNTS
        self._free: _Partitions = {}
        self._gone_count = 0

    def __len__(self) -> int:
        return len(self._targets)

    def __contains__(self, member_id: str) -> bool:
        return member_id in self._targets

    def get(self, member_id: str) -> Assignment:
        return self._targets.get(member_id, NO_PARTITIONS)

    # Members and targets.

    def add_member(self, member_id: str) -> None:
        """Add a member at the end of the group's order."""
        self.loads.add(member_id, _size(self.get(member_id)))
        self._of_members += member_id in self._targets

    def remove_member(self, member_id: str) -> None:
        """Remove a member; its target remains."""
        self.loads.remove(member_id)
        self._of_members -= member_id in self._targets

    def set(self, member_id: str, target: Assignment) -> None:
        """Set the target of a member, or of one that the log has not shown yet."""
        former = self._targets.get(member_id)
        self._targets[member_id] = target
        if former is None:
            self._cover(target)
        elif self._covered is not None:
            self._uncover(without(former, target))
            self._cover(without(target, former))
        if member_id in self.loads:
            self._of_members += former is None
            self.loads.change(member_id, _size(target))

    def remove(self, member_id: str) -> None:
        """Remove a target; its member remains."""
        former = self._targets.pop(member_id, None)
        if former is None:
            return
        self._uncover(former)
        if member_id in self.loads:
            self._of_members -= 1
            self.loads.change(member_id, 0)

    def is_complete(self, *, except_for: str) -> bool:
        """Whether each target has its member, and each member a target, except for one member."""
        is_untargeted = except_for in self.loads and except_for not in self._targets
        return len(self._targets) == self._of_members == len(self.loads) - is_untargeted

    # Partitions.

    def free(self, counts: Mapping[Uuid, int]) -> Mapping[Uuid, Collection[int]] | None:
        """Return the partitions without an owner, by topic, where `counts` has the partitions of each topic.

        None when two targets have a partition in common, or one has a partition that `counts` lacks.
        """
        if self._covered is None:
            self._cover_all()
        if self._covered is None:
            return None
        if counts is not self._counts:
            self._follow(counts, self._covered)
        return None if self._gone_count else self._free

    def _cover_all(self) -> None:
        self._covered, self._counts, self._free, self._gone_count = {}, _NO_COUNTS, {}, 0
        for target in self._targets.values():
            self._cover(target)

    def _follow(self, counts: Mapping[Uuid, int], covered: _Partitions) -> None:
        if counts != self._counts:
            self._free = {}
            for topic_id, count in counts.items():
                owned: Collection[int] = covered.get(topic_id, ())
                if len(owned) != count and (free := set(range(count)).difference(owned)):
                    self._free[topic_id] = free
            self._gone_count = sum(_gone(counts, topic_id, partitions) for topic_id, partitions in covered.items())
        self._counts = counts

    def _cover(self, target: Assignment) -> None:
        """Add a target's partitions. A second owner stops the count, since the first one's removal would be wrong."""
        for topic_id, partitions in target.items():
            if self._covered is None:
                return
            others = self._covered.setdefault(topic_id, set())
            if not others.isdisjoint(partitions):
                self._covered = None
                return
            others |= partitions
            self._gone_count += _gone(self._counts, topic_id, partitions)
            if (free := self._free.get(topic_id)) is not None:
                free -= partitions
                if not free:
                    del self._free[topic_id]

    def _uncover(self, target: Assignment) -> None:
        if self._covered is None:
            return
        for topic_id, partitions in target.items():
            self._covered[topic_id] -= partitions
            if not self._covered[topic_id]:
                del self._covered[topic_id]
            self._gone_count -= _gone(self._counts, topic_id, partitions)
            count = self._counts.get(topic_id, 0)
            if found := [partition for partition in partitions if partition < count]:
                self._free.setdefault(topic_id, set()).update(found)


def _gone(counts: Mapping[Uuid, int], topic_id: Uuid, partitions: Collection[int]) -> int:
    """Return how many of the partitions do not exist."""
    count = counts.get(topic_id, 0)
    return sum(partition >= count for partition in partitions) if max(partitions, default=-1) >= count else 0


def _size(target: Assignment) -> int:
    return sum(map(len, target.values()))
