"""The questions of partition leaders to one transaction coordinator (`broker.transactions.verification`)."""

import pytest

from broker.transactions import verification
from broker.transactions.verification import Verdict, Verification, VerificationMode, VerificationQueue
from protocol.errors import ErrorCode
from protocol.messages.add_partitions_to_txn import AddPartitionsToTxnResponse
from tests.support.fakes.transaction_coordinators import all_partitions

T0, T1, U0 = ("t", 0), ("t", 1), ("u", 0)


def question(
    transactional_id: str = "a", epoch: int = 0, mode: VerificationMode = VerificationMode.VERIFY
) -> Verification:
    return Verification(transactional_id, 7, epoch, (T0, T1, U0), mode)


def failed(one: Verification, code: ErrorCode) -> Verdict:
    return Verdict(one, dict.fromkeys((T0, T1, U0), code))


def ask(queue: VerificationQueue, *questions: Verification) -> AddPartitionsToTxnResponse:
    """Send questions; return the response that confirms all of them."""
    for one in questions:
        assert queue.add(one) == []
    request = queue.take_request()
    assert request is not None
    return all_partitions(request, ErrorCode.NONE)


def test_request_carries_all_waiting_questions() -> None:
    queue = VerificationQueue()
    queue.add(question("a"))
    queue.add(question("b", mode=VerificationMode.ADD))
    request = queue.take_request()
    assert request is not None
    assert [(one.transactional_id, one.verify_only) for one in request.transactions] == [("a", True), ("b", False)]
    assert [(topic.name, topic.partitions) for topic in request.transactions[0].topics] == [("t", [0, 1]), ("u", [0])]


def test_one_request_is_in_flight() -> None:
    queue = VerificationQueue()
    response = ask(queue, first := question("a"))
    queue.add(second := question("a", epoch=1))
    assert queue.take_request() is None
    assert queue.on_response(response) == [Verdict(first, {})]
    assert queue.take_request() is not None
    assert queue.on_failure(ErrorCode.NETWORK_EXCEPTION) == [failed(second, ErrorCode.NETWORK_EXCEPTION)]
    assert queue.is_empty


def test_latest_epoch_of_a_producer_stays() -> None:
    queue = VerificationQueue()
    queue.add(first := question(epoch=1))
    queue_repeat = question(epoch=1)
    assert queue.add(queue_repeat) == [failed(first, ErrorCode.NETWORK_EXCEPTION)]
    assert queue.add(old := question(epoch=0)) == [failed(old, ErrorCode.INVALID_PRODUCER_EPOCH)]
    assert queue.add(question(epoch=2)) == [failed(queue_repeat, ErrorCode.INVALID_PRODUCER_EPOCH)]
    request = queue.take_request()
    assert request is not None
    assert [one.producer_epoch for one in request.transactions] == [2]


def test_queue_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(verification, "MAX_WAITING", 1)
    queue = VerificationQueue()
    queue.add(question("a"))
    assert queue.add(more := question("b")) == [failed(more, ErrorCode.NETWORK_EXCEPTION)]


@pytest.mark.parametrize(
    ("mode", "code", "expected"),
    [
        (VerificationMode.VERIFY, ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH),
        (VerificationMode.VERIFY, ErrorCode.TRANSACTION_ABORTABLE, ErrorCode.TRANSACTION_ABORTABLE),
        (VerificationMode.ADD, ErrorCode.TRANSACTION_ABORTABLE, ErrorCode.TRANSACTION_ABORTABLE),
        (VerificationMode.VERIFY_FOR_OLD_CLIENT, ErrorCode.TRANSACTION_ABORTABLE, ErrorCode.INVALID_TXN_STATE),
        (VerificationMode.VERIFY, ErrorCode.CONCURRENT_TRANSACTIONS, ErrorCode.CONCURRENT_TRANSACTIONS),
    ],
)
def test_errors_are_those_that_the_client_knows(mode: VerificationMode, code: ErrorCode, expected: ErrorCode) -> None:
    queue = VerificationQueue()
    queue.add(one := question(mode=mode))
    request = queue.take_request()
    assert request is not None
    assert queue.on_response(all_partitions(request, code)) == [failed(one, expected)]


def test_partition_without_a_result_is_not_verified() -> None:
    queue = VerificationQueue()
    response = ask(queue, first := question("a"), second := question("b"))
    del response.results_by_transaction[1]
    del response.results_by_transaction[0].topic_results[1]
    assert queue.on_response(response) == [
        Verdict(first, {U0: ErrorCode.UNKNOWN_SERVER_ERROR}),
        failed(second, ErrorCode.UNKNOWN_SERVER_ERROR),
    ]


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        (ErrorCode.CLUSTER_AUTHORIZATION_FAILED, ErrorCode.INVALID_TXN_STATE),
        (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS),
        (12345, ErrorCode.UNKNOWN_SERVER_ERROR),
    ],
)
def test_error_of_the_whole_response_fails_every_question(code: int, expected: ErrorCode) -> None:
    queue = VerificationQueue()
    ask(queue, one := question())
    assert queue.on_response(AddPartitionsToTxnResponse(error_code=code)) == [failed(one, expected)]


def test_coordinator_without_verification_lets_batches_pass_but_adds_nothing() -> None:
    queue = VerificationQueue()
    ask(queue, verified := question("a"), added := question("b", mode=VerificationMode.ADD))
    assert queue.on_unsupported() == [Verdict(verified, {}), failed(added, ErrorCode.UNSUPPORTED_VERSION)]
