"""The partition of `__transaction_state`: its leaders, each with the product's shard on a model of a replicated log."""

from collections.abc import Callable
from random import Random
from typing import Any, Final, NamedTuple, TypeVar

from broker.coordination.shard import CoordinatorResult
from broker.transactions.config import TransactionConfig
from broker.transactions.init_producer import ProducerIdNeeded
from broker.transactions.records import transaction_written
from broker.transactions.shard import AbortTimedOutDue, ClusterTransactionVersion, TransactionShard
from broker.transactions.state import NO_PRODUCER_ID, ProducerIdAndEpoch, Transaction, TransactionPartition
from protocol.errors import ErrorCode, KafkaError
from tests.simulation.simulator import Counts
from tests.simulation.transactions.markers import MarkerDelivery
from tests.simulation.transactions.network import Answer, Network
from tests.simulation.transactions.partitions import DataPartition
from tests.simulation.world import World

R = TypeVar("R")

CONFIG: Final = TransactionConfig(
    transactional_id_expiration_ms=90_000,
    transaction_abort_timed_out_transaction_cleanup_interval_ms=1_000,
    transaction_remove_expired_transaction_cleanup_interval_ms=10_000,
)
COMMIT_TIMEOUT_MS: Final = 5_000.0
_REPLICATION_MS: Final = 15.0
_STALL_MS: Final = 9_000.0
_PRODUCER_ID_MS: Final = 5.0
_VALUE_VERSION: Final = 1

Command = Callable[[TransactionShard, int], CoordinatorResult[Any, R]]


class SavedRecord(NamedTuple):
    """A record of the partition. Two leaders never write equal records at one offset, because of `leader_epoch`."""

    leader_epoch: int
    key: bytes
    value: bytes | None


class _Waiting(NamedTuple):
    end: int
    settle: Callable[[ErrorCode], None]


class CoordinatorClock:
    """The clocks of one leader; the wall clock may be stepped."""

    def __init__(self, world: World) -> None:
        self._world = world
        self.step_ms = 0

    def now_ms(self) -> int:
        return 1_000_000 + self.step_ms + int(self._world.now_ms)

    def monotonic_ms(self) -> float:
        return self._world.now_ms


class CoordinatorLeader:
    """A broker that leads, or believes to lead, the partition in one leader epoch."""

    def __init__(self, partition: "CoordinatorPartition", epoch: int, log: list[SavedRecord]) -> None:
        self.epoch = epoch
        self.log = log
        self.is_stopped = False
        self.clock = CoordinatorClock(partition.world)
        self.clock.step_ms = partition.draw_clock_step()
        self._partition = partition
        self._waiting: list[_Waiting] = []
        self._wake_at: float | None = None
        self.markers = MarkerDelivery(
            partition.world, partition.network, epoch, partition.find_partition, self.complete
        )
        self.shard = TransactionShard(CONFIG, self.clock, self.markers, partition.version)
        for offset, (_, key, value) in enumerate(log):
            event = self.shard.decode(key, value)
            assert event is not None
            self.shard.replay(event, offset, -1)
        self.shard.on_loaded()
        self._arm()

    def run(self, command: Command[R], respond: Callable[[Answer[R]], None]) -> None:
        """Run a command of a request; the response follows the commit of its records."""
        if self.is_stopped:
            respond(ErrorCode.NOT_COORDINATOR)
            return
        try:
            result = command(self.shard, NO_PRODUCER_ID)
        except ProducerIdNeeded:
            self._partition.world.schedule(_PRODUCER_ID_MS, self._run_with_id, command, respond)
        except KafkaError as error:
            respond(error.code)
        else:
            self._carry_out(result, respond)
        self._arm()

    def verify(self, transactional_id: str, producer: ProducerIdAndEpoch, partition: TransactionPartition) -> ErrorCode:
        """Return NONE if a partition belongs to the ongoing transaction."""
        if self.is_stopped:
            return ErrorCode.NOT_COORDINATOR
        try:
            return self.shard.verify_partitions(transactional_id, producer, [partition])[partition]
        except KafkaError as error:
            return error.code

    def _run_with_id(self, command: Command[R], respond: Callable[[Answer[R]], None]) -> None:
        if self.is_stopped:
            respond(ErrorCode.NOT_COORDINATOR)
            return
        try:
            result = command(self.shard, self._partition.next_producer_id())
        except KafkaError as error:
            respond(error.code)
        else:
            self._carry_out(result, respond)
        self._arm()

    def _carry_out(self, result: CoordinatorResult[Any, R], respond: Callable[[Answer[R]], None]) -> None:
        """Append and replay the records of a result; its outcome is due when the log is committed up to here."""
        for record in result.records:
            self.log.append(SavedRecord(self.epoch, record.key, record.value))
            self.shard.replay(record.event, len(self.log) - 1, -1)

        def settle(error: ErrorCode) -> None:
            if result.on_outcome is not None:
                self._carry_out(result.on_outcome(error), lambda answer: None)
            response: Answer[R] = result.response if error is ErrorCode.NONE else error
            respond(response)

        self._waiting.append(_Waiting(len(self.log), settle))
        self._partition.replicate(self)
        self._partition.world.schedule(COMMIT_TIMEOUT_MS, self._time_out, self._waiting[-1])

    def on_commit(self, end: int) -> None:
        """Settle the results below the high watermark."""
        while self._waiting and self._waiting[0].end <= end and not self.is_stopped:
            self._waiting.pop(0).settle(ErrorCode.NONE)
        self._arm()

    def _time_out(self, waiting: _Waiting) -> None:
        if waiting in self._waiting and not self.is_stopped:
            self._waiting.remove(waiting)
            waiting.settle(ErrorCode.REQUEST_TIMED_OUT)
            self._arm()

    def complete(self, transactional_id: str, transaction: Transaction) -> None:
        """End a transaction whose markers are written."""
        if not self.is_stopped:
            self._carry_out(self.shard.complete(transactional_id, transaction.producer), lambda answer: None)
            self._arm()

    def stop(self) -> None:
        """End the leadership: the broker has died, or has learned that it is deposed."""
        if self.is_stopped:
            return
        waiting, self._waiting = self._waiting, []
        for each in waiting:
            each.settle(ErrorCode.NOT_COORDINATOR)
        self.is_stopped = True
        self.shard.on_unloaded()

    def _arm(self) -> None:
        wake_ms = None if self.is_stopped else self.shard.timers.next_wake_ms
        if wake_ms is not None and (self._wake_at is None or wake_ms < self._wake_at):
            self._wake_at = wake_ms
            self._partition.world.schedule(wake_ms - self._partition.world.now_ms, self._run_timers, wake_ms)

    def _run_timers(self, wake_ms: float) -> None:
        if self.is_stopped or self._wake_at != wake_ms:
            return
        self._wake_at = None
        for cause in self.shard.timers.due(self.clock.monotonic_ms()):
            result = self.shard.on_timer(cause)
            if isinstance(cause, AbortTimedOutDue):
                self._partition.counts.add("timed-out transactions", len(result.records))
            self._carry_out(result, lambda answer: None)
        self._arm()


