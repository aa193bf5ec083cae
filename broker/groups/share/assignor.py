"""The assignor of share groups, "simple" in Kafka: balanced, sticky, with several members on a partition if need be.

Where all members have the same topics, every partition gets as many members as the number of members divided by that of
partitions, rounded up. Where they differ, this holds for each topic alone.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Final, Protocol

from broker.groups.consumer.assignment import Assignment, assignment_from, each_partition
from protocol.primitives import Uuid

SharedPartition = tuple[Uuid, int]


class ShareAssignor(Protocol):
    """Assigns partitions to members; a partition may have several."""

    @property
    def name(self) -> str:
        """The name that ShareGroupDescribe shows."""

    def assign(
        self,
        subscriptions: Mapping[str, frozenset[Uuid]],
        partitions: Mapping[Uuid, Sequence[int]],
        former: Mapping[str, Assignment],
    ) -> Mapping[str, Assignment]:
        """Return the target of each member; a member without one gets no partitions. Raise AssignorFailed.

        `subscriptions` are the ids of each member's topics, `partitions` can be assigned, and `former` are the former
        targets. The result must depend on the input alone.
        """


class SimpleAssignor:
    """Balances partitions among members; see the module."""

    name: Final = "simple"

    def assign(
        self,
        subscriptions: Mapping[str, frozenset[Uuid]],
        partitions: Mapping[Uuid, Sequence[int]],
        former: Mapping[str, Assignment],
    ) -> Mapping[str, Assignment]:
        """Return the target of each member."""
        return assign_shared(subscriptions, partitions, former)


def assign_shared(
    subscriptions: Mapping[str, frozenset[Uuid]],
    partitions: Mapping[Uuid, Sequence[int]],
    former: Mapping[str, Assignment],
) -> dict[str, Assignment]:
    """Return the target of each member, by the ids of its topics; `partitions` can be assigned."""
    targets: dict[str, set[SharedPartition]] = {member_id: set() for member_id in subscriptions}
    for members, topic_ids in _parts(subscriptions):
        targeted = [(topic_id, index) for topic_id in topic_ids for index in partitions.get(topic_id, ())]
        assignable = frozenset(targeted)
        owned = {member_id: assignable.intersection(each_partition(former.get(member_id, {}))) for member_id in members}
        for member_id, shared in _balanced(members, targeted, owned).items():
            targets[member_id] |= shared
    return {member_id: assignment_from(shared) for member_id, shared in targets.items()}


def _parts(subscriptions: Mapping[str, frozenset[Uuid]]) -> Iterable[tuple[list[str], list[Uuid]]]:
    """Yield members and topics that are balanced together."""
    distinct = set(subscriptions.values())
    if len(distinct) == 1:
        yield list(subscriptions), sorted(distinct.pop())
        return
    for topic_id in sorted(frozenset().union(*distinct)):
        yield [member_id for member_id, topic_ids in subscriptions.items() if topic_id in topic_ids], [topic_id]


def _balanced(
    members: Sequence[str], targeted: Sequence[SharedPartition], owned: Mapping[str, frozenset[SharedPartition]]
) -> dict[str, set[SharedPartition]]:
    """Give every partition the same number of members, and every member the same number of partitions, ±1."""
    if not targeted or not members:
        return {}
    sharing = -(-len(members) // len(targeted))
    places = dict.fromkeys(targeted, sharing)
    total = sharing * len(targeted)
    result: dict[str, set[SharedPartition]] = {}
    unfilled: list[tuple[str, int]] = []
    for position, member_id in enumerate(members):
        wanted = -(-total * (position + 1) // len(members)) + (-total * position // len(members))
        kept = {each for each in sorted(owned[member_id])[:wanted] if places[each]}
        result[member_id] = kept
        for each in kept:
            places[each] -= 1
        if len(kept) < wanted:
            unfilled.append((member_id, wanted))
    _fill(result, unfilled, [each for each, free in places.items() for _ in range(free)])
    return result


def _fill(
    result: Mapping[str, set[SharedPartition]], unfilled: list[tuple[str, int]], free: Iterable[SharedPartition]
) -> None:
    """Give each free place on a partition to the next member that lacks partitions and is not on this one yet."""
    turn = 0
    for partition in free:
        for _ in range(len(unfilled)):
            turn %= len(unfilled)
            member_id, wanted = unfilled[turn]
            if partition in result[member_id]:
                turn += 1
                continue
            result[member_id].add(partition)
            if len(result[member_id]) == wanted:
                del unfilled[turn]
            else:
                turn += 1
            break
