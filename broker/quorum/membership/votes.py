"""Majority arithmetic over votes and end offsets."""

from collections.abc import Iterable
from dataclasses import field
from enum import Enum, auto

from protocol.ids import BrokerId, Offset
from protocol.lazy_dataclass import lazy_dataclass


class Outcome(Enum):
    OPEN = auto()
    WON = auto()
    LOST = auto()


def majority(voters: int) -> int:
    """Return the size of a majority; any two majorities share a voter."""
    return voters // 2 + 1


def agreed_offset(end_offsets: Iterable[Offset]) -> Offset:
    """Return the largest offset that a majority has reached, given each voter's end offset (-1: unknown)."""
    ordered = sorted(end_offsets, reverse=True)
    return ordered[len(ordered) // 2] if ordered else Offset(-1)


@lazy_dataclass(slots=True)
class Ballot:
    """One election among a fixed set of voters. The first vote of each voter counts."""

    voters: frozenset[BrokerId]
    granted: set[BrokerId] = field(default_factory=set)
    refused: set[BrokerId] = field(default_factory=set)

    def record(self, voter_id: BrokerId, granted: bool) -> None:
        """Count a vote. Votes of other nodes and repeated votes are ignored."""
        if voter_id in self.voters and voter_id not in self.granted and voter_id not in self.refused:
            (self.granted if granted else self.refused).add(voter_id)

    @property
    def outcome(self) -> Outcome:
        needed = majority(len(self.voters))
        if len(self.granted) >= needed:
            return Outcome.WON
        return Outcome.LOST if len(self.voters) - len(self.refused) < needed else Outcome.OPEN

    @property
    def pending(self) -> frozenset[BrokerId]:
        """The voters that have not responded."""
        return self.voters - self.granted - self.refused
