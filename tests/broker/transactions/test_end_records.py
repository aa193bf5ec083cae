"""The record that ends a transaction, which waits for the next command of its transactional id."""

import pytest

from broker.transactions.records import TransactionWritten
from broker.transactions.shard import COMPLETION_DELAY_MS
from broker.transactions.state import ProducerIdAndEpoch, TransactionState
from protocol.errors import ErrorCode, KafkaError
from tests.broker.transactions.transaction_shard_harness import FIRST, ID, TransactionShardHarness

COMMIT = TransactionState.COMPLETE_COMMIT


@pytest.fixture
def harness() -> TransactionShardHarness:
    return TransactionShardHarness(2)


def marked(harness: TransactionShardHarness) -> ProducerIdAndEpoch:
    """Return the producer after a committed transaction that has its markers."""
    producer = harness.begin_session()
    harness.add(producer)
    following = harness.end(producer)
    harness.write_markers()
    return following


def written(harness: TransactionShardHarness, since: int) -> list[TransactionState]:
    events = (harness.shard.decode(key, value) for key, value in harness.log[since:])
    return [event.transaction.state for event in events if isinstance(event, TransactionWritten)]


def test_end_is_written_with_the_next_partition(harness: TransactionShardHarness) -> None:
    producer, end = marked(harness), len(harness.log)
    harness.add(producer)
    assert written(harness, end) == [COMMIT, TransactionState.ONGOING]
    harness.advance(COMPLETION_DELAY_MS)
    assert len(harness.log) == end + 2


def test_end_is_written_with_the_next_session(harness: TransactionShardHarness) -> None:
    _, end = marked(harness), len(harness.log)
    harness.begin_session()
    assert written(harness, end) == [COMMIT, TransactionState.EMPTY]


def test_end_is_written_before_its_description(harness: TransactionShardHarness) -> None:
    _, end = marked(harness), len(harness.log)
    described = harness.carry_out(harness.shard.describe(ID))
    assert described is not None
    assert described.state is COMMIT
    assert written(harness, end) == [COMMIT]


def test_end_is_listed_and_verified_before_it_is_written(harness: TransactionShardHarness) -> None:
    producer = marked(harness)
    assert [(name, state.state) for part in harness.shard.views() for name, state in part] == [(ID, COMMIT)]
    assert harness.verify(producer, [FIRST]) == {FIRST: ErrorCode.TRANSACTION_ABORTABLE}


def test_end_without_a_later_command_is_written_after_the_delay(harness: TransactionShardHarness) -> None:
    _, end = marked(harness), len(harness.log)
    harness.advance(COMPLETION_DELAY_MS - 1)
    assert written(harness, end) == []
    harness.advance(1)
    assert written(harness, end) == [COMMIT]


def test_end_that_was_not_written_is_written_again(harness: TransactionShardHarness) -> None:
    _, end = marked(harness), len(harness.log)
    harness.clock.advance_ms(COMPLETION_DELAY_MS)
    for cause in harness.shard.timers.due(harness.clock.monotonic_ms()):
        result = harness.shard.on_timer(cause)
        assert result.on_outcome is not None
        result.on_outcome(ErrorCode.NOT_ENOUGH_REPLICAS)
    assert harness.shard.unwritten_ends == 1
    harness.advance(500)
    assert written(harness, end) == [COMMIT]
    assert harness.shard.unwritten_ends == 0


def test_next_coordinator_writes_the_markers_again(harness: TransactionShardHarness) -> None:
    producer, end = marked(harness), len(harness.log)
    harness.fail_over()
    with pytest.raises(KafkaError, match=ErrorCode.CONCURRENT_TRANSACTIONS.name):
        harness.add(producer)
    harness.write_markers()
    harness.add(producer)
    assert written(harness, end) == [COMMIT, TransactionState.ONGOING]
