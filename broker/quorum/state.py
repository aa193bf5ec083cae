"""The roles of a replica, what leads from one to the other, and the term that they act in.

Two rules: every change of role passes `check_transition`, and a change without an entry in `TRANSITIONS` is an error of
ours, never of a peer. A role holds only what dies with it; what must survive is in the `Term` and goes to quorum-state.

- Unattached: a voter that knows no leader (or not where it listens). Its timer makes it Prospective.
- Prospective: asks whether it would win, without disturbing anybody (KIP-996); the only way to candidacy.
- Candidate: has voted for itself in a new epoch and asks for votes.
- Leader: won; appends, and counts who has what.
- Follower: a voter that fetches from the leader. Its timer makes it Prospective.
- Resigned: was leader of this epoch and neither writes nor votes in it again.
- Observer: not a voter by its own log (see `QuorumReplica.can_become_candidate`), with or without a known leader. An
  observer may grant votes, because the voters of a candidate's longer log may include it, but never stands.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Final, NamedTuple, TypeAlias

from broker.quorum.identity import ReplicaKey, SocketAddress
from broker.quorum.membership.votes import Ballot
from broker.quorum.progress import Progress


class Term(NamedTuple):
    """What must survive a crash. A vote lasts as long as its epoch, whoever comes to lead in it."""

    epoch: int = 0
    leader_id: int | None = None
    voted: ReplicaKey | None = None


@dataclass(slots=True)
class UnattachedState:
    """Deadlines here and below are monotonic times in ms."""

    election_deadline: float


@dataclass(slots=True)
class ProspectiveState:
    ballot: Ballot
    election_deadline: float


@dataclass(slots=True)
class CandidateState:
    ballot: Ballot
    election_deadline: float


@dataclass(slots=True)
class LeaderState:
    """`start_offset` is that of the epoch's first record; until it is committed, nothing of the epoch is.

    `begin_at` says when each other voter is next told of the epoch; `granted` are those who elected the leader.
    """

    start_offset: int
    granted: frozenset[int]
    progress: Progress
    quorum_deadline: float
    begin_at: dict[int, float] = field(default_factory=dict)


@dataclass(slots=True)
class FollowerState:
    """`has_fetched`: the leader has answered a fetch in this epoch, so that it is worth keeping (KIP-996).

    `leader_ended`: it said that it leads no more, or its process is gone; nothing it may have answered before brings it
    back. `fetches_from`: where it answered last.
    `report_at`: when the leader is next told where this voter listens and what it supports.
    """

    fetch_deadline: float
    report_at: float
    has_fetched: bool = False
    leader_ended: bool = False
    fetches_from: SocketAddress | None = None


@dataclass(slots=True)
class ObserverState:
    """Like a follower, but after `fetch_deadline` it asks the bootstrap servers and stays what it is."""

    fetch_deadline: float
    report_at: float
    has_fetched: bool = False


@dataclass(slots=True)
class ResignedState:
    """`successors`: who should stand first, the most advanced first. `unaware`: who has not confirmed to know.

    `unreachable`: who could not be told, when last tried.
    """

    election_deadline: float
    successors: tuple[ReplicaKey, ...]
    unaware: set[int]
    unreachable: set[int] = field(default_factory=set)

    @property
    def is_alone(self) -> bool:
        """Nobody is there to be told, and so nobody who could lead."""
        return self.unreachable.issuperset(key.id for key in self.successors)


Role: TypeAlias = (
    UnattachedState | ProspectiveState | CandidateState | LeaderState | FollowerState | ObserverState | ResignedState
)


class EpochChange(Enum):
    """In which epochs a change of role may end."""

    SAME = auto()
    HIGHER = auto()
    ANY = auto()


_SAME, _HIGHER, _ANY = EpochChange.SAME, EpochChange.HIGHER, EpochChange.ANY

TRANSITIONS: Final[Mapping[tuple[type[Role], type[Role]], EpochChange]] = {
    (UnattachedState, UnattachedState): _ANY,
    (UnattachedState, ProspectiveState): _SAME,
    (UnattachedState, FollowerState): _ANY,
    (UnattachedState, ObserverState): _ANY,
    (ProspectiveState, UnattachedState): _ANY,
    (ProspectiveState, CandidateState): _HIGHER,
    (ProspectiveState, FollowerState): _ANY,
    (ProspectiveState, ObserverState): _ANY,
    (CandidateState, UnattachedState): _ANY,
    (CandidateState, ProspectiveState): _SAME,
    (CandidateState, LeaderState): _SAME,
    (CandidateState, FollowerState): _ANY,
    (CandidateState, ObserverState): _ANY,
    (LeaderState, UnattachedState): _HIGHER,
    (LeaderState, FollowerState): _HIGHER,
    (LeaderState, ObserverState): _HIGHER,
    (LeaderState, ResignedState): _SAME,
    (FollowerState, UnattachedState): _HIGHER,
    (FollowerState, ProspectiveState): _SAME,
    (FollowerState, FollowerState): _ANY,
    (FollowerState, ObserverState): _ANY,
    (ObserverState, UnattachedState): _ANY,
    (ObserverState, FollowerState): _ANY,
    (ObserverState, ObserverState): _ANY,
    (ResignedState, ProspectiveState): _SAME,
    (ResignedState, UnattachedState): _HIGHER,
    (ResignedState, FollowerState): _HIGHER,
    (ResignedState, ObserverState): _HIGHER,
}


class IllegalRoleTransition(Exception):
    """A change of role that the protocol does not know: an error in this package."""


def check_transition(before: Role, after: Role, old_epoch: int, new_epoch: int) -> None:
    """Raises IllegalTransition unless `TRANSITIONS` has it."""
    allowed = TRANSITIONS.get((type(before), type(after)))
    change = EpochChange.HIGHER if new_epoch > old_epoch else EpochChange.SAME
    if allowed is None or new_epoch < old_epoch or allowed not in (change, EpochChange.ANY):
        names = f"{type(before).__name__} of epoch {old_epoch}", f"{type(after).__name__} of epoch {new_epoch}"
        raise IllegalRoleTransition(f"{names[0]} cannot become {names[1]}")
