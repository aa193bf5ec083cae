"""The members of a group by their number of partitions, so that an assignor finds the few that change.

Members of one load are in the order of the group. A new member comes last, and a changed load moves a member from one
list to another, both in logarithmic time beside a move of memory.
"""

from bisect import bisect_left, insort
from collections.abc import Callable, Iterator
from heapq import merge


class MemberLoads:
    """Loads by member id. A rank is the position of a member in the order of the group."""

    def __init__(self) -> None:
        self._ranks: dict[str, int] = {}
        self._members: dict[int, str] = {}
        self._loads: dict[str, int] = {}
        self._ranks_by_load: dict[int, list[int]] = {}
        self._next_rank = 0

    def __len__(self) -> int:
        return len(self._loads)

    def __contains__(self, member_id: str) -> bool:
        return member_id in self._loads

    def __getitem__(self, member_id: str) -> int:
        return self._loads[member_id]

    def add(self, member_id: str, load: int) -> None:
        """Add a member at the end of the order."""
        rank = self._next_rank
        self._next_rank += 1
        self._ranks[member_id] = rank
        self._members[rank] = member_id
        self._loads[member_id] = load
        self._ranks_by_load.setdefault(load, []).append(rank)

    def remove(self, member_id: str) -> None:
        """Remove a member."""
        rank = self._ranks.pop(member_id)
        del self._members[rank]
        self._take_out(rank, self._loads.pop(member_id))

    def change(self, member_id: str, load: int) -> None:
        """Set the load of a member."""
        former = self._loads[member_id]
        if load != former:
            rank = self._ranks[member_id]
            self._take_out(rank, former)
            self._loads[member_id] = load
            insort(self._ranks_by_load.setdefault(load, []), rank)

    def rank(self, member_id: str) -> int:
        """Return the position of a member, or of one that would be added, among all of them."""
        return self._ranks.get(member_id, self._next_rank)

    def count_above(self, load: int) -> int:
        """Return the number of members with a greater load."""
        return sum(len(ranks) for each, ranks in self._ranks_by_load.items() if each > load)

    def above(self, load: int) -> Iterator[str]:
        """Yield the members with a greater load, the last of the order first."""
        lists = [reversed(ranks) for each, ranks in self._ranks_by_load.items() if each > load]
        return map(self._members.__getitem__, merge(*lists, reverse=True))

    def up_to(self, load: int) -> Iterator[str]:
        """Yield the members with that load or a smaller one, in order."""
        return self._in_order(lambda each: each <= load)

    def below(self, load: int) -> Iterator[str]:
        """Yield the members with a smaller load, in order."""
        return self._in_order(lambda each: each < load)

    def _in_order(self, includes: Callable[[int], bool]) -> Iterator[str]:
        lists = [ranks for load, ranks in self._ranks_by_load.items() if includes(load)]
        return map(self._members.__getitem__, merge(*lists))

    def _take_out(self, rank: int, load: int) -> None:
        ranks = self._ranks_by_load[load]
        del ranks[bisect_left(ranks, rank)]
        if not ranks:
            del self._ranks_by_load[load]
