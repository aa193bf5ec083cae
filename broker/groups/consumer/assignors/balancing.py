"""The uniform assignment of a group whose members subscribe to different topics; see `uniform.py`.

Loads are numbers of partitions over all topics. The topics are balanced one by one, at most 16 rounds, since moving
partitions of one topic can unbalance another. A heap of members by load gives each step in logarithmic time.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from heapq import heapify, heappop, heappush
from itertools import chain
from typing import Final

from broker.groups.consumer.assignment import Assignment, in_order
from broker.groups.consumer.assignors.assignor import AssignableGroup
from protocol.primitives import Uuid

_ROUNDS: Final = 16
_FEW: Final = 4
"""Partitions of a topic up to which a search for the least loaded subscriber is faster than a heap of all."""


def balanced(group: AssignableGroup) -> Mapping[str, Assignment]:
    """Return the target of each member. Raise AssignorFailed."""
    loads = _Loads(group)
    topic_ids = loads.topics_by_density()
    for topic_id in topic_ids:
        loads.assign_free_partitions(topic_id)
    shared = [topic_id for topic_id in topic_ids if len(loads.subscribers[topic_id]) > 1]
    for _ in range(_ROUNDS):
        moves = [loads.balance(topic_id) for topic_id in shared]
        if not any(moves):
            break
    return loads.targets()


def _subscribers(group: AssignableGroup) -> dict[Uuid, list[int]]:
    """Return the numbers of each topic's subscribers, in ascending order. Equal subscriptions are read once."""
    sharing: dict[frozenset[Uuid], list[int]] = {}
    for number, member in enumerate(group.members.values()):
        sharing.setdefault(member.topic_ids, []).append(number)
    found: defaultdict[Uuid, list[list[int]]] = defaultdict(list)
    for topic_ids, numbers in sharing.items():
        for topic_id in topic_ids:
            found[topic_id].append(numbers)
    return {topic_id: each[0] if len(each) == 1 else sorted(chain(*each)) for topic_id, each in found.items()}


class _Loads:
    """The assignment under construction; members are numbers, in the order of the group."""

    def __init__(self, group: AssignableGroup) -> None:
        self._member_ids = list(group.members)
        self._loads = [0] * len(self._member_ids)
        self.subscribers = _subscribers(group)
        self._counts = {topic_id: group.partition_count(topic_id) for topic_id in self.subscribers}
        self._owned: dict[Uuid, dict[int, list[int]]] = {topic_id: {} for topic_id in self.subscribers}
        self._free = {topic_id: dict.fromkeys(range(count)) for topic_id, count in self._counts.items()}
        for number, member in enumerate(group.members.values()):
            for topic_id, partitions in in_order(member.target):
                if topic_id in member.topic_ids:
                    self._keep(topic_id, number, partitions)

    def topics_by_density(self) -> list[Uuid]:
        """Return the topics: most partitions per subscriber first, then fewest subscribers, then by id."""

        def rank(topic_id: Uuid) -> tuple[float, int, Uuid]:
            count = len(self.subscribers[topic_id])
            return -self._counts[topic_id] / count, count, topic_id

        return sorted(self.subscribers, key=rank)

    def assign_free_partitions(self, topic_id: Uuid) -> None:
        """Give each partition without owner to the least loaded subscriber."""
        free = self._free[topic_id]
        if not free:
            return
        if len(free) <= _FEW:
            numbers, loads, owned = self.subscribers[topic_id], self._loads, self._owned[topic_id]
            for partition in free:
                taker = min(numbers, key=loads.__getitem__)  # the first of several
                owned.setdefault(taker, []).append(partition)
                loads[taker] += 1
            free.clear()
            return
        least = [(self._loads[number], number) for number in self.subscribers[topic_id]]
        heapify(least)
        for partition in free:
            load, number = heappop(least)
            self._owned[topic_id].setdefault(number, []).append(partition)
            self._loads[number] = load + 1
            heappush(least, (load + 1, number))
        free.clear()

    def balance(self, topic_id: Uuid) -> int:
        """Move partitions of the topic from the most to the least loaded subscriber. Return the number of moves."""
        numbers = self.subscribers[topic_id]
        loads, owned = self._loads, self._owned[topic_id]
        most_loaded = max((loads[number] for number, partitions in owned.items() if partitions), default=0)
        if most_loaded - min(map(loads.__getitem__, numbers)) <= 1:
            return 0  # the common case, without heaps
        least = [(loads[number], number) for number in numbers]
        most = [(-loads[number], -number) for number in numbers if owned.get(number)]
        heapify(least)
        heapify(most)
        moves = 0
        while most:
            giver = -heappop(most)[1]
            load, taker = heappop(least)
            if loads[taker] != load:
                heappush(least, (loads[taker], taker))
                heappush(most, (-loads[giver], -giver))
                continue
            if loads[giver] - load <= 1:
                heappush(least, (load, taker))
                break
            owned.setdefault(taker, []).append(owned[giver].pop())
            loads[giver] -= 1
            loads[taker] += 1
            moves += 1
            heappush(least, (loads[taker], taker))
            if owned[giver]:
                heappush(most, (-loads[giver], -giver))
        return moves

    def targets(self) -> Mapping[str, Assignment]:
        """Return the result."""
        targets: dict[str, dict[Uuid, frozenset[int]]] = {member_id: {} for member_id in self._member_ids}
        for topic_id, owners in self._owned.items():
            for number, partitions in owners.items():
                if partitions:
                    targets[self._member_ids[number]][topic_id] = frozenset(partitions)
        return targets

    def _keep(self, topic_id: Uuid, number: int, partitions: Iterable[int]) -> None:
        free = self._free[topic_id]
        kept = [partition for partition in partitions if partition in free]
        for partition in kept:
            del free[partition]
        if kept:
            self._owned[topic_id][number] = kept
            self._loads[number] += len(kept)
