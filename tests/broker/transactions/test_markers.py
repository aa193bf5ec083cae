"""Queues of transaction markers: requests, results per partition, and markers that are sent again."""

from dataclasses import replace

from broker.transactions.markers import DueMarker, MarkerQueue, PendingMarkers
from broker.transactions.state import Transaction, TransactionPartition, TransactionState
from protocol.errors import ErrorCode
from protocol.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopic,
    WritableTxnMarkerTopicResult,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)

FIRST, SECOND = TransactionPartition("t", 0), TransactionPartition("t", 1)
DECIDED = Transaction(
    producer_id=7,
    producer_epoch=3,
    timeout_ms=1_000,
    state=TransactionState.PREPARE_COMMIT,
    partitions=frozenset((FIRST, SECOND)),
    last_update_ms=0,
    version=2,
)


def pending(transaction: Transaction = DECIDED) -> PendingMarkers:
    return PendingMarkers("orders", transaction, 5)


def queue_of(*markers: PendingMarkers) -> MarkerQueue:
    queue = MarkerQueue()
    for each in markers:
        for partition in sorted(each.missing):
            queue.add(DueMarker(each, partition))
    return queue


def response(*codes: int, producer_id: int = 7) -> WriteTxnMarkersResponse:
    results = [WritableTxnMarkerPartitionResult(index, code) for index, code in enumerate(codes)]
    return WriteTxnMarkersResponse([WritableTxnMarkerResult(producer_id, [WritableTxnMarkerTopicResult("t", results)])])


def test_one_request_carries_all_that_has_waited() -> None:
    other = replace(DECIDED, producer_id=8, producer_epoch=0, state=TransactionState.PREPARE_ABORT, version=0)
    queue = queue_of(pending(), pending(other))
    assert queue.take_request() == WriteTxnMarkersRequest(
        [
            WritableTxnMarker(7, 3, True, [WritableTxnMarkerTopic("t", [0, 1])], 5, 2),
            WritableTxnMarker(8, 0, False, [WritableTxnMarkerTopic("t", [0, 1])], 5, 0),
        ]
    )
    assert queue.take_request() is None, "one request is in flight at a time"


def test_transaction_is_complete_with_its_last_marker() -> None:
    markers = pending()
    queue = queue_of(markers)
    queue.take_request()
    outcome = queue.on_response(response(ErrorCode.NONE, ErrorCode.NOT_LEADER_OR_FOLLOWER))
    assert (outcome.written, outcome.fenced, outcome.again) == ([], [], [DueMarker(markers, SECOND)])
    queue.add(*outcome.again)
    request = queue.take_request()
    assert request is not None
    assert request.markers[0].topics == [WritableTxnMarkerTopic("t", [1])]
    assert queue.on_response(response(ErrorCode.NONE, ErrorCode.NONE)) == ([markers], [], [])
    assert len(queue) == 0


def test_partition_without_result_is_tried_again() -> None:
    markers = pending()
    queue = queue_of(markers)
    queue.take_request()
    assert [due.partition for due in queue.on_response(WriteTxnMarkersResponse()).again] == [FIRST, SECOND]


def test_fenced_markers_are_dropped() -> None:
    for code in (ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.TRANSACTION_COORDINATOR_FENCED):
        markers = pending()
        queue = queue_of(markers)
        queue.take_request()
        assert queue.on_response(response(code, ErrorCode.NONE)) == ([], [markers], [])
        assert markers.is_dropped


def test_unsupported_markers_count_as_written() -> None:
    """A partition that can hold no markers has no transactional records either."""
    markers = pending()
    queue = queue_of(markers)
    queue.take_request()
    codes = (ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT, ErrorCode.UNSUPPORTED_VERSION)
    assert queue.on_response(response(*codes)).written == [markers]


def test_two_transactions_of_a_producer_are_in_two_requests() -> None:
    former, following = pending(), pending(replace(DECIDED, producer_epoch=4))
    queue = queue_of(former, following)
    request = queue.take_request()
    assert request is not None
    assert [marker.producer_epoch for marker in request.markers] == [3]
    queue.on_response(response(ErrorCode.NONE, ErrorCode.NONE))
    request = queue.take_request()
    assert request is not None
    assert [marker.producer_epoch for marker in request.markers] == [4]


def test_failed_connection_returns_everything_for_another_leader() -> None:
    sent, waiting, dropped = pending(), pending(), pending()
    queue = queue_of(sent)
    queue.take_request()
    for markers in (waiting, dropped):
        queue.add(DueMarker(markers, FIRST))
    dropped.is_dropped = True
    assert queue.on_failure() == [DueMarker(sent, FIRST), DueMarker(sent, SECOND), DueMarker(waiting, FIRST)]
    assert len(queue) == 0


def test_dropped_markers_are_not_sent() -> None:
    markers = pending()
    queue = queue_of(markers)
    markers.is_dropped = True
    assert queue.take_request() is None
    assert len(queue) == 0