class CoordinatorPartition:
    """The partition with its present leader. `high_watermark` is the end of the committed records."""

    def __init__(self, world: World, rng: Random, network: Network, counts: Counts, feature_level: int) -> None:
        self.world = world
        self.network = network
        self.counts = counts
        self.feature_level = feature_level
        self.partitions: dict[TransactionPartition, DataPartition] = {}
        self.slow_commits = 0.0
        self.has_clock_steps = False
        self.high_watermark = 0
        self._unaware: list[CoordinatorLeader] = []
        self._rng = rng
        self._producer_ids = iter(range(1_000, 1_000_000))
        self.leader = CoordinatorLeader(self, 0, [])

    def version(self) -> ClusterTransactionVersion:
        """Return the finalized feature `transaction.version`."""
        return ClusterTransactionVersion(self.feature_level)

    def next_producer_id(self) -> int:
        return next(self._producer_ids)

    def find_partition(self, partition: TransactionPartition) -> DataPartition:
        """Return a partition that a transaction names."""
        return self.partitions[partition]

    def asked(self) -> CoordinatorLeader:
        """Return the leader that a request goes to: the present one, or one that does not know that it is deposed."""
        self._unaware = [each for each in self._unaware if not each.is_stopped]
        return self._unaware[-1] if self._unaware and self._rng.random() < 0.3 else self.leader

    def draw_clock_step(self) -> int:
        """Return the error of a new leader's wall clock."""
        return self._rng.choice((-4_000, 0, 0, 4_000)) if self.has_clock_steps else 0

    def seed_state(self, transactional_id: str, producer_epoch: int) -> None:
        """Begin with a transactional id of many epochs."""
        transaction = Transaction(
            producer_id=self.next_producer_id(),
            producer_epoch=producer_epoch,
            timeout_ms=10_000,
            last_update_ms=self.leader.clock.now_ms(),
        )
        record = transaction_written(transactional_id, transaction, min(self.feature_level, _VALUE_VERSION))
        self.leader.log.append(SavedRecord(0, record.key, record.value))
        self.leader.shard.replay(record.event, len(self.leader.log) - 1, -1)
        self.high_watermark = len(self.leader.log)

    def replicate(self, leader: CoordinatorLeader) -> None:
        """Commit what the present leader has appended, after a while; a deposed leader commits nothing."""
        delay_ms = 1.0 + self._rng.random() * _REPLICATION_MS
        if self._rng.random() < self.slow_commits:
            delay_ms += self._rng.random() * _STALL_MS
        self.world.schedule(delay_ms, self._commit, leader, len(leader.log))

    def _commit(self, leader: CoordinatorLeader, end: int) -> None:
        if leader is not self.leader or leader.is_stopped:
            return
        self.high_watermark = max(self.high_watermark, end)
        leader.on_commit(self.high_watermark)

    def change_leader(self, *, stays_unaware: bool) -> None:
        """Elect another leader, with the committed records and perhaps more.

        The former leader dies, or does not know for a while that it is deposed.
        """
        former = self.leader
        kept = self._rng.randint(self.high_watermark, len(former.log))
        self.leader = CoordinatorLeader(self, former.epoch + 1, former.log[:kept])
        self.replicate(self.leader)
        if stays_unaware:
            self._unaware.append(former)
            self.world.schedule(self._rng.random() * 8_000.0, former.stop)
        else:
            former.stop()
