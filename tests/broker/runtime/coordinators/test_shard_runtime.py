"""Shards on partition logs: leadership, loading, batching, commits, timers. The test's shard counts words."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pytest

from broker.coordination.shard import CoordinatorRecord, CoordinatorResult
from broker.coordination.timers import TimerQueue
from broker.groups.replay import GROUP_FOLD
from broker.metrics.coordinator_loads import LoadFigures
from broker.runtime.coordinators.hosted_shard import WriteLimits
from broker.runtime.coordinators.shard_loader import ShardLoader
from broker.runtime.coordinators.shard_log import LoadedBatch, ProducerTransaction
from broker.runtime.coordinators.shard_runtime import ShardRuntime, ShardState
from broker.runtime.partitions.transaction_marker import WritableMarker
from protocol.errors import DecodeError, ErrorCode, KafkaError
from protocol.ids import LeaderEpoch
from tests.support.fakes.clock import ManualClock
from tests.support.fakes.manual_loop import ManualLoop
from tests.support.fakes.runtimes import make_runtime
from tests.support.fakes.shard_log import MemoryShardLog
from tests.support.harnesses.group_harness import LoopClock

P = 0
TIMEOUT_MS = 5_000


class WordShard:
    """Counts the words written to its partition, and stores the last offset of each word."""

    def __init__(self, clock: LoopClock) -> None:
        self.words: dict[str, int] = {}
        self.last_offset = -1
        self.pending: dict[int, list[str]] = {}
        self.timed: list[str] = []
        self.is_loaded = False
        self.is_unloaded = False
        self.outcomes: list[ErrorCode] = []
        self.timer_result: CoordinatorResult[str, None] = CoordinatorResult(None)
        self._timers: TimerQueue[str] = TimerQueue(clock.monotonic_ms)

    @property
    def timers(self) -> TimerQueue[str]:
        return self._timers

    @property
    def parking(self) -> None:
        return None

    def decode(self, key: bytes, value: bytes | None) -> str | None:
        if key == b"malformed":
            raise DecodeError("malformed")
        return None if key == b"unknown type" else key.decode()

    def replay(self, event: str, offset: int, producer_id: int) -> None:
        if event == "fault":
            raise RuntimeError("a fault in replay")
        self.last_offset = offset
        if producer_id >= 0:
            self.pending.setdefault(producer_id, []).append(event)
        else:
            self.words[event] = self.words.get(event, 0) + 1

    def replay_end_transaction(self, producer_id: int, committed: bool) -> None:
        for word in self.pending.pop(producer_id, []):
            if committed:
                self.words[word] = self.words.get(word, 0) + 1

    def on_timer(self, cause: str) -> CoordinatorResult[str, None]:
        if cause == "fault":
            raise RuntimeError("a fault in a timer")
        self.timed.append(cause)
        return self.timer_result

    def on_loaded(self) -> None:
        self.is_loaded = True

    def on_unloaded(self) -> None:
        self.is_unloaded = True
        self._timers.clear()

    # Commands.

    def write(self, *words: str, response: str = "written") -> CoordinatorResult[str, str]:
        return CoordinatorResult(response, [CoordinatorRecord(word.encode(), b"", word) for word in words])

    def count(self, word: str) -> CoordinatorResult[str, int]:
        return CoordinatorResult(self.words.get(word, 0))

    def write_and_hear(self, *words: str, follow_up: str | None = None) -> CoordinatorResult[str, str]:
        def on_outcome(error: ErrorCode) -> CoordinatorResult[str, None]:
            self.outcomes.append(error)
            return CoordinatorResult(None) if follow_up is None else self.write(follow_up).answering(None)

        result = self.write(*words)
        return CoordinatorResult("heard", result.records, on_outcome=on_outcome)


@dataclass
class ShardHarness:
    """A runtime, the log of its only partition, and a manual clock."""

    linger_ms: int = 0
    first_log: MemoryShardLog | None = None

    def __post_init__(self) -> None:
        self.loop = ManualLoop()
        self.clock = LoopClock(self.loop)
        self.log = self.first_log or MemoryShardLog()
        self.is_hosted = True
        self.runtime: ShardRuntime[WordShard] = ShardRuntime(
            make_runtime(self.loop, clock=self.clock),
            "words",
            lambda: WordShard(self.clock),
            self.open_log,
            WriteLimits(self.linger_ms, TIMEOUT_MS),
            ShardLoader(self.clock, 1 << 20, GROUP_FOLD),
        )

    def open_log(self, partition: int) -> MemoryShardLog:
        if not self.is_hosted:
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        return self.log

    @property
    def shard(self) -> WordShard:
        return next(self.runtime.shards())

    def state(self) -> ShardState | None:
        return self.runtime.states().get(P)

    def write(self, *words: str) -> "str | asyncio.Future[str]":
        return self.runtime.execute(P, lambda shard: shard.write(*words))

    def write_later(self, *words: str) -> "asyncio.Future[str]":
        answer = self.write(*words)
        assert isinstance(answer, asyncio.Future)
        return answer

    def count(self, word: str) -> "int | asyncio.Future[int]":
        return self.runtime.execute(P, lambda shard: shard.count(word))

    def count_later(self, word: str) -> "asyncio.Future[int]":
        answer = self.count(word)
        assert isinstance(answer, asyncio.Future)
        return answer

    def refusal(self) -> ErrorCode:
        with pytest.raises(KafkaError) as caught:
            self.count("any")
        return caught.value.code


def loaded_harness(linger_ms: int = 0) -> ShardHarness:
    """Return a harness whose partition is led and loaded."""
    made = ShardHarness(linger_ms)
    made.runtime.elect(P, LeaderEpoch(1))
    return made


def code_of(answer: "asyncio.Future[Any]") -> ErrorCode:
    error = answer.exception()
    assert isinstance(error, KafkaError)
    return error.code


# Leadership


def test_partition_not_led_here_has_no_coordinator() -> None:
    assert ShardHarness().refusal() is ErrorCode.NOT_COORDINATOR


def test_empty_partition_is_in_service_at_once() -> None:
    s = loaded_harness()
    assert s.state() is ShardState.ACTIVE
    assert s.shard.is_loaded
    assert s.write("a") == "written"
    assert s.count("a") == 1
    assert s.log.leader_epoch == 1


def test_resigned_partition_has_no_coordinator() -> None:
    s = loaded_harness()
    shard = s.shard
    s.runtime.resign(P, LeaderEpoch(2))
    assert s.refusal() is ErrorCode.NOT_COORDINATOR
    assert shard.is_unloaded


@pytest.mark.parametrize("epoch", [0, 1])
def test_old_resignation_is_ignored(epoch: int) -> None:
    s = loaded_harness()
    s.runtime.resign(P, LeaderEpoch(epoch))
    assert s.state() is ShardState.ACTIVE


def test_removed_replica_resigns_at_any_epoch() -> None:
    s = loaded_harness()
    s.runtime.resign(P)
    assert s.state() is None


def test_old_election_is_ignored() -> None:
    s = loaded_harness()
    s.runtime.elect(P, LeaderEpoch(1))
    s.runtime.elect(P, LeaderEpoch(0))
    s.write("a")
    assert s.log.leader_epoch == 1


def test_reelected_shard_keeps_its_state_and_writes_under_the_new_epoch() -> None:
    s = loaded_harness()
    s.write("a")
    shard = s.shard
    s.runtime.elect(P, LeaderEpoch(5))
    s.write("b")
    assert s.shard is shard
    assert s.log.leader_epoch == 5


def test_partition_waits_for_the_creation_of_its_log() -> None:
    s = ShardHarness()
    s.is_hosted = False
    s.runtime.elect(P, LeaderEpoch(1))
    assert s.refusal() is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    s.runtime.log_ready(P)
    assert s.refusal() is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    s.is_hosted = True
    s.runtime.log_ready(P)
    assert s.count("a") == 0
    s.runtime.log_ready(P)
    s.runtime.log_ready(7)
    assert s.state() is ShardState.ACTIVE


def test_closed_runtime_is_not_available() -> None:
    s = loaded_harness()
    s.runtime.close()
    assert s.refusal() is ErrorCode.COORDINATOR_NOT_AVAILABLE
    with pytest.raises(KafkaError):
        s.runtime.partitions_in_service()
    assert s.loop.live_timers == 0


# Loading


def filled_log() -> MemoryShardLog:
    log = MemoryShardLog()
    log.add([(b"a", b""), (b"b", b"")])
    log.add([(b"a", b""), (b"unknown type", b"")])
    return log


async def run_loader(s: ShardHarness, until: Callable[[], bool]) -> None:
    """Run the loader on the test's event loop until the condition holds."""
    task = asyncio.create_task(s.runtime.run_loader())
    for _ in range(1000):
        if until():
            break
        await asyncio.sleep(0)
    task.cancel()
    assert until()


