"""Transactions in the coordinator's shard: sessions, partitions, outcomes, markers and failover."""

from dataclasses import replace

import pytest

from broker.coordination.shard import CoordinatorResult
from broker.transactions.config import TransactionConfig
from broker.transactions.init_producer import InitRequest
from broker.transactions.records import FLEXIBLE_VALUE, PLAIN_VALUE, TransactionWritten, transaction_written
from broker.transactions.shard import COMPLETION_DELAY_MS
from broker.transactions.state import (
    EXHAUSTED_EPOCH,
    LAST_EPOCH,
    TWO_PHASE_TIMEOUT_MS,
    ProducerIdAndEpoch,
    Transaction,
    TransactionState,
)
from broker.transactions.table import IDS_PER_SLICE
from protocol.errors import ErrorCode, KafkaError
from tests.broker.transactions.transaction_shard_harness import FIRST, ID, SECOND, TransactionShardHarness

COMMIT, ABORT = TransactionState.COMPLETE_COMMIT, TransactionState.COMPLETE_ABORT


@pytest.fixture(params=[0, 1, 2])
def harness(request: pytest.FixtureRequest) -> TransactionShardHarness:
    """A shard in a cluster of each transaction version."""
    return TransactionShardHarness(request.param)


def refused(code: ErrorCode) -> "pytest.RaisesExc[KafkaError]":
    return pytest.raises(KafkaError, match=code.name)


def exhaust(harness: TransactionShardHarness, producer: ProducerIdAndEpoch) -> ProducerIdAndEpoch:
    """Write the last epoch of a producer id but one."""
    exhausted = replace(harness.transaction, producer_epoch=EXHAUSTED_EPOCH)
    value_version = FLEXIBLE_VALUE if harness.version else PLAIN_VALUE
    harness.carry_out(CoordinatorResult(None, (transaction_written(ID, exhausted, value_version),)))
    return producer._replace(epoch=EXHAUSTED_EPOCH)


class TestSessions:
    def test_new_id_gets_a_producer_id_with_epoch_0(self, harness: TransactionShardHarness) -> None:
        assert harness.begin_session() == (1_000, 0)
        assert harness.transaction.state is TransactionState.EMPTY

    def test_next_session_fences_the_former_one(self, harness: TransactionShardHarness) -> None:
        former = harness.begin_session()
        assert harness.begin_session() == (1_000, 1)
        with refused(ErrorCode.PRODUCER_FENCED):
            harness.add(former)
        with refused(ErrorCode.PRODUCER_FENCED):
            harness.end(former)
        with refused(ErrorCode.PRODUCER_FENCED):
            harness.begin_session(former)

    def test_producer_raises_its_own_epoch_and_may_repeat_the_request(self, harness: TransactionShardHarness) -> None:
        former = harness.begin_session()
        raised = harness.begin_session(former)
        assert raised == (1_000, 1)
        assert harness.begin_session(former) == raised, "the response was lost"
        assert harness.begin_session(raised) == (1_000, 2)
        with refused(ErrorCode.PRODUCER_FENCED):
            harness.begin_session(former)

    def test_foreign_producer_id_is_fenced(self, harness: TransactionShardHarness) -> None:
        harness.begin_session()
        with refused(ErrorCode.PRODUCER_FENCED):
            harness.begin_session(ProducerIdAndEpoch(7, 0))

    def test_exhausted_epoch_gets_a_new_producer_id(self, harness: TransactionShardHarness) -> None:
        last = exhaust(harness, harness.begin_session())
        renewed = harness.begin_session(last)
        assert renewed == (1_001, 0)
        assert harness.begin_session(last) == renewed, "the response was lost"

    @pytest.mark.parametrize("timeout_ms", [0, -1, 900_001])
    def test_timeout_outside_the_limits_is_refused(self, harness: TransactionShardHarness, timeout_ms: int) -> None:
        with refused(ErrorCode.INVALID_TRANSACTION_TIMEOUT):
            harness.init(timeout_ms=timeout_ms)

    def test_session_aborts_the_ongoing_transaction_first(self, harness: TransactionShardHarness) -> None:
        former = harness.begin_session()
        harness.add(former)
        assert harness.init() is ErrorCode.CONCURRENT_TRANSACTIONS
        with refused(ErrorCode.CONCURRENT_TRANSACTIONS):
            harness.init()
        ((_, aborted),) = harness.markers.sent
        assert (aborted.state, aborted.producer) == (TransactionState.PREPARE_ABORT, (1_000, 1))
        harness.write_markers()
        assert harness.begin_session() == (1_000, 2)

    def test_session_of_an_exhausted_producer_replaces_its_id(self) -> None:
        harness = TransactionShardHarness(2)
        last = exhaust(harness, harness.begin_session())
        harness.add(last)
        assert harness.init() is ErrorCode.CONCURRENT_TRANSACTIONS
        ((_, aborted),) = harness.markers.sent
        assert aborted.producer == (1_000, LAST_EPOCH)
        harness.write_markers()
        assert harness.transaction.producer == (1_001, 0)


