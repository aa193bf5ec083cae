"""ISR proposals on their way to the controller (`broker.replication.isr_changes`)."""

import pytest

from broker.replication.isr import CommittedIsr, IsrProposal
from broker.replication.isr_changes import (
    MAX_CHANGES_PER_REQUEST,
    Confirmed,
    IsrAnswer,
    IsrChanges,
    Refused,
    Retried,
    Superseded,
)
from protocol.errors import ErrorCode
from protocol.ids import LeaderEpoch
from protocol.primitives import Uuid

TOPIC = Uuid(bytes(15) + b"\x07")
FIRST, SECOND = (TOPIC, 0), (TOPIC, 1)


def proposal(partition_epoch: int = 0) -> IsrProposal:
    pending = CommittedIsr(frozenset({1, 2})).propose_expand(3)
    return IsrProposal(pending, LeaderEpoch(5), partition_epoch, ((1, 10), (2, 20), (3, -1)))


@pytest.fixture
def changes() -> IsrChanges:
    return IsrChanges()


def test_one_request_carries_all_proposals_and_blocks_the_next(changes: IsrChanges) -> None:
    assert changes.next_request() is None
    one, two, three = proposal(), proposal(), proposal()
    changes.submit(FIRST, one)
    changes.submit(SECOND, two)
    assert changes.next_request() == [(FIRST, one), (SECOND, two)]
    changes.submit((TOPIC, 2), three)
    assert changes.next_request() is None
    changes.on_response({FIRST: IsrAnswer(ErrorCode.NONE), SECOND: IsrAnswer(ErrorCode.NONE)})
    assert changes.next_request() == [((TOPIC, 2), three)]


def test_request_is_limited(changes: IsrChanges) -> None:
    for index in range(MAX_CHANGES_PER_REQUEST + 1):
        changes.submit((TOPIC, index), proposal())
    first = changes.next_request()
    assert first is not None
    assert len(first) == MAX_CHANGES_PER_REQUEST
    changes.on_response({key: IsrAnswer(ErrorCode.NONE) for key, _ in first})
    assert [key for key, _ in changes.next_request() or ()] == [(TOPIC, MAX_CHANGES_PER_REQUEST)]


def test_confirmed_change_has_the_new_partition_state(changes: IsrChanges) -> None:
    one = proposal()
    changes.submit(FIRST, one)
    changes.next_request()
    outcomes = changes.on_response({FIRST: IsrAnswer(ErrorCode.NONE, LeaderEpoch(5), 8, frozenset({1, 3}))})
    assert outcomes == [(FIRST, Confirmed(one, LeaderEpoch(5), 8, frozenset({1, 3})))]
    assert changes.next_request() is None


@pytest.mark.parametrize("error", [ErrorCode.OPERATION_NOT_ATTEMPTED, ErrorCode.INELIGIBLE_REPLICA])
def test_refused_proposal_is_not_sent_again(changes: IsrChanges, error: ErrorCode) -> None:
    one = proposal()
    changes.submit(FIRST, one)
    changes.next_request()
    assert changes.on_response({FIRST: IsrAnswer(error)}) == [(FIRST, Refused(one, error))]
    assert changes.next_request() is None


@pytest.mark.parametrize(
    "error",
    [
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.INVALID_UPDATE_VERSION,
        ErrorCode.INVALID_REQUEST,
        ErrorCode.NEW_LEADER_ELECTED,
    ],
)
def test_superseded_proposal_waits_for_metadata(changes: IsrChanges, error: ErrorCode) -> None:
    one = proposal()
    changes.submit(FIRST, one)
    changes.next_request()
    assert changes.on_response({FIRST: IsrAnswer(error)}) == [(FIRST, Superseded(one, error))]
    assert changes.next_request() is None


def test_other_errors_retry_the_proposal_behind_the_others(changes: IsrChanges) -> None:
    one, two = proposal(), proposal()
    changes.submit(FIRST, one)
    changes.next_request()
    changes.submit(SECOND, two)
    error = ErrorCode.UNKNOWN_SERVER_ERROR
    assert changes.on_response({FIRST: IsrAnswer(error)}) == [(FIRST, Retried(one, error))]
    assert changes.next_request() == [(SECOND, two), (FIRST, one)]


def test_proposal_missing_from_the_response_is_sent_again(changes: IsrChanges) -> None:
    one = proposal()
    changes.submit(FIRST, one)
    changes.next_request()
    assert changes.on_response({SECOND: IsrAnswer(ErrorCode.NONE)}) == [(FIRST, Retried(one, None))]
    assert changes.next_request() == [(FIRST, one)]


def test_failed_request_is_repeated_with_newer_proposals(changes: IsrChanges) -> None:
    one, two = proposal(), proposal()
    changes.submit(FIRST, one)
    changes.next_request()
    changes.submit(SECOND, two)
    changes.on_failure()
    assert changes.next_request() == [(FIRST, one), (SECOND, two)]


def test_answer_to_a_withdrawn_proposal_is_ignored(changes: IsrChanges) -> None:
    changes.submit(FIRST, proposal())
    changes.next_request()
    changes.withdraw(FIRST)
    assert changes.on_response({FIRST: IsrAnswer(ErrorCode.NONE, LeaderEpoch(5), 1, frozenset({1}))}) == []
    assert changes.next_request() is None


def test_answer_to_a_withdrawn_proposal_does_not_count_for_its_successor(changes: IsrChanges) -> None:
    newer = proposal(partition_epoch=1)
    changes.submit(FIRST, proposal())
    changes.next_request()
    changes.withdraw(FIRST)
    changes.submit(FIRST, newer)
    assert changes.on_response({FIRST: IsrAnswer(ErrorCode.NONE, LeaderEpoch(5), 1, frozenset({1}))}) == []
    assert changes.next_request() == [(FIRST, newer)]


def test_equal_proposals_are_distinct(changes: IsrChanges) -> None:
    """An answer to the first proposal does not count for the second, even if both propose the same ISR."""
    changes.submit(FIRST, proposal())
    changes.next_request()
    changes.submit(FIRST, proposal())
    assert changes.on_response({FIRST: IsrAnswer(ErrorCode.NONE)}) == []


def test_proposal_withdrawn_before_sending_is_never_sent(changes: IsrChanges) -> None:
    changes.submit(FIRST, proposal())
    changes.withdraw(FIRST)
    changes.withdraw(FIRST)
    assert changes.next_request() is None
    assert len(changes) == 0