async def test_log_is_replayed_from_its_start_to_its_end() -> None:
    s = ShardHarness(first_log=filled_log())
    s.runtime.elect(P, LeaderEpoch(1))
    assert s.refusal() is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    with pytest.raises(KafkaError) as caught:
        s.runtime.partitions_in_service()
    assert caught.value.code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    await run_loader(s, lambda: s.state() is ShardState.ACTIVE)
    assert s.shard.words == {"a": 2, "b": 1}
    assert s.runtime.partitions_in_service() == [P]
    assert s.write("c") == "written"
    assert s.shard.last_offset == 4


async def test_uncommitted_records_are_loaded_but_not_visible() -> None:
    s = ShardHarness(first_log=filled_log())
    s.log.holds_commits = True
    s.log.add([(b"late", b"")])
    s.runtime.elect(P, LeaderEpoch(1))
    await run_loader(s, lambda: s.state() is ShardState.ACTIVE)
    answer = s.count_later("late")
    assert not answer.done()
    s.log.commit()
    assert answer.result() == 1


async def test_transactional_records_count_after_their_commit_marker() -> None:
    log = MemoryShardLog()
    log.add([(b"committed", b"")], producer_id=7)
    log.add([(b"aborted", b"")], producer_id=8)
    log.add([(b"open", b"")], producer_id=9)
    log.add(producer_id=8, committed=False)
    log.add(producer_id=7, committed=True)
    s = ShardHarness(first_log=log)
    s.runtime.elect(P, LeaderEpoch(1))
    await run_loader(s, lambda: s.state() is ShardState.ACTIVE)
    assert s.shard.words == {"committed": 1}
    assert s.shard.pending == {9: ["open"]}


