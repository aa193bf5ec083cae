"""The uniform assignor: an equal number of partitions for each member, with as few moves as possible.

| subscriptions | method |
|---|---|
| equal | a quota of ⌊T/n⌋ of all T partitions, one more for T mod n members, first those that have it already; members keep their former target up to the quota, and the free partitions fill the others |
| different | members keep their former target; the free partitions of each topic, the one with most partitions per subscriber first, go to its least loaded subscriber; then partitions move from the most to the least loaded subscriber, while these differ by more than one |
"""  # noqa: E501  rows of a table

from collections.abc import Mapping
from typing import Final

from broker.groups.consumer.assignment import Assignment, assignment_from, in_order
from broker.groups.consumer.assignors.assignor import AssignableGroup, AssignableMember
from broker.groups.consumer.assignors.balancing import balanced
from protocol.primitives import Uuid


class UniformAssignor:
    """Assigns equal numbers of partitions; see the module."""

    name: Final = "uniform"

    def assign(self, group: AssignableGroup) -> Mapping[str, Assignment]:
        """Return the target of each member. Raise AssignorFailed."""
        if not group.members:
            return {}
        return _filled(group) if group.is_homogeneous else balanced(group)


def _filled(group: AssignableGroup) -> Mapping[str, Assignment]:
    topic_ids = next(iter(group.members.values())).topic_ids
    total = sum(group.partition_count(topic_id) for topic_id in topic_ids)
    size, extra = divmod(total, len(group.members))
    # Members with a surplus partition keep it, rather than the first ones of the group.
    surplus = sorted(group.members.values(), key=lambda member: _count(member, topic_ids) <= size)
    favoured = {member.member_id for member in surplus[:extra]}
    taken: set[tuple[Uuid, int]] = set()
    kept: dict[str, list[tuple[Uuid, int]]] = {}
    room: dict[str, int] = {}
    for member in group.members.values():
        quota = size + (member.member_id in favoured)
        kept[member.member_id] = _kept(group, member, topic_ids, quota, taken)
        room[member.member_id] = quota - len(kept[member.member_id])
    free = (
        (topic_id, partition)
        for topic_id in sorted(topic_ids)
        for partition in range(group.partition_count(topic_id))
        if (topic_id, partition) not in taken
    )
    for member_id, count in room.items():
        kept[member_id].extend(partition for _, partition in zip(range(count), free, strict=False))
    return {member_id: assignment_from(partitions) for member_id, partitions in kept.items()}


def _count(member: AssignableMember, topic_ids: frozenset[Uuid]) -> int:
    return sum(len(partitions) for topic_id, partitions in member.target.items() if topic_id in topic_ids)


def _kept(
    group: AssignableGroup,
    member: AssignableMember,
    topic_ids: frozenset[Uuid],
    quota: int,
    taken: set[tuple[Uuid, int]],
) -> list[tuple[Uuid, int]]:
    """Return the part of the former target that the member keeps, and add it to `taken`."""
    kept: list[tuple[Uuid, int]] = []
    for topic_id, partitions in in_order(member.target):
        if topic_id not in topic_ids:
            continue
        count = group.partition_count(topic_id)
        for partition in partitions:
            if len(kept) < quota and partition < count and (topic_id, partition) not in taken:
                kept.append((topic_id, partition))
                taken.add((topic_id, partition))
    return kept