class TestPartitions:
    def test_partitions_begin_and_extend_a_transaction(self, harness: TransactionShardHarness) -> None:
        producer = harness.begin_session()
        harness.add(producer, FIRST)
        harness.clock.advance_ms(5)
        harness.add(producer, SECOND)
        transaction = harness.transaction
        assert transaction.state is TransactionState.ONGOING
        assert transaction.partitions == {FIRST, SECOND}
        assert transaction.last_update_ms - transaction.start_ms == 5

    def test_known_partitions_are_not_written_again(self, harness: TransactionShardHarness) -> None:
        producer = harness.begin_session()
        harness.add(producer, FIRST, SECOND)
        written = len(harness.log)
        harness.add(producer, SECOND)
        assert len(harness.log) == written

    def test_unknown_producers_are_refused(self, harness: TransactionShardHarness) -> None:
        with refused(ErrorCode.INVALID_PRODUCER_ID_MAPPING):
            harness.add(ProducerIdAndEpoch(7, 0))
        producer = harness.begin_session()
        with refused(ErrorCode.INVALID_PRODUCER_ID_MAPPING):
            harness.add(ProducerIdAndEpoch(7, 0))
        with refused(ErrorCode.PRODUCER_FENCED):
            harness.add(producer._replace(epoch=1))

    def test_partitions_are_refused_while_markers_are_written(self, harness: TransactionShardHarness) -> None:
        producer = harness.begin_session()
        harness.add(producer)
        following = harness.end(producer)
        for each in (producer, following):
            with refused(ErrorCode.CONCURRENT_TRANSACTIONS):
                harness.add(each)
        harness.write_markers()
        harness.add(following)

    def test_verification_knows_the_partitions_of_the_ongoing_transaction(
        self, harness: TransactionShardHarness
    ) -> None:
        producer = harness.begin_session()
        assert harness.verify(producer, [FIRST]) == {FIRST: ErrorCode.TRANSACTION_ABORTABLE}
        harness.add(producer, FIRST)
        expected = {FIRST: ErrorCode.NONE, SECOND: ErrorCode.TRANSACTION_ABORTABLE}
        assert harness.verify(producer, [FIRST, SECOND]) == expected
        following = harness.end(producer)
        harness.write_markers()
        assert harness.verify(following, [FIRST]) == {FIRST: ErrorCode.TRANSACTION_ABORTABLE}


