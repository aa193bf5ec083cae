"""The table of role transitions (`broker.quorum.state`)."""

from itertools import product
from math import inf

import pytest

from broker.quorum.identity import Instant
from broker.quorum.membership.voters import VoterSet
from broker.quorum.membership.votes import Ballot
from broker.quorum.progress import Progress
from broker.quorum.state import (
    TRANSITIONS,
    CandidateState,
    FollowerState,
    IllegalRoleTransition,
    LeaderState,
    ObserverState,
    ProspectiveState,
    ResignedState,
    Role,
    UnattachedState,
    check_transition,
)
from protocol.ids import BrokerId, LeaderEpoch, Offset
from tests.support.quorum_values import replica_key


def roles() -> list[Role]:
    ballot = Ballot(frozenset({BrokerId(1)}))
    return [
        UnattachedState(inf),
        ProspectiveState(ballot, inf),
        CandidateState(ballot, inf),
        LeaderState(Offset(0), frozenset(), Progress(replica_key(1), VoterSet(), Instant(0.0, 0)), inf),
        FollowerState(inf, inf),
        ObserverState(inf, inf),
        ResignedState(inf, (), set()),
    ]


@pytest.mark.parametrize(("before", "after"), list(product(roles(), roles())), ids=lambda role: type(role).__name__)
def test_role_change_never_lowers_the_epoch(before: Role, after: Role) -> None:
    with pytest.raises(IllegalRoleTransition):
        check_transition(before, after, LeaderEpoch(5), LeaderEpoch(4))


MISSING = [pair for pair in product(roles(), roles()) if (type(pair[0]), type(pair[1])) not in TRANSITIONS]


@pytest.mark.parametrize(("before", "after"), MISSING, ids=lambda role: type(role).__name__)
def test_transition_outside_the_table_is_refused(before: Role, after: Role) -> None:
    for new_epoch in (5, 6):
        with pytest.raises(IllegalRoleTransition):
            check_transition(before, after, LeaderEpoch(5), LeaderEpoch(new_epoch))


def by_name(name: str) -> Role:
    return next(role for role in roles() if type(role).__name__ == name)


@pytest.mark.parametrize(
    ("before", "after", "epochs"),
    [
        ("ProspectiveState", "CandidateState", (5, 6)),
        ("CandidateState", "LeaderState", (5, 5)),
        ("CandidateState", "FollowerState", (5, 5)),
        ("LeaderState", "ResignedState", (5, 5)),
        ("LeaderState", "FollowerState", (5, 6)),
        ("ResignedState", "UnattachedState", (5, 6)),
        ("FollowerState", "ProspectiveState", (5, 5)),
        ("FollowerState", "ObserverState", (5, 5)),
    ],
)
def test_regular_transitions_are_allowed(before: str, after: str, epochs: tuple[int, int]) -> None:
    check_transition(by_name(before), by_name(after), LeaderEpoch(epochs[0]), LeaderEpoch(epochs[1]))


@pytest.mark.parametrize(
    ("before", "after", "epochs"),
    [
        ("UnattachedState", "CandidateState", (5, 6)),  # no election without pre-votes
        ("FollowerState", "CandidateState", (5, 6)),
        ("ObserverState", "ProspectiveState", (5, 5)),  # an observer is never a candidate
        ("ProspectiveState", "CandidateState", (5, 5)),  # each candidacy has an epoch of its own
        ("CandidateState", "LeaderState", (5, 6)),
        ("LeaderState", "FollowerState", (5, 5)),  # an epoch has one leader
        ("ResignedState", "FollowerState", (5, 5)),
        ("ResignedState", "LeaderState", (5, 5)),
        ("LeaderState", "CandidateState", (5, 6)),
    ],
)
def test_illegal_transitions_are_refused(before: str, after: str, epochs: tuple[int, int]) -> None:
    with pytest.raises(IllegalRoleTransition):
        check_transition(by_name(before), by_name(after), LeaderEpoch(epochs[0]), LeaderEpoch(epochs[1]))
