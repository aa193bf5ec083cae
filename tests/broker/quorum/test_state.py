"""The table of roles, by itself."""

from itertools import product
from math import inf

import pytest

from broker.quorum.identity import ReplicaKey
from broker.quorum.membership.voters import VoterSet
from broker.quorum.membership.votes import Ballot
from broker.quorum.progress import Progress
from broker.quorum.state import (
    TRANSITIONS,
    Candidate,
    Follower,
    IllegalTransition,
    Leader,
    Observer,
    Prospective,
    Resigned,
    Role,
    Unattached,
    check_transition,
)


def roles() -> list[Role]:
    ballot = Ballot(frozenset({1}))
    return [
        Unattached(inf),
        Prospective(ballot, inf),
        Candidate(ballot, inf),
        Leader(0, frozenset(), Progress(ReplicaKey(1), VoterSet()), inf),
        Follower(inf, inf),
        Observer(inf, inf),
        Resigned(inf, (), set()),
    ]


@pytest.mark.parametrize(("before", "after"), list(product(roles(), roles())), ids=lambda role: type(role).__name__)
def test_epochs_never_fall(before: Role, after: Role) -> None:
    with pytest.raises(IllegalTransition):
        check_transition(before, after, 5, 4)


MISSING = [pair for pair in product(roles(), roles()) if (type(pair[0]), type(pair[1])) not in TRANSITIONS]


@pytest.mark.parametrize(("before", "after"), MISSING, ids=lambda role: type(role).__name__)
def test_what_is_not_in_the_table_is_refused(before: Role, after: Role) -> None:
    for new_epoch in (5, 6):
        with pytest.raises(IllegalTransition):
            check_transition(before, after, 5, new_epoch)


def by_name(name: str) -> Role:
    return next(role for role in roles() if type(role).__name__ == name)


@pytest.mark.parametrize(
    ("before", "after", "epochs"),
    [
        ("Prospective", "Candidate", (5, 6)),
        ("Candidate", "Leader", (5, 5)),
        ("Candidate", "Follower", (5, 5)),
        ("Leader", "Resigned", (5, 5)),
        ("Leader", "Follower", (5, 6)),
        ("Resigned", "Unattached", (5, 6)),
        ("Follower", "Prospective", (5, 5)),
        ("Follower", "Observer", (5, 5)),
    ],
)
def test_the_usual_ways_are_open(before: str, after: str, epochs: tuple[int, int]) -> None:
    check_transition(by_name(before), by_name(after), *epochs)


@pytest.mark.parametrize(
    ("before", "after", "epochs"),
    [
        ("Unattached", "Candidate", (5, 6)),  # nobody stands without having asked
        ("Follower", "Candidate", (5, 6)),
        ("Observer", "Prospective", (5, 5)),  # and an observer never does
        ("Prospective", "Candidate", (5, 5)),  # a candidacy is an epoch of its own
        ("Candidate", "Leader", (5, 6)),
        ("Leader", "Follower", (5, 5)),  # an epoch has one leader
        ("Resigned", "Follower", (5, 5)),
        ("Resigned", "Leader", (5, 5)),
        ("Leader", "Candidate", (5, 6)),
    ],
)
def test_others_are_closed(before: str, after: str, epochs: tuple[int, int]) -> None:
    with pytest.raises(IllegalTransition):
        check_transition(by_name(before), by_name(after), *epochs)
