"""A shard of share states: fencing, snapshots, pruning, reloads (`broker.share_state.shard`)."""

from collections.abc import Callable

import pytest

from broker.coordination.log_fold import LogFold
from broker.coordination.share_partition_key import SharePartitionKey, parse_coordinator_key
from broker.coordination.snapshot_records import KeptRecord
from broker.share_state.records import SHARE_STATE_FOLD
from broker.share_state.shard import ShareStateConfig, ShareStateShard
from broker.share_state.state import ShareState, StateBatch
from protocol.errors import ErrorCode, KafkaError
from protocol.primitives import ONE_UUID
from tests.broker.share_state.share_state_harness import COLD_MS, KEY, OTHER, TOPIC, UPDATES, ShareStateHarness

ACKNOWLEDGED = 2


@pytest.fixture
def harness() -> ShareStateHarness:
    return ShareStateHarness()


def refusal(command: Callable[[], object]) -> ErrorCode:
    with pytest.raises(KafkaError) as caught:
        command()
    return caught.value.code


def found(harness: ShareStateHarness, key: SharePartitionKey = KEY) -> ShareState:
    state = harness.state(key)
    assert state is not None
    return state


def test_initialized_state_is_read_and_written(harness: ShareStateHarness) -> None:
    harness.initialize(state_epoch=2, start_offset=10)
    state = harness.read(leader_epoch=5)
    assert (state.state_epoch, state.start_offset, state.batches) == (2, 10, ())
    batch = StateBatch(10, 19, ACKNOWLEDGED, 1)
    harness.write(batch, state_epoch=2, leader_epoch=5, complete_count=10)
    assert harness.read(leader_epoch=5).batches == (batch,)
    assert found(harness).delivery_complete_count == 10
    assert harness.kinds() == ["snapshot", "update", "update"]


def test_uninitialized_state_is_neither_read_nor_written(harness: ShareStateHarness) -> None:
    assert refusal(lambda: harness.read(0)) is ErrorCode.INVALID_REQUEST
    assert refusal(harness.write) is ErrorCode.INVALID_REQUEST
    assert harness.state() is None


def test_reads_fence_former_leaders(harness: ShareStateHarness) -> None:
    harness.initialize()
    harness.read(leader_epoch=4)
    assert refusal(lambda: harness.read(3)) is ErrorCode.FENCED_LEADER_EPOCH
    assert refusal(lambda: harness.write(leader_epoch=3)) is ErrorCode.FENCED_LEADER_EPOCH
    harness.write(leader_epoch=4)
    harness.write(leader_epoch=-1)
    harness.reload()
    assert refusal(lambda: harness.write(leader_epoch=3)) is ErrorCode.FENCED_LEADER_EPOCH
    assert found(harness).leader_epoch == 4


def test_repeated_read_of_a_leader_writes_nothing(harness: ShareStateHarness) -> None:
    harness.initialize()
    harness.read(leader_epoch=4)
    harness.read(leader_epoch=4)
    assert harness.kinds() == ["snapshot", "update"]


def test_repeated_initialization_keeps_acknowledgements(harness: ShareStateHarness) -> None:
    harness.initialize(state_epoch=2, start_offset=-1)
    harness.read(leader_epoch=1)
    harness.write(StateBatch(0, 9, ACKNOWLEDGED, 1), state_epoch=2, leader_epoch=1, start_offset=0)
    before = found(harness)
    harness.initialize(state_epoch=2, start_offset=-1)
    assert found(harness) == before
    harness.initialize(state_epoch=2, start_offset=5)
    assert (found(harness).start_offset, found(harness).batches) == (5, ()), "an administrator resets the group"


def test_former_leaders_stay_fenced_after_another_initialization_and_a_reload(harness: ShareStateHarness) -> None:
    harness.initialize(state_epoch=2)
    harness.read(leader_epoch=4)
    harness.initialize(state_epoch=3)
    harness.reload(len(harness.log) - 1)
    assert refusal(lambda: harness.read(3)) is ErrorCode.FENCED_LEADER_EPOCH
    assert harness.read(4).state_epoch == 3


def test_initialization_fences_former_state_epochs(harness: ShareStateHarness) -> None:
    harness.initialize(state_epoch=3, start_offset=0)
    harness.write(StateBatch(0, 9, ACKNOWLEDGED, 1), state_epoch=3)
    harness.initialize(state_epoch=4, start_offset=50)
    assert (found(harness).start_offset, found(harness).batches, found(harness).snapshot_epoch) == (50, (), 1)
    assert refusal(lambda: harness.initialize(state_epoch=3)) is ErrorCode.FENCED_STATE_EPOCH
    assert refusal(lambda: harness.write(state_epoch=3)) is ErrorCode.FENCED_STATE_EPOCH


