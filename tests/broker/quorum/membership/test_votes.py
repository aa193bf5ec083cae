"""Majority arithmetic, compared with a naive implementation."""

from itertools import product

import pytest

from broker.quorum.membership.votes import Ballot, Outcome, agreed_offset, majority
from protocol.ids import BrokerId, Offset


def slow_agreed_offset(ends: tuple[int, ...]) -> int:
    """Return the largest offset that more than half of the replicas have reached."""
    reached = [end for end in ends if 2 * sum(other >= end for other in ends) > len(ends)]
    return max(reached, default=-1)


@pytest.mark.parametrize("voters", range(1, 6))
def test_agreed_offset_is_reached_by_a_majority(voters: int) -> None:
    for ends in product((-1, 0, 3, 7), repeat=voters):
        assert agreed_offset(map(Offset, ends)) == slow_agreed_offset(ends), ends


def test_agreed_offset_without_voters_is_unknown() -> None:
    assert agreed_offset([]) == -1


@pytest.mark.parametrize("voters", range(1, 10))
def test_two_majorities_share_a_voter(voters: int) -> None:
    assert 2 * majority(voters) > voters
    assert 2 * (majority(voters) - 1) <= voters


def slow_outcome(voters: int, granted: int, refused: int) -> Outcome:
    if 2 * granted > voters:
        return Outcome.WON
    return Outcome.OPEN if 2 * (voters - refused) > voters else Outcome.LOST


@pytest.mark.parametrize("voters", range(1, 8))
def test_ballot_ends_as_soon_as_it_is_decided(voters: int) -> None:
    for granted in range(voters + 1):
        for refused in range(voters - granted + 1):
            ballot = Ballot(frozenset(map(BrokerId, range(voters))))
            for voter in range(granted + refused):
                ballot.record(BrokerId(voter), voter < granted)
            assert ballot.outcome is slow_outcome(voters, granted, refused)
            assert len(ballot.pending) == voters - granted - refused


def test_ballot_counts_the_first_vote_of_each_voter_only() -> None:
    ballot = Ballot(frozenset({BrokerId(1), BrokerId(2), BrokerId(3)}))
    ballot.record(BrokerId(1), False)
    ballot.record(BrokerId(1), True)
    ballot.record(BrokerId(9), True)
    assert (ballot.granted, ballot.refused) == (set(), {1})
