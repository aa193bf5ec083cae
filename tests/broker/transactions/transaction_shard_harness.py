"""A transaction shard with a log in memory whose commits the test decides."""

from collections.abc import Iterable
from typing import Any, TypeVar

from broker.coordination.shard import CoordinatorResult
from broker.transactions.config import TransactionConfig
from broker.transactions.end import EndRequest
from broker.transactions.init_producer import InitRequest, ProducerIdNeeded
from broker.transactions.records import TransactionEvent
from broker.transactions.shard import ClusterTransactionVersion, TransactionShard
from broker.transactions.state import NO_PRODUCER_ID, ProducerIdAndEpoch, Transaction, TransactionPartition
from protocol.errors import ErrorCode
from tests.support.fakes.clock import ManualClock

R = TypeVar("R")

ID = "orders"
FIRST = TransactionPartition("t", 0)
SECOND = TransactionPartition("t", 1)


class SentMarkers:
    """A MarkerSender that records what it is to send."""

    def __init__(self) -> None:
        self.sent: list[tuple[str, Transaction]] = []
        self.is_cleared = False

    def send(self, transactional_id: str, transaction: Transaction) -> None:
        self.sent.append((transactional_id, transaction))

    def clear(self) -> None:
        self.is_cleared = True


class TransactionShardHarness:
    """A shard that leads its partition. Results are committed at once unless `holds_commits`."""

    def __init__(self, version: int = 2, config: TransactionConfig | None = None) -> None:
        self.clock = ManualClock()
        self.version = version
        self.log: list[tuple[bytes, bytes | None]] = []
        self.holds_commits = False
        self.waiting: list[CoordinatorResult[TransactionEvent, Any]] = []
        self._config = config or TransactionConfig()
        self._ids = iter(range(1_000, 2_000))
        self.markers = SentMarkers()
        self.shard = self._new_shard()
        self.shard.on_loaded()

    def _new_shard(self) -> TransactionShard:
        self.markers = SentMarkers()
        return TransactionShard(self._config, self.clock, self.markers, lambda: ClusterTransactionVersion(self.version))

    def fail_over(self) -> None:
        """Replace the shard by one that has replayed the log."""
        self.shard.on_unloaded()
        self.waiting.clear()
        self.shard = self._new_shard()
        for offset, (key, value) in enumerate(self.log):
            event = self.shard.decode(key, value)
            assert event is not None
            self.shard.replay(event, offset, -1)
        self.shard.on_loaded()
        self.run_timers()

    def carry_out(self, result: CoordinatorResult[TransactionEvent, R]) -> R:
        """Append and replay the records, and commit them unless commits are held."""
        for record in result.records:
            self.log.append((record.key, record.value))
            self.shard.replay(record.event, len(self.log) - 1, -1)
        self.waiting.append(result)
        if not self.holds_commits:
            self.settle()
        return result.response

    def settle(self, error: ErrorCode = ErrorCode.NONE) -> None:
        """End the waits for the commit."""
        waiting, self.waiting = self.waiting, []
        for each in waiting:
            if each.on_outcome is not None:
                self.carry_out(each.on_outcome(error))

    def advance(self, milliseconds: int) -> None:
        self.clock.advance_ms(milliseconds)
        self.run_timers()

    def run_timers(self) -> None:
        for cause in self.shard.timers.due(self.clock.monotonic_ms()):
            self.carry_out(self.shard.on_timer(cause))

    # Requests

    def init(
        self, known: ProducerIdAndEpoch | None = None, *, timeout_ms: int = 60_000
    ) -> ProducerIdAndEpoch | ErrorCode:
        return self.init_as(InitRequest(timeout_ms, known))

    def init_as(self, request: InitRequest) -> ProducerIdAndEpoch | ErrorCode:
        try:
            return self.carry_out(self.shard.init_producer(ID, request, NO_PRODUCER_ID))
        except ProducerIdNeeded:
            return self.carry_out(self.shard.init_producer(ID, request, next(self._ids)))

    def begin_session(self, known: ProducerIdAndEpoch | None = None, *, timeout_ms: int = 60_000) -> ProducerIdAndEpoch:
        producer = self.init(known, timeout_ms=timeout_ms)
        assert isinstance(producer, ProducerIdAndEpoch)
        return producer

    def add(self, producer: ProducerIdAndEpoch, *partitions: TransactionPartition, version: int | None = None) -> None:
        version = self.version if version is None else version
        self.carry_out(self.shard.add_partitions(ID, producer, partitions or (FIRST,), version))

    def verify(
        self, producer: ProducerIdAndEpoch, partitions: Iterable[TransactionPartition]
    ) -> dict[TransactionPartition, ErrorCode]:
        return dict(self.shard.verify_partitions(ID, producer, partitions))

    def end(
        self, producer: ProducerIdAndEpoch, *, is_commit: bool = True, version: int | None = None
    ) -> ProducerIdAndEpoch:
        request = EndRequest(producer, is_commit, self.version if version is None else version)
        try:
            return self.carry_out(self.shard.end(ID, request, NO_PRODUCER_ID))
        except ProducerIdNeeded:
            return self.carry_out(self.shard.end(ID, request, next(self._ids)))

    def write_markers(self) -> None:
        """Complete the transactions whose markers are to be sent."""
        sent, self.markers.sent = self.markers.sent, []
        for transactional_id, transaction in sent:
            self.carry_out(self.shard.complete(transactional_id, transaction.producer))

    @property
    def transaction(self) -> Transaction:
        found = self.shard.get(ID)
        assert found is not None
        return found
