"""The uniform assignor: an equal number of partitions for each member, with as few moves as possible.

| subscriptions | method |
|---|---|
| equal | a quota of ⌊T/n⌋ of all T partitions, one more for T mod n members, first those that have it already; members keep their former target up to the quota, and the free partitions fill the others |
| different | members keep their former target; the free partitions of each topic, the one with most partitions per subscriber first, go to its least loaded subscriber; then partitions move from the most to the least loaded subscriber, while these differ by more than one |
"""  # noqa: E501  rows of a table

from collections.abc import Mapping
from itertools import chain, islice
from typing import Final

from broker.groups.consumer.assignment import Assignment, assignment_from, in_order, union
from broker.groups.consumer.assignors.assignor import AssignableGroup, FormerTargets, IncrementalAssignor
from broker.groups.consumer.assignors.balancing import balanced
from protocol.primitives import Uuid


class UniformAssignor(IncrementalAssignor):
    """Assigns equal numbers of partitions; see the module."""

    name: Final = "uniform"

    def assign(self, group: AssignableGroup) -> Mapping[str, Assignment]:
        """Return the target of each member. Raise AssignorFailed."""
        if not group.members:
            return {}
        return _filled(group) if group.is_homogeneous else balanced(group)

    def changes(self, former: FormerTargets) -> Mapping[str, Assignment]:
        """Return the changed targets. The work grows with their number, not with that of all members."""
        return _refilled(former)


def _filled(group: AssignableGroup) -> Mapping[str, Assignment]:
    topic_ids = next(iter(group.members.values())).topic_ids
    counts = {topic_id: group.partition_count(topic_id) for topic_id in sorted(topic_ids)}
    size, extra = divmod(sum(counts.values()), len(group.members))
    # Members with a surplus partition keep it, rather than the first ones of the group.
    surplus = sorted(group.members.values(), key=lambda member: _size(member.target) <= size)
    favoured = {member.member_id for member in surplus[:extra]}
    taken: dict[Uuid, set[int]] = {topic_id: set() for topic_id in counts}
    targets: dict[str, Assignment] = {}
    room: dict[str, int] = {}
    for member_id, member in group.members.items():
        quota = size + (member_id in favoured)
        targets[member_id] = _kept(member.target, counts, quota, taken)
        room[member_id] = quota - _size(targets[member_id])
    free = (
        (topic_id, partition)
        for topic_id, count in counts.items()
        for partition in range(count)
        if partition not in taken[topic_id]
    )
    for member_id, count in room.items():
        if count:
            added = [partition for _, partition in zip(range(count), free, strict=False)]
            targets[member_id] = union(targets[member_id], assignment_from(added))
    return targets


def _refilled(former: FormerTargets) -> dict[str, Assignment]:
    """Return the changes that `_filled` makes to disjoint targets of existing partitions."""
    quotas = _changed_quotas(former)
    changed: dict[str, Assignment] = {}
    free = {topic_id: set(partitions) for topic_id, partitions in former.free.items()}
    for member_id in sorted(quotas, key=former.loads.rank):
        target, quota = former.target(member_id), quotas[member_id]
        changed[member_id] = target if quota >= _size(target) else _first(target, quota, free)
    added = ((topic_id, partition) for topic_id in sorted(free) for partition in sorted(free[topic_id]))
    for member_id, target in changed.items():
        room = quotas[member_id] - _size(target)
        if room:
            changed[member_id] = union(target, assignment_from(islice(added, room)))
    return changed


def _changed_quotas(former: FormerTargets) -> dict[str, int]:
    """Return the quota of each member whose load differs from it."""
    loads = former.loads
    size, extra = divmod(former.partition_count, len(loads) + (former.newcomer is not None))
    surplus = loads.count_above(size) - extra
    quotas = dict.fromkeys(loads.above(size + 1), size + 1)
    quotas.update(dict.fromkeys(loads.below(size), size))
    if former.newcomer is not None and size:
        quotas[former.newcomer] = size
    if surplus > 0:
        quotas.update(dict.fromkeys(islice(loads.above(size), surplus), size))
    elif surplus < 0:
        newcomer = () if former.newcomer is None else (former.newcomer,)
        quotas.update(dict.fromkeys(islice(chain(loads.up_to(size), newcomer), -surplus), size + 1))
    return quotas


def _first(target: Assignment, quota: int, free: dict[Uuid, set[int]]) -> Assignment:
    """Return the first partitions of a target, as many as the quota, and add the others to `free`."""
    kept: dict[Uuid, frozenset[int]] = {}
    for topic_id, partitions in target.items():
        if len(partitions) <= quota:
            kept[topic_id] = partitions
            quota -= len(partitions)
            continue
        ordered = sorted(partitions)
        if quota:
            kept[topic_id] = frozenset(ordered[:quota])
        free.setdefault(topic_id, set()).update(ordered[quota:])
        quota = 0
    return kept


def _kept(target: Assignment, counts: Mapping[Uuid, int], quota: int, taken: Mapping[Uuid, set[int]]) -> Assignment:
    """Return the part of the former target that the member keeps, and add it to `taken`.

    The common case, a target that is kept as a whole, copies nothing.
    """
    is_whole = _size(target) <= quota and all(
        topic_id in counts and max(partitions) < counts[topic_id] and taken[topic_id].isdisjoint(partitions)
        for topic_id, partitions in target.items()
    )
    kept: dict[Uuid, frozenset[int]] = {}
    for topic_id, partitions in () if is_whole else in_order(target):
        valid = [each for each in partitions if each < counts.get(topic_id, 0) and each not in taken[topic_id]]
        if chosen := frozenset(valid[:quota]):
            kept[topic_id] = chosen
            quota -= len(chosen)
    result = target if is_whole else kept
    for topic_id, chosen in result.items():
        taken[topic_id] |= chosen
    return result


def _size(target: Assignment) -> int:
    return sum(map(len, target.values()))