@pytest.mark.parametrize(
    ("key", "error"),
    [
        (SharePartitionKey("g", TOPIC, -1), ErrorCode.INVALID_REQUEST),
        (SharePartitionKey("g", TOPIC, 2), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (SharePartitionKey("g", ONE_UUID, 0), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    ],
)
def test_partition_must_exist(harness: ShareStateHarness, key: SharePartitionKey, error: ErrorCode) -> None:
    assert refusal(lambda: harness.initialize(key=key)) is error
    assert refusal(lambda: harness.state(key)) is error
    assert refusal(lambda: harness.shard.delete(key)) is error


def test_snapshot_follows_a_number_of_updates(harness: ShareStateHarness) -> None:
    harness.initialize()
    for offset in range(2 * UPDATES + 2):
        harness.write(StateBatch(offset, offset, ACKNOWLEDGED, 1))
    cycle = ["snapshot"] + ["update"] * UPDATES
    assert harness.kinds() == cycle + cycle + ["snapshot"]
    assert found(harness).batches == (StateBatch(0, 2 * UPDATES + 1, ACKNOWLEDGED, 1),)
    assert found(harness).snapshot_epoch == 2


def test_records_before_the_oldest_snapshot_are_redundant(harness: ShareStateHarness) -> None:
    assert harness.shard.redundant_end() is None
    harness.initialize()
    harness.initialize(key=OTHER)
    assert harness.shard.redundant_end() is None
    for _ in range(UPDATES + 1):
        harness.write(start_offset=5)
    assert harness.shard.redundant_end() == 1
    harness.write(start_offset=6)
    before, end = (found(harness), found(harness, OTHER)), 1
    harness.reload(end)
    assert (found(harness), found(harness, OTHER)) == before


def test_cold_snapshots_let_the_log_be_pruned(harness: ShareStateHarness) -> None:
    harness.initialize()
    harness.initialize(key=OTHER)
    harness.advance(COLD_MS)
    assert harness.kinds() == ["snapshot"] * 4
    assert harness.shard.redundant_end() == 2
    harness.advance(COLD_MS)
    assert harness.kinds() == ["snapshot"] * 4


def test_deletion_leaves_nothing(harness: ShareStateHarness) -> None:
    harness.initialize()
    harness.carry_out(harness.shard.delete(KEY))
    assert harness.carry_out(harness.shard.delete(KEY)) is None
    assert harness.kinds() == ["snapshot", "tombstone"]
    assert harness.state() is None
    assert harness.shard.redundant_end() == 1
    harness.reload()
    assert len(harness.shard) == 0


def test_states_of_deleted_topics_are_removed(harness: ShareStateHarness) -> None:
    harness.initialize()
    harness.initialize(key=OTHER)
    del harness.topics[TOPIC]
    harness.carry_out(harness.shard.on_topics_deleted([TOPIC]))
    assert len(harness.shard) == 0


@pytest.mark.parametrize(
    "key", ["g:AAAAAAAAAAAAAAAAAAAABw", "g:h:AAAAAAAAAAAAAAAAAAAABw:0", ":x:0", "g:x:0", "g:AAAAAAAAAAAAAAAAAAAABw:one"]
)
def test_malformed_coordinator_key_is_refused(key: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        parse_coordinator_key(key)


def test_coordinator_key_names_group_topic_and_partition() -> None:
    assert KEY.coordinator_key == "g:AAAAAAAAAAAAAAAAAAAABw:0"
    assert parse_coordinator_key(KEY.coordinator_key) == KEY


def test_fold_of_the_log_keeps_the_last_snapshot_and_its_updates(harness: ShareStateHarness) -> None:
    harness.initialize(state_epoch=2, start_offset=10)
    for first in range(10, 60):
        harness.write(StateBatch(first, first, ACKNOWLEDGED, 1), state_epoch=2)
    fold = LogFold(SHARE_STATE_FOLD)
    for offset, (key, value) in enumerate(harness.log):
        fold.add(KeptRecord(offset, key, value))
    kept = list(fold.kept())
    assert len(kept) < len(harness.log)
    replayed = ShareStateShard(ShareStateConfig(UPDATES, COLD_MS), harness.clock, harness.topics.get)
    for record in kept:
        event = replayed.decode(record.key, record.value)
        assert event is not None
        replayed.replay(event, record.offset, -1)
    assert replayed.summary(KEY) == harness.state(KEY)
