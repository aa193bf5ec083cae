"""Majority arithmetic: what more than half of the voters grant, refuse, or have.

Who the voters are is `voters.py`'s; what follows from a result is decided by those who ask.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import Enum, auto


class Outcome(Enum):
    OPEN = auto()
    WON = auto()
    LOST = auto()


def majority(voters: int) -> int:
    """How many of `voters` decide; any two such groups share a voter."""
    return voters // 2 + 1


def agreed_offset(end_offsets: Iterable[int]) -> int:
    """The largest offset that a majority has reached, out of one end offset for each voter (-1: not known)."""
    ordered = sorted(end_offsets, reverse=True)
    return ordered[len(ordered) // 2] if ordered else -1


@dataclass(slots=True)
class Ballot:
    """One ballot among the voters of the moment at which it began; each has one voice, and the first one counts."""

    voters: frozenset[int]
    granted: set[int] = field(default_factory=set)
    refused: set[int] = field(default_factory=set)

    def record(self, voter_id: int, granted: bool) -> None:
        """Counts an answer; voices of others than the voters, and second ones, are not heard."""
        if voter_id in self.voters and voter_id not in self.granted and voter_id not in self.refused:
            (self.granted if granted else self.refused).add(voter_id)

    @property
    def outcome(self) -> Outcome:
        needed = majority(len(self.voters))
        if len(self.granted) >= needed:
            return Outcome.WON
        return Outcome.LOST if len(self.voters) - len(self.refused) < needed else Outcome.OPEN

    @property
    def silent(self) -> frozenset[int]:
        """Who has not answered yet."""
        return self.voters - self.granted - self.refused