@pytest.mark.parametrize("record", [b"malformed", b"fault"])
async def test_unreplayable_record_fails_the_partition_until_the_next_election(record: bytes) -> None:
    s = ShardHarness()
    s.log.add([(record, b"")])
    s.runtime.elect(P, LeaderEpoch(1))
    await run_loader(s, lambda: s.state() is ShardState.FAILED)
    assert s.refusal() is ErrorCode.NOT_COORDINATOR
    assert s.runtime.partitions_in_service() == []
    s.log = filled_log()
    s.runtime.elect(P, LeaderEpoch(2))
    await run_loader(s, lambda: s.state() is ShardState.ACTIVE)
    assert s.shard.words == {"a": 2, "b": 1}


async def test_partition_resigned_during_loading_stays_out_of_service() -> None:
    s = ShardHarness(first_log=filled_log())
    s.runtime.elect(P, LeaderEpoch(1))
    s.runtime.resign(P, LeaderEpoch(2))
    await run_loader(s, lambda: True)
    assert s.state() is None


async def test_loading_runs_in_slices() -> None:
    """Replaying a large log must not block the loop: other callbacks run after each slice of a millisecond."""
    log = MemoryShardLog()
    log.add([(b"a", b"")] * 1_000)
    s = ShardHarness(first_log=log)

    class TickingClock(LoopClock):
        def monotonic_ms(self) -> float:
            s.loop._now += 0.0005
            return super().monotonic_ms()

    turns = 0

    async def count_turns() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    counter = asyncio.create_task(count_turns())
    shard = WordShard(s.clock)
    await ShardLoader(TickingClock(s.loop), 1 << 20, GROUP_FOLD).load(shard, log)
    counter.cancel()
    assert shard.words == {"a": 1_000}
    assert turns >= 9


async def test_load_time_and_records_are_measured() -> None:
    log = MemoryShardLog()
    log.add([(b"a", b""), (b"b", b"")])
    log.add(committed=True, producer_id=7)
    clock = ManualClock()
    loader = ShardLoader(clock, 1 << 20, GROUP_FOLD)

    class SlowLog(MemoryShardLog):
        async def read(self, offset: int, max_bytes: int) -> Sequence[LoadedBatch]:
            clock.advance_ms(30)
            return await log.read(offset, max_bytes)

    slow = SlowLog()
    slow.end_offset = log.end_offset
    await loader.load(WordShard(LoopClock(ManualLoop())), slow)
    assert loader.figures == LoadFigures(partitions=1, records=2, elapsed_ms=30, longest_ms=30)
    loader.figures.loaded(5, 10)
    assert {family.name: [sample.value for sample in family.read()] for family in loader.figures.families("group")} == {
        "kafka_server_group_coordinator_metrics_partition_load_time_max": [30],
        "kafka_server_group_coordinator_metrics_partition_load_time_avg": [20],
        "kafka_server_group_coordinator_metrics_partition_load_records_total": [7],
    }


