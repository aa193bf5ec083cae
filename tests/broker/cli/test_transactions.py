"""The command transactions, against a broker with one open transaction."""

import json

import pytest

from protocol.api_keys import ApiKey
from protocol.errors import ErrorCode
from protocol.messages import describe_producers as dp
from protocol.messages import describe_transactions as dt
from protocol.messages import list_transactions as lt
from protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from protocol.messages.write_txn_markers import (
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopicResult,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from tests.broker.cli.conftest import Ottla
from tests.support.fakes.fake_broker import NODE_ID, FakeBroker

START_OFFSET = 42
LAST_TIMESTAMP = 1_000_000
PRODUCER_ID, PRODUCER_EPOCH, COORDINATOR_EPOCH = 1000, 3, 7


class Transactions:
    """The knowledge of the broker: the producers of all partitions of `orders`, and the coordinator's transactions."""

    def __init__(self, broker: FakeBroker) -> None:
        broker.topics = {"orders": 2}
        self.coordinator_epoch = COORDINATOR_EPOCH
        self.listed = [lt.TransactionState("payments", PRODUCER_ID, "Ongoing")]
        self.partitions = [dt.TopicData("orders", [0, 1])]
        self.error = ErrorCode.NONE
        self.sessions = [ErrorCode.CONCURRENT_TRANSACTIONS, ErrorCode.NONE]
        broker.answer(ApiKey.LIST_TRANSACTIONS, lambda _: lt.ListTransactionsResponse(transaction_states=self.listed))
        broker.answer(ApiKey.DESCRIBE_TRANSACTIONS, self.describe)
        broker.answer(ApiKey.DESCRIBE_PRODUCERS, self.producers)
        broker.answer(ApiKey.WRITE_TXN_MARKERS, self.write)
        broker.answer(ApiKey.INIT_PRODUCER_ID, lambda _: InitProducerIdResponse(error_code=self.sessions.pop(0)))

    def describe(self, request: dt.DescribeTransactionsRequest) -> dt.DescribeTransactionsResponse:
        (name,) = request.transactional_ids
        state = dt.TransactionState(self.error, name, "Ongoing", 60_000, 5000, PRODUCER_ID, PRODUCER_EPOCH)
        state.topics = self.partitions
        return dt.DescribeTransactionsResponse(transaction_states=[state])

    def producers(self, request: dp.DescribeProducersRequest) -> dp.DescribeProducersResponse:
        epoch = self.coordinator_epoch
        states = [
            dp.ProducerState(PRODUCER_ID, PRODUCER_EPOCH, 12, LAST_TIMESTAMP, epoch, START_OFFSET),
            dp.ProducerState(2000, 0, 5, LAST_TIMESTAMP, epoch, -1),
        ]
        topics = [
            dp.TopicResponse(
                each.name, [dp.PartitionResponse(index, active_producers=states) for index in each.partition_indexes]
            )
            for each in request.topics
        ]
        return dp.DescribeProducersResponse(topics=topics)

    def write(self, request: WriteTxnMarkersRequest) -> WriteTxnMarkersResponse:
        return WriteTxnMarkersResponse(
            [
                WritableTxnMarkerResult(
                    marker.producer_id,
                    [
                        WritableTxnMarkerTopicResult(
                            each.name,
                            [WritableTxnMarkerPartitionResult(index, self.error) for index in each.partition_indexes],
                        )
                        for each in marker.topics
                    ],
                )
                for marker in request.markers
            ]
        )


@pytest.fixture(autouse=True)
def known(broker: FakeBroker) -> Transactions:
    return Transactions(broker)


def test_list_prints_kafkas_columns(broker: FakeBroker, ottla: Ottla) -> None:
    options = ("--duration-filter", "5000", "--transactional-id-pattern", "pay.*")
    assert ottla("transactions", "list", *options).lines == [
        "TransactionalId\tCoordinator\tProducerId\tTransactionState\t",
        "payments       \t1          \t1000      \tOngoing         \t",
    ]
    (request,) = broker.received(lt.ListTransactionsRequest)
    assert (request.duration_filter, request.transactional_id_pattern) == (5000, "pay.*")
    (row,) = json.loads(ottla("transactions", "list", "--json").out)
    assert row["coordinator"] == NODE_ID


def test_describe_prints_the_partitions(ottla: Ottla) -> None:
    cells = ottla("transactions", "describe", "--transactional-id", "payments").lines[1].split("\t")
    assert [cell.strip() for cell in cells[:7]] == ["1", "payments", "1000", "3", "Ongoing", "60000", "5000"]
    assert cells[8].strip() == "orders-0,orders-1"


def test_describe_names_an_unknown_id(known: Transactions, ottla: Ottla) -> None:
    known.error = ErrorCode.TRANSACTIONAL_ID_NOT_FOUND
    outcome = ottla("transactions", "describe", "--transactional-id", "none")
    assert outcome.code == 1
    assert "Failed to describe transaction state of transactional-id `none`: " in outcome.err


@pytest.mark.parametrize("broker_id", [(), ("--broker-id", "1")])
def test_describe_producers_prints_open_transactions(broker_id: tuple[str, ...], ottla: Ottla) -> None:
    lines = ottla("transactions", "describe-producers", "--topic", "orders", "--partition", "1", *broker_id).lines
    rows = [[cell.strip() for cell in line.split("\t")][:6] for line in lines[1:]]
    assert rows == [["1000", "3", "7", "12", "1000000", "42"], ["2000", "0", "7", "5", "1000000", "None"]]


def test_describe_producers_names_an_unknown_partition(ottla: Ottla) -> None:
    outcome = ottla("transactions", "describe-producers", "--topic", "orders", "--partition", "9")
    assert (outcome.code, outcome.err.count("partition orders-9 does not exist")) == (1, 1)


class TestAbort:
    def test_transaction_is_found_by_its_start_offset(self, broker: FakeBroker, ottla: Ottla) -> None:
        aborting = ("abort", "--topic", "orders", "--partition", "0", "--start-offset", str(START_OFFSET))
        assert ottla("transactions", *aborting).code == 0
        (request,) = broker.received(WriteTxnMarkersRequest)
        (marker,) = request.markers
        assert (marker.producer_id, marker.producer_epoch, marker.coordinator_epoch) == (1000, 3, 7)
        assert not marker.transaction_result
        assert [(each.name, each.partition_indexes) for each in marker.topics] == [("orders", [0])]

    def test_first_transaction_of_a_producer_has_coordinator_epoch_0(
        self, known: Transactions, broker: FakeBroker, ottla: Ottla
    ) -> None:
        known.coordinator_epoch = -1
        ottla("transactions", "abort", "--topic", "orders", "--partition", "0", "--start-offset", str(START_OFFSET))
        assert broker.received(WriteTxnMarkersRequest)[0].markers[0].coordinator_epoch == 0

    def test_transaction_of_an_older_broker_is_named_by_its_producer(self, broker: FakeBroker, ottla: Ottla) -> None:
        given = ("--producer-id", "5", "--producer-epoch", "6", "--coordinator-epoch", "-1")
        ottla("transactions", "abort", "--topic", "orders", "--partition", "0", *given)
        marker = broker.received(WriteTxnMarkersRequest)[0].markers[0]
        assert (marker.producer_id, marker.producer_epoch, marker.coordinator_epoch) == (5, 6, 0)

    @pytest.mark.parametrize(
        ("given", "message"),
        [
            ((), "must be identified either with --start-offset"),
            (("--producer-id", "5"), "Missing required argument --producer-epoch"),
            (("--producer-id", "5", "--producer-epoch", "6"), "Missing required argument --coordinator-epoch"),
            (
                ("--start-offset", "41"),
                "Could not find any open transactions starting at offset 41 on partition orders-0",
            ),
        ],
    )
    def test_incomplete_identity_is_refused(self, given: tuple[str, ...], message: str, ottla: Ottla) -> None:
        outcome = ottla("transactions", "abort", "--topic", "orders", "--partition", "0", *given)
        assert outcome.code == 1
        assert message in outcome.err

    def test_refusal_of_the_leader_is_printed(self, known: Transactions, ottla: Ottla) -> None:
        known.error = ErrorCode.INVALID_PRODUCER_EPOCH
        outcome = ottla("transactions", "abort", "--topic", "orders", "--partition", "0", "--start-offset", "42")
        assert outcome.code == 1
        assert "Failed to abort the transaction in partition orders-0" in outcome.err


class TestFindHanging:
    def found(self, ottla: Ottla, *arguments: str) -> list[list[str]]:
        lines = ottla("transactions", "find-hanging", *arguments).lines
        return [[cell.strip() for cell in line.split("\t")][:6] for line in lines[1:]]

    def test_transaction_of_a_coordinator_does_not_hang(self, ottla: Ottla) -> None:
        assert self.found(ottla, "--topic", "orders") == []

    def test_partition_without_expected_marker_hangs(self, known: Transactions, ottla: Ottla) -> None:
        known.partitions = [dt.TopicData("orders", [1])]
        expected = ["orders", "0", "1000", "3", "7", "42"]
        assert self.found(ottla, "--topic", "orders") == [expected]
        assert self.found(ottla, "--broker-id", "1") == [expected]
        assert self.found(ottla, "--topic", "orders", "--partition", "1") == []

    def test_producer_without_transactional_id_hangs(self, known: Transactions, ottla: Ottla) -> None:
        known.listed = []
        assert len(self.found(ottla, "--topic", "orders")) == 2

    def test_removed_transactional_id_hangs(self, known: Transactions, ottla: Ottla) -> None:
        known.error = ErrorCode.TRANSACTIONAL_ID_NOT_FOUND
        assert len(self.found(ottla, "--topic", "orders")) == 2

    def test_recent_transactions_are_not_searched(self, known: Transactions, ottla: Ottla) -> None:
        known.listed = []
        assert self.found(ottla, "--topic", "orders", "--max-transaction-timeout", "1000000000") == []

    @pytest.mark.parametrize(
        ("given", "message"), [((), "requires either"), (("--broker-id", "1", "--partition", "0"), "--topic")]
    )
    def test_scope_is_required(self, given: tuple[str, ...], message: str, ottla: Ottla) -> None:
        outcome = ottla("transactions", "find-hanging", *given)
        assert outcome.code == 1
        assert message in outcome.err


def test_force_terminate_waits_for_the_markers(broker: FakeBroker, ottla: Ottla) -> None:
    outcome = ottla("transactions", "forceTerminateTransaction", "--transactionalId", "payments")
    assert (outcome.code, outcome.out) == (0, "")
    requests = broker.received(InitProducerIdRequest)
    assert [(each.transactional_id, each.producer_id) for each in requests] == [("payments", -1)] * 2