class TestOutcomes:
    @pytest.mark.parametrize(("is_commit", "state"), [(True, COMMIT), (False, ABORT)])
    def test_outcome_is_complete_after_the_markers(
        self, harness: TransactionShardHarness, is_commit: bool, state: TransactionState
    ) -> None:
        producer = harness.begin_session()
        harness.add(producer, FIRST, SECOND)
        following = harness.end(producer, is_commit=is_commit)
        assert following == (1_000, 1 if harness.version == 2 else 0)
        ((transactional_id, decided),) = harness.markers.sent
        assert transactional_id == ID
        assert decided.partitions == {FIRST, SECOND}
        assert decided.producer == following
        harness.write_markers()
        assert (harness.transaction.state, harness.transaction.partitions) == (state, frozenset())

    def test_repeated_end_is_answered_as_the_first(self, harness: TransactionShardHarness) -> None:
        producer = harness.begin_session()
        harness.add(producer)
        following = harness.end(producer)
        with refused(ErrorCode.CONCURRENT_TRANSACTIONS):
            harness.end(producer)
        harness.write_markers()
        assert harness.end(producer) == following
        with refused(ErrorCode.INVALID_TXN_STATE):
            harness.end(producer, is_commit=False)

    def test_other_outcome_is_refused_after_the_markers(self, harness: TransactionShardHarness) -> None:
        producer = harness.begin_session()
        harness.add(producer)
        harness.end(producer)
        with refused(ErrorCode.CONCURRENT_TRANSACTIONS):
            harness.end(producer, is_commit=False)
        harness.write_markers()
        with refused(ErrorCode.INVALID_TXN_STATE):
            harness.end(producer, is_commit=False)

    def test_version_2_ends_the_next_transaction_after_the_markers(self) -> None:
        """A producer that aborts an empty transaction at once has the new epoch, which fences nobody."""
        harness = TransactionShardHarness(2)
        producer = harness.begin_session()
        harness.add(producer)
        following = harness.end(producer)
        with refused(ErrorCode.CONCURRENT_TRANSACTIONS):
            harness.end(following, is_commit=False)
        harness.write_markers()
        assert harness.end(following, is_commit=False) == (1_000, 2)

    def test_commit_without_a_transaction_is_refused(self, harness: TransactionShardHarness) -> None:
        producer = harness.begin_session()
        with refused(ErrorCode.INVALID_TXN_STATE):
            harness.end(producer)

    def test_version_2_aborts_an_empty_transaction(self) -> None:
        harness = TransactionShardHarness(2)
        producer = harness.begin_session()
        following = harness.end(producer, is_commit=False)
        assert following == (1_000, 1)
        harness.write_markers()
        assert harness.transaction.state is ABORT
        assert harness.end(following, is_commit=False) == (1_000, 2)

    @pytest.mark.parametrize("version", [0, 1])
    def test_earlier_versions_abort_no_empty_transaction(self, version: int) -> None:
        harness = TransactionShardHarness(version)
        producer = harness.begin_session()
        with refused(ErrorCode.INVALID_TXN_STATE):
            harness.end(producer, is_commit=False)

    def test_end_of_an_exhausted_producer_replaces_its_id(self) -> None:
        harness = TransactionShardHarness(2)
        last = exhaust(harness, harness.begin_session())
        harness.add(last)
        following = harness.end(last)
        assert following == (1_001, 0)
        ((_, decided),) = harness.markers.sent
        assert decided.producer == (1_000, LAST_EPOCH), "markers end the former producer's transaction"
        with refused(ErrorCode.CONCURRENT_TRANSACTIONS):
            harness.add(following)
        harness.write_markers()
        assert harness.transaction.producer == following
        assert harness.end(last) == following, "the response was lost"
        harness.add(following)


class TestDelayedEnd:
    """The schedule of KAFKA-17754: an EndTxn arrives after its transaction, when the next one is ongoing."""

    def two_transactions(self, version: int) -> tuple[TransactionShardHarness, ProducerIdAndEpoch]:
        harness = TransactionShardHarness(version)
        first = harness.begin_session()
        harness.add(first)
        following = harness.end(first, is_commit=False)
        harness.write_markers()
        harness.add(following)
        return harness, first

    def test_version_1_decides_the_next_transaction(self) -> None:
        harness, first = self.two_transactions(1)
        harness.end(first)
        assert harness.transaction.state is TransactionState.PREPARE_COMMIT

    def test_version_2_request_of_a_former_session_repeats_no_end_of_version_1(self) -> None:
        """The epoch of the former session is one lower, as that of a repeated request would be."""
        harness = TransactionShardHarness(2)
        former = harness.begin_session()
        following = harness.begin_session()
        harness.add(following, version=0)
        harness.end(following, is_commit=False, version=0)
        harness.write_markers()
        with refused(ErrorCode.PRODUCER_FENCED):
            harness.end(former, is_commit=False)

    def test_version_2_refuses_the_delayed_request(self) -> None:
        harness, first = self.two_transactions(2)
        with refused(ErrorCode.PRODUCER_FENCED):
            harness.end(first)
        assert harness.transaction.state is TransactionState.ONGOING