# Writing and committing


def test_write_is_answered_after_its_commit() -> None:
    s = loaded_harness()
    s.log.holds_commits = True
    answer = s.write_later("a")
    assert not answer.done()
    s.log.commit()
    assert answer.result() == "written"


def test_read_waits_for_the_commit_of_what_it_saw() -> None:
    s = loaded_harness()
    s.log.holds_commits = True
    s.write_later("a")
    read = s.count_later("a")
    assert not read.done()
    s.log.commit()
    assert read.result() == 1


def test_write_without_commit_times_out_but_stays_in_the_log() -> None:
    s = loaded_harness()
    s.log.holds_commits = True
    answer = s.write_later("a")
    s.loop.advance(TIMEOUT_MS / 1000)
    assert code_of(answer) is ErrorCode.REQUEST_TIMED_OUT
    s.log.commit()
    assert s.count("a") == 1


def test_resignation_fails_waiting_operations() -> None:
    s = loaded_harness()
    s.log.holds_commits = True
    answer = s.write_later("a")
    s.runtime.resign(P, LeaderEpoch(2))
    assert code_of(answer) is ErrorCode.NOT_COORDINATOR
    s.log.commit()
    assert s.loop.failures == []


def test_commit_under_another_leader_fails_waiting_operations() -> None:
    """KAFKA-20634."""
    s = loaded_harness()
    s.log.holds_commits = True
    answer = s.write_later("a")
    s.log.lose_leadership()
    assert code_of(answer) is ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_failed_append_changes_no_state() -> None:
    s = loaded_harness()
    s.log.fail_next = ErrorCode.NOT_ENOUGH_REPLICAS
    with pytest.raises(KafkaError) as caught:
        s.write("a")
    assert caught.value.code is ErrorCode.NOT_ENOUGH_REPLICAS
    assert s.count("a") == 0
    assert s.write("b") == "written"


def test_record_of_another_writer_reloads_the_shard() -> None:
    s = loaded_harness()
    s.write("a")
    s.log.add([(b"intruder", b"")])
    with pytest.raises(KafkaError) as caught:
        s.write("b")
    assert caught.value.code is ErrorCode.NOT_COORDINATOR
    assert s.state() is ShardState.FAILED
    s.loop.run_soon()
    assert s.state() is ShardState.LOADING


def test_error_in_replay_discards_the_shard() -> None:
    s = loaded_harness()
    with pytest.raises(RuntimeError):
        s.write("fault")
    assert s.state() is ShardState.FAILED


# One append for a turn


def test_writes_of_one_turn_share_a_batch() -> None:
    s = loaded_harness(linger_ms=-1)
    answers = [s.write_later(word) for word in "abc"]
    assert s.log.batch_sizes == []
    s.loop.run_soon()
    assert s.log.batch_sizes == [3]
    assert [answer.result() for answer in answers] == ["written"] * 3
    assert s.shard.last_offset == 2


def test_linger_time_delays_the_append() -> None:
    s = loaded_harness(linger_ms=10)
    s.write_later("a")
    s.loop.advance(0.009)
    s.write_later("b")
    assert s.log.batch_sizes == []
    s.loop.advance(0.001)
    assert s.log.batch_sizes == [2]


def test_write_without_linger_is_appended_at_once() -> None:
    s = loaded_harness(linger_ms=0)
    assert s.write("a") == "written"


def test_command_sees_earlier_writes_of_its_turn_and_waits_for_their_commit() -> None:
    s = loaded_harness(linger_ms=-1)
    s.write_later("a")
    answer = s.count_later("a")
    s.write_later("a")
    s.log.holds_commits = True
    s.loop.run_soon()
    assert (s.log.batch_sizes, answer.done()) == ([2], False)
    s.log.commit()
    assert answer.result() == 1


def test_soft_result_does_not_wait_for_the_writes_of_its_turn() -> None:
    s = loaded_harness(linger_ms=-1)
    s.write_later("a")
    assert s.runtime.execute(P, lambda shard: shard.count("a"), soft=True) == 1
    assert s.log.batch_sizes == []


def test_full_batch_is_appended_at_once() -> None:
    s = loaded_harness(linger_ms=10)
    s.log.max_batch_bytes = 210
    for word in ("a" * 40, "b" * 40, "c" * 40):
        s.write_later(word)
    assert s.log.batch_sizes == [2]
    s.loop.advance(0.01)
    assert s.log.batch_sizes == [2, 1]


