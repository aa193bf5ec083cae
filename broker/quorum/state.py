"""The roles of a replica, the transitions between them, and the term.

Two rules: every role change passes `check_transition`, and a change without an entry in `TRANSITIONS` is a defect of
this package, never of a peer. A role contains only state that ends with it; durable state is in the `Term`, which is
written to quorum-state.

- Unattached: a voter that knows no leader, or no address of the leader. Its election timer makes it Prospective.
- Prospective: requests pre-votes, which disturb no leader (KIP-996); the only way to become a candidate.
- Candidate: has voted for itself in a new epoch and requests votes.
- Leader: won the election; appends records and tracks the progress of all replicas.
- Follower: a voter that fetches from the leader. Its fetch timer makes it Prospective.
- Resigned: was leader of this epoch, and neither appends nor votes in this epoch again.
- Observer: not a voter by its own log (see `QuorumReplica.can_become_candidate`), with or without a known leader. An
  observer may grant votes, because the voters of a candidate's longer log may include it, but never stands.
"""

from collections.abc import Mapping
from dataclasses import field
from enum import Enum, auto
from typing import Final, NamedTuple, TypeAlias

from broker.quorum.identity import ReplicaKey, SocketAddress
from broker.quorum.membership.votes import Ballot
from broker.quorum.progress import Progress
from protocol.ids import EPOCH_ZERO, BrokerId, LeaderEpoch, Offset
from protocol.lazy_dataclass import lazy_dataclass


class Term(NamedTuple):
    """Durable election state. A vote is valid for the whole epoch, whichever leader is elected."""

    epoch: LeaderEpoch = EPOCH_ZERO
    leader_id: BrokerId | None = None
    voted: ReplicaKey | None = None


@lazy_dataclass(slots=True)
class UnattachedState:
    """A voter without a leader. Deadlines in all roles are monotonic times in ms."""

    election_deadline: float


@lazy_dataclass(slots=True)
class ProspectiveState:
    ballot: Ballot
    election_deadline: float


@lazy_dataclass(slots=True)
class CandidateState:
    ballot: Ballot
    election_deadline: float


@lazy_dataclass(slots=True)
class LeaderState:
    """`start_offset` is the offset of the epoch's first record, which must be committed before later records.

    `begin_at` is the time of the next BeginQuorumEpoch to each other voter; `granted` are the voters that elected this
    leader.
    """

    start_offset: Offset
    granted: frozenset[BrokerId]
    progress: Progress
    quorum_deadline: float
    begin_at: dict[BrokerId, float] = field(default_factory=dict)


@lazy_dataclass(slots=True)
class FollowerState:
    """`has_fetched`: the leader has responded to a fetch in this epoch, so pre-votes are refused until `fetch_deadline`
    (KIP-996).

    `leader_ended`: the leader sent EndQuorumEpoch, or its process has ended; earlier responses no longer count.
    `fetches_from`: the address of the last response. `update_voter_at`: the time of the next check of this node's entry
    in the voter set.
    """

    fetch_deadline: float
    update_voter_at: float
    has_fetched: bool = False
    leader_ended: bool = False
    fetches_from: SocketAddress | None = None


@lazy_dataclass(slots=True)
class ObserverState:
    """Fetches like a follower. After `fetch_deadline` it sends fetches to other nodes to find the leader.

    `has_fetched` and `leader_ended` are as for a follower, because the voters of a longer log may include this node.
    """

    fetch_deadline: float
    update_voter_at: float
    has_fetched: bool = False
    leader_ended: bool = False


@lazy_dataclass(slots=True)
class ResignedState:
    """`successors`: preferred candidates, the largest log first.

    `unconfirmed`: voters that have not responded to EndQuorumEpoch. `unreachable`: voters to which the last one failed.
    """

    election_deadline: float
    successors: tuple[ReplicaKey, ...]
    unconfirmed: set[BrokerId]
    unreachable: set[BrokerId] = field(default_factory=set)

    @property
    def is_alone(self) -> bool:
        """Whether no successor is reachable, so that none can be elected."""
        return self.unreachable.issuperset(key.id for key in self.successors)


Role: TypeAlias = (
    UnattachedState | ProspectiveState | CandidateState | LeaderState | FollowerState | ObserverState | ResignedState
)


class EpochChange(Enum):
    """The epoch after a role change, relative to the epoch before."""

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
    """A role change that the protocol does not define: a defect of this package."""


def check_transition(before: Role, after: Role, old_epoch: LeaderEpoch, new_epoch: LeaderEpoch) -> None:
    """Raise IllegalRoleTransition unless `TRANSITIONS` allows the role change."""
    allowed = TRANSITIONS.get((type(before), type(after)))
    change = EpochChange.HIGHER if new_epoch > old_epoch else EpochChange.SAME
    if allowed is None or new_epoch < old_epoch or allowed not in (change, EpochChange.ANY):
        names = f"{type(before).__name__} of epoch {old_epoch}", f"{type(after).__name__} of epoch {new_epoch}"
        raise IllegalRoleTransition(f"{names[0]} cannot become {names[1]}")