class TestCommits:
    def test_markers_wait_for_the_commit_of_the_decision(self, harness: TransactionShardHarness) -> None:
        producer = harness.begin_session()
        harness.add(producer)
        harness.holds_commits = True
        harness.end(producer)
        assert harness.markers.sent == []
        harness.settle()
        assert len(harness.markers.sent) == 1

    def test_markers_are_sent_after_a_late_commit(self, harness: TransactionShardHarness) -> None:
        producer = harness.begin_session()
        harness.add(producer)
        harness.holds_commits = True
        harness.end(producer)
        harness.settle(ErrorCode.REQUEST_TIMED_OUT)
        harness.advance(500)
        assert harness.markers.sent == []
        harness.settle()
        assert len(harness.markers.sent) == 1

    def test_lost_leadership_sends_no_markers(self, harness: TransactionShardHarness) -> None:
        producer = harness.begin_session()
        harness.add(producer)
        harness.holds_commits = True
        harness.end(producer)
        harness.settle(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        harness.advance(10_000)
        assert harness.markers.sent == []

    def test_completion_of_an_earlier_transaction_is_ignored(self) -> None:
        harness = TransactionShardHarness(2)
        producer = harness.begin_session()
        harness.add(producer)
        following = harness.end(producer)
        harness.write_markers()
        harness.add(following)
        harness.end(following)
        harness.carry_out(harness.shard.complete(ID, following))
        assert harness.transaction.state is TransactionState.PREPARE_COMMIT


class TestTimeouts:
    def test_transaction_is_aborted_after_its_timeout(self, harness: TransactionShardHarness) -> None:
        producer = harness.begin_session(timeout_ms=15_000)
        harness.add(producer)
        harness.advance(10_000)
        harness.advance(5_000)
        assert harness.transaction.state is TransactionState.ONGOING, "the interval of the clean-up is 10 s"
        harness.advance(5_000)
        ((_, aborted),) = harness.markers.sent
        assert (aborted.state, aborted.producer) == (TransactionState.PREPARE_ABORT, (1_000, 1))
        harness.write_markers()
        with refused(ErrorCode.PRODUCER_FENCED):
            harness.add(producer)
        assert harness.begin_session() == (1_000, 2)

    def test_two_phase_commit_has_no_timeout_and_keeps_it_through_a_failover(self) -> None:
        harness = TransactionShardHarness(config=TransactionConfig(transaction_two_phase_commit_enable=True))
        producer = harness.init_as(InitRequest(0, None, is_two_phase=True))
        assert isinstance(producer, ProducerIdAndEpoch)
        harness.add(producer)
        harness.fail_over()
        harness.advance(365 * 86_400_000)
        assert (harness.transaction.state, harness.transaction.timeout_ms) == (
            TransactionState.ONGOING,
            TWO_PHASE_TIMEOUT_MS,
        )
        assert harness.init() is ErrorCode.CONCURRENT_TRANSACTIONS, "the next session aborts the transaction"
        assert harness.transaction.state is TransactionState.PREPARE_ABORT

    @pytest.mark.parametrize(
        ("request_", "is_enabled", "code"),
        [
            (InitRequest(1, None, is_two_phase=True), False, ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED),
            (InitRequest(1, None, True, True), False, ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED),
            (InitRequest(1, None, True, True), True, ErrorCode.UNSUPPORTED_VERSION),
            (InitRequest(0, None, keeps_prepared=True), False, ErrorCode.UNSUPPORTED_VERSION),
            (InitRequest(TWO_PHASE_TIMEOUT_MS, None), True, ErrorCode.INVALID_TRANSACTION_TIMEOUT),
        ],
    )
    def test_two_phase_commit_is_refused(self, request_: InitRequest, is_enabled: bool, code: ErrorCode) -> None:
        harness = TransactionShardHarness(config=TransactionConfig(transaction_two_phase_commit_enable=is_enabled))
        with refused(code):
            harness.init_as(request_)

    def test_exhausted_producer_is_aborted_too(self, harness: TransactionShardHarness) -> None:
        last = exhaust(harness, harness.begin_session())
        harness.add(last)
        harness.advance(70_000)
        harness.write_markers()
        assert harness.transaction.producer == (1_000, LAST_EPOCH)
        assert harness.begin_session() == (1_001, 0)

    def test_unused_ids_are_removed(self) -> None:
        config = TransactionConfig(transactional_id_expiration_ms=7_200_000)
        harness = TransactionShardHarness(2, config)
        producer = harness.begin_session()
        harness.advance(3_600_000)
        harness.add(producer)
        following = harness.end(producer)
        harness.write_markers()
        harness.advance(COMPLETION_DELAY_MS)
        harness.advance(3_600_000)
        assert len(harness.shard) == 1
        harness.advance(3_600_000)
        assert len(harness.shard) == 0
        assert harness.begin_session(following) == (1_001, 0)

    def test_large_table_is_examined_in_slices(self) -> None:
        """Count the ids of each step: a slice reads and removes a limited number of ids, whatever the table's size."""
        harness = TransactionShardHarness(2, TransactionConfig(transactional_id_expiration_ms=1_800_000))
        unused = Transaction(producer_id=1, producer_epoch=0, timeout_ms=1, last_update_ms=harness.clock.now_ms())
        for index in range(10 * IDS_PER_SLICE):
            harness.shard.replay(TransactionWritten(str(index), unused), index, -1)
        harness.holds_commits = True
        harness.advance(3_600_000)
        assert len(harness.log) == IDS_PER_SLICE, "the next slice waits for the commit of the first"
        harness.holds_commits = False
        for step in range(1, 10):
            harness.shard.replay(TransactionWritten(f"new {step}", unused), step, -1)
            harness.settle()
            harness.run_timers()
            assert len(harness.log) == (step + 1) * IDS_PER_SLICE
        assert len(harness.shard) == 9, "ids that came during the walk"

    def test_removal_ends_where_a_write_fails_and_begins_anew_in_the_next_period(self) -> None:
        harness = TransactionShardHarness(2, TransactionConfig(transactional_id_expiration_ms=1_800_000))
        unused = Transaction(producer_id=1, producer_epoch=0, timeout_ms=1, last_update_ms=harness.clock.now_ms())
        for index in range(2 * IDS_PER_SLICE):
            harness.shard.replay(TransactionWritten(str(index), unused), index, -1)
        harness.holds_commits = True
        harness.advance(3_600_000)
        harness.settle(ErrorCode.REQUEST_TIMED_OUT)
        harness.run_timers()
        assert len(harness.shard) == IDS_PER_SLICE
        harness.advance(3_600_000)
        assert len(harness.shard) == 0

    def test_ids_with_a_transaction_are_not_removed(self) -> None:
        config = TransactionConfig(transactional_id_expiration_ms=1)
        harness = TransactionShardHarness(2, config)
        producer = harness.begin_session(timeout_ms=900_000)
        harness.add(producer)
        harness.end(producer)
        harness.advance(3_600_000)
        assert harness.transaction.state is TransactionState.PREPARE_COMMIT


class TestFailover:
    def test_ongoing_transaction_goes_on(self, harness: TransactionShardHarness) -> None:
        producer = harness.begin_session()
        harness.add(producer)
        harness.fail_over()
        assert harness.markers.sent == []
        harness.add(producer, SECOND)
        harness.end(producer)
        assert harness.transaction.partitions == {FIRST, SECOND}

    @pytest.mark.parametrize("is_commit", [True, False])
    def test_markers_of_a_decided_transaction_are_written_again(
        self, harness: TransactionShardHarness, is_commit: bool
    ) -> None:
        producer = harness.begin_session()
        harness.add(producer, FIRST, SECOND)
        following = harness.end(producer, is_commit=is_commit)
        former = harness.markers
        harness.fail_over()
        assert former.is_cleared
        ((_, decided),) = harness.markers.sent
        assert decided.state.is_commit is is_commit
        assert decided.partitions == {FIRST, SECOND}
        assert decided.producer == following
        harness.write_markers()
        harness.add(following)

    def test_new_coordinator_sends_no_marker_before_the_decision_is_committed(
        self, harness: TransactionShardHarness
    ) -> None:
        producer = harness.begin_session()
        harness.add(producer)
        harness.end(producer)
        harness.holds_commits = True
        harness.fail_over()
        assert harness.markers.sent == []
        harness.settle()
        assert len(harness.markers.sent) == 1

    @pytest.mark.parametrize("is_commit", [True, False])
    def test_completed_transaction_answers_a_repeated_end(
        self, harness: TransactionShardHarness, is_commit: bool
    ) -> None:
        producer = harness.begin_session()
        harness.add(producer)
        following = harness.end(producer, is_commit=is_commit)
        harness.write_markers()
        harness.advance(COMPLETION_DELAY_MS)
        harness.fail_over()
        assert harness.end(producer, is_commit=is_commit) == following

    def test_replaced_producer_id_survives(self) -> None:
        harness = TransactionShardHarness(2)
        last = exhaust(harness, harness.begin_session())
        harness.add(last)
        following = harness.end(last)
        harness.fail_over()
        harness.write_markers()
        harness.advance(COMPLETION_DELAY_MS)
        harness.fail_over()
        assert harness.transaction.producer == following
        assert harness.end(last) == following