def test_records_over_the_batch_size_are_appended_alone_before_they_take_effect() -> None:
    s = loaded_harness(linger_ms=-1)
    s.log.max_batch_bytes = 210
    s.write_later("a")
    assert s.write("b" * 300) == "written"
    assert s.log.batch_sizes == [1, 1]
    s.log.fail_next = ErrorCode.MESSAGE_TOO_LARGE
    with pytest.raises(KafkaError) as caught:
        s.write("c" * 300)
    assert caught.value.code is ErrorCode.MESSAGE_TOO_LARGE
    assert (s.state(), sorted(s.shard.words)) == (ShardState.ACTIVE, ["a", "b" * 300])


def test_refused_write_leaves_the_other_writes_of_its_turn() -> None:
    s = loaded_harness(linger_ms=-1)
    first = s.write_later("a")
    s.log.fail_next = ErrorCode.NOT_ENOUGH_REPLICAS
    with pytest.raises(KafkaError) as caught:
        s.write("b")
    assert caught.value.code is ErrorCode.NOT_ENOUGH_REPLICAS
    last = s.write_later("c")
    s.loop.run_soon()
    assert (first.result(), last.result()) == ("written", "written")
    assert s.shard.words == {"a": 1, "c": 1}


async def test_append_that_fails_late_reloads_the_shard() -> None:
    s = loaded_harness(linger_ms=-1)
    s.write_later("a")
    s.loop.run_soon()
    answers = [s.write_later(word) for word in "bc"]
    seen = s.count_later("b")
    s.log.fail_next_batch = ErrorCode.NOT_ENOUGH_REPLICAS
    s.loop.run_soon()
    assert [code_of(answer) for answer in answers] == [ErrorCode.NOT_COORDINATOR] * 2
    assert code_of(seen) is ErrorCode.NOT_COORDINATOR
    await run_loader(s, lambda: s.state() is ShardState.ACTIVE)
    assert (s.state(), s.shard.words) == (ShardState.ACTIVE, {"a": 1})


def test_transaction_that_finds_the_turns_append_refused_is_not_written() -> None:
    s = loaded_harness(linger_ms=-1)
    answer = s.write_later("a")
    s.log.fail_next_batch = ErrorCode.NOT_ENOUGH_REPLICAS
    with pytest.raises(KafkaError) as caught:
        s.runtime.execute_in_transaction(P, lambda shard: shard.write("b"), ProducerTransaction(7, 0))
    assert caught.value.code is ErrorCode.NOT_COORDINATOR
    assert code_of(answer) is ErrorCode.NOT_COORDINATOR
    assert s.log.batch_sizes == []


def test_transaction_is_appended_after_the_writes_before_it() -> None:
    s = loaded_harness(linger_ms=-1)
    s.write_later("a")
    s.runtime.execute_in_transaction(P, lambda shard: shard.write("b"), ProducerTransaction(7, 0))
    assert [record.key for record in s.log.records] == [b"a", b"b"]
    assert s.log.batch_sizes == [1, 1]


def test_timer_whose_records_are_refused_is_due_again() -> None:
    s = loaded_harness(linger_ms=-1)
    s.shard.timer_result = s.shard.write("timed").answering(None)
    s.shard.timers.schedule("key", 10, "cause")
    s.write_later("a")  # the runtime looks at the shard's timers after each command
    s.loop.run_soon()
    s.log.fail_next = ErrorCode.NOT_ENOUGH_REPLICAS
    s.loop.advance(0.01)
    assert s.shard.timed == ["cause"]
    s.loop.advance(0.5)
    s.loop.run_soon()
    assert (s.shard.timed, s.shard.words["timed"]) == (["cause"] * 2, 1)


def test_resignation_fails_lingering_writes_without_appending_them() -> None:
    s = loaded_harness(linger_ms=10)
    answer = s.write_later("a")
    s.runtime.resign(P, LeaderEpoch(2))
    s.loop.advance(1)
    assert code_of(answer) is ErrorCode.NOT_COORDINATOR
    assert s.log.batch_sizes == []


def test_cancelled_request_is_not_answered() -> None:
    s = loaded_harness()
    s.log.holds_commits = True
    s.write_later("a").cancel()
    s.log.commit()
    assert s.loop.failures == []


# Outcomes and timers


def test_shard_is_notified_of_an_outcome_before_the_client() -> None:
    s = loaded_harness()
    assert s.runtime.execute(P, lambda shard: shard.write_and_hear("a")) == "heard"
    s.log.fail_next = ErrorCode.NOT_ENOUGH_REPLICAS
    with pytest.raises(KafkaError):
        s.runtime.execute(P, lambda shard: shard.write_and_hear("b"))
    s.log.holds_commits = True
    s.runtime.post(P, lambda shard: shard.write_and_hear("c"))
    shard = s.shard
    s.runtime.resign(P, LeaderEpoch(2))
    assert shard.outcomes == [ErrorCode.NONE, ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.NOT_COORDINATOR]


def test_records_decided_on_an_outcome_are_written() -> None:
    s = loaded_harness()
    s.runtime.post(P, lambda shard: shard.write_and_hear("a", follow_up="b"))
    assert s.count("b") == 1


@pytest.mark.parametrize(("size", "batches"), [(60, [1, 2]), (300, [1, 1, 1])], ids=["full batch", "batch of its own"])
def test_records_decided_on_an_outcome_follow_the_decision_that_caused_the_append(
    size: int, batches: list[int]
) -> None:
    s = loaded_harness(linger_ms=-1)
    s.log.max_batch_bytes = 210
    s.runtime.post(P, lambda shard: shard.write_and_hear("a" * 60, follow_up="c"))
    s.write("b" * size)
    s.loop.run_soon()
    assert [record.key[:1] for record in s.log.records] == [b"a", b"b", b"c"]
    assert (s.log.batch_sizes, s.state()) == (batches, ShardState.ACTIVE)


def test_records_decided_on_an_outcome_follow_a_decision_written_in_parts() -> None:
    s = loaded_harness(linger_ms=-1)
    s.log.max_batch_bytes = 210
    s.runtime.post(P, lambda shard: shard.write_and_hear("a", follow_up="c"))
    words = ["b" * 60, "b" * 60, "b" * 60]
    assert s.runtime.execute(P, lambda shard: replace(shard.write(*words), atomic=False)) == "written"
    s.loop.run_soon()
    assert [record.key[:1] for record in s.log.records] == [b"a", b"b", b"b", b"b", b"c"]
    assert s.state() is ShardState.ACTIVE


def test_records_decided_on_an_outcome_precede_a_transaction_and_its_marker() -> None:
    s = loaded_harness(linger_ms=-1)
    s.runtime.post(P, lambda shard: shard.write_and_hear("a", follow_up="b"))
    s.runtime.execute_in_transaction(P, lambda shard: shard.write("c"), ProducerTransaction(7, 0))
    s.runtime.post(P, lambda shard: shard.write_and_hear("d", follow_up="e"))
    s.runtime.end_transaction(P, WritableMarker(7, 0, True, 0))
    assert [record.key for record in s.log.records] == [b"a", b"b", b"c", b"d", b"e"]
    assert (s.state(), s.shard.words) == (ShardState.ACTIVE, dict.fromkeys("abcde", 1))


def test_timers_fire_at_their_deadline() -> None:
    s = loaded_harness()
    s.shard.timers.schedule("k", 30, "first")
    s.count("any")  # any command makes the runtime check the timers
    s.shard.timers.schedule("l", 50, "second")
    s.count("any")
    s.loop.advance(0.029)
    assert s.shard.timed == []
    s.loop.advance(0.001)
    assert s.shard.timed == ["first"]
    s.loop.advance(0.02)
    assert s.shard.timed == ["first", "second"]


def test_records_decided_by_a_timer_are_written() -> None:
    s = loaded_harness()
    s.shard.timer_result = s.shard.write("timed").answering(None)
    s.shard.timers.schedule("k", 30, "cause")
    s.count("any")
    s.loop.advance(0.03)
    assert s.count("timed") == 1


def test_timers_of_a_resigned_partition_do_not_fire() -> None:
    s = loaded_harness()
    shard = s.shard
    shard.timers.schedule("k", 30, "cause")
    s.count("any")
    s.runtime.resign(P, LeaderEpoch(2))
    s.loop.advance(1)
    assert shard.timed == []


def test_error_in_a_timer_discards_the_shard() -> None:
    """The remaining causes were not handled, so sessions would never expire."""
    s = loaded_harness()
    s.shard.timers.schedule("k", 30, "fault")
    s.count("any")
    s.loop.advance(0.03)
    assert len(s.loop.failures) == 1
    assert s.state() is ShardState.ACTIVE  # reloaded from its log, which is empty
    assert s.shard.timed == []
