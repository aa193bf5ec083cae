"""Producers that write transactions, as clients of Kafka do: with retries, timeouts and fatal errors."""

from collections.abc import Generator
from random import Random
from typing import Any, Final, TypeAlias

from broker.transactions.end import EndRequest
from broker.transactions.init_producer import InitRequest
from broker.transactions.state import EPOCH_PER_TRANSACTION, ProducerIdAndEpoch, TransactionPartition
from protocol.errors import ErrorCode
from protocol.records.builder import Record, build_batch
from tests.simulation.transactions.checker import SentRecord, SentTransaction, TransactionChecker
from tests.simulation.transactions.network import Serve
from tests.simulation.transactions.partitions import ProduceRequest
from tests.simulation.transactions.services import TransactionServices

Step: TypeAlias = "Serve[Any] | float"
"""A request to send, or a pause in ms."""
Program: TypeAlias = Generator[Step, Any, Any]

RETRIABLE: Final = frozenset(
    (
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.CONCURRENT_TRANSACTIONS,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
    )
)
_FENCING: Final = frozenset((ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_ID_MAPPING))
_RETRY_MS: Final = 60.0
_GIVE_UP_MS: Final = 25_000.0
_OLD_VERSION: Final = 0


class Fatal(Exception):
    """The producer cannot go on."""


class Abortable(Exception):
    """The transaction cannot be committed."""


class Application:
    """A program that sends requests one after another and pauses in between."""

    version = _OLD_VERSION
    """The transaction version of the next request."""

    def __init__(self, services: TransactionServices) -> None:
        self.is_done = False
        self.is_stopping = False
        self.services = services
        self._program = self._run()
        services.later(0.0, self._resume, None)

    def _run(self) -> Program:
        """Run until the end, soon after `is_stopping` is set."""
        raise NotImplementedError

    def kill(self) -> None:
        """Stop at once. Requests under way may still arrive."""
        self.is_done = True
        self._program.close()

    def _resume(self, answer: Any) -> None:
        if self.is_done:
            return
        try:
            step = self._program.send(answer)
        except StopIteration:
            self.is_done = True
        else:
            if isinstance(step, float):
                self.services.later(step, self._resume, None)
            else:
                self.services.send(step, self._resume, version=self.version)


class ProducerInstance(Application):
    """One run of an application with a transactional id. `supports_v2`: its client knows transaction version 2."""

    def __init__(
        self,
        name: str,
        transactional_id: str,
        services: TransactionServices,
        rng: Random,
        checker: TransactionChecker,
        *,
        supports_v2: bool,
    ) -> None:
        self.name = name
        self.transactional_id = transactional_id
        self._rng = rng
        self._checker = checker
        self._supports_v2 = supports_v2
        self._timeout_ms = rng.choice((4_000, 10_000, 30_000))
        self._producer = ProducerIdAndEpoch(-1, -1)
        self._has_begun = False
        self._sequences: dict[TransactionPartition, int] = {}
        super().__init__(services)

    # The program

    def _run(self) -> Program:
        try:
            yield from self._init(None)
            while not self.is_stopping:
                yield from self._transaction()
                yield self._rng.random() * 300.0
        except Fatal as error:
            self._checker.note(f"{self.name} ends: {error}")

    def _transaction(self) -> Program:
        """Write one transaction, and commit or abort it."""
        is_new = self._supports_v2 and self.services.feature_level >= EPOCH_PER_TRANSACTION
        if is_new and self.version < EPOCH_PER_TRANSACTION and self._has_begun:
            yield from self._init(self._producer)  # as clients do: the markers of the last transaction may be missing
        self.version, self._has_begun = EPOCH_PER_TRANSACTION if is_new else _OLD_VERSION, True
        self._checker.counts.add("version 2 transactions" if is_new else "older transactions")
        sent = self._begin()
        partitions = self.services.partitions
        chosen = self._rng.sample(partitions, self._rng.randint(1, min(3, len(partitions))))
        wants_commit, is_broken = self._rng.random() < 0.7, False
        try:
            for partition in chosen:
                if not is_new:
                    yield from self._add(partition)
                for _ in range(self._rng.randint(1, 2)):
                    yield from self._produce(partition, sent)
                    if self._rng.random() < 0.2:
                        yield self._rng.random() * self._rng.choice((500.0, 6_000.0))
        except Abortable as error:
            self._checker.note(f"{self.name} aborts {sent.name}: {error}")
            is_broken = True
        yield from self._end(sent, is_commit=wants_commit and not is_broken)
        if is_broken and not is_new:
            yield from self._init(self._producer)

    def _begin(self) -> SentTransaction:
        return self._checker.begin(f"{self.name}/{len(self._checker.transactions)}")

    def _init(self, known: ProducerIdAndEpoch | None) -> Program:
        request = InitRequest(self._timeout_ms, known)
        producer = yield from self._ask(self.services.init_producer(self.transactional_id, request))
        self._adopt(producer)

    def _add(self, partition: TransactionPartition) -> Program:
        yield from self._ask(
            self.services.add_partition(self.transactional_id, self._producer, partition, _OLD_VERSION)
        )

    def _end(self, sent: SentTransaction, *, is_commit: bool) -> Program:
        request = EndRequest(self._producer, is_commit, self.version)
        sent.commit_was_sent = is_commit
        self._checker.note(f"{self.name} ends {sent.name}, commit: {is_commit}")
        try:
            following = yield from self._ask(self.services.end(self.transactional_id, request))
        except Fatal:
            if is_commit:
                self._checker.counts.add("unknown outcomes")
            raise
        sent.is_committed = is_commit
        self._checker.note(f"{self.name} has ended {sent.name}, commit: {is_commit}")
        if self.version >= EPOCH_PER_TRANSACTION:
            self._adopt(following)

    def _adopt(self, producer: ProducerIdAndEpoch) -> None:
        if producer.id != self._producer.id and self._producer.id >= 0:
            self._checker.counts.add("exhausted epochs")
        if producer != self._producer:
            self._sequences.clear()
        self._producer = producer

    def _ask(self, serve: Serve[Any]) -> Program:
        """Send a request to the coordinator until it has a final answer. Raises Fatal."""
        deadline_ms = self.services.now_ms() + _GIVE_UP_MS
        while True:
            answer = yield serve
            if answer is ErrorCode.NONE or not isinstance(answer, ErrorCode):
                return answer
            if answer in _FENCING:
                self._checker.counts.add("fenced producers")
            if answer not in RETRIABLE:
                raise Fatal(answer.name)
            if self.services.now_ms() > deadline_ms:
                raise Fatal("no answer of the coordinator")
            yield _RETRY_MS

    def _produce(self, partition: TransactionPartition, sent: SentTransaction, count: int | None = None) -> Program:
        """Write one batch. Raises Abortable."""
        sequence = self._sequences.get(partition, 0)
        if count is None:
            count = self._rng.randint(1, 2)
        first = sum(each.partition == partition for each in sent.sent)
        records = [SentRecord(partition, first + number) for number in range(count)]
        batch = build_batch(
            [Record(int(self.services.now_ms()), None, f"{sent.name}#{each.number}".encode()) for each in records],
            producer_id=self._producer.id,
            producer_epoch=self._producer.epoch,
            base_sequence=sequence,
            transactional=True,
        )
        request = ProduceRequest(self.transactional_id, self._producer, self.version, batch)
        self._note_sent(sent, records)
        deadline_ms = self.services.now_ms() + self._rng.choice((1_500.0, 3_000.0, _GIVE_UP_MS))
        yield from self._write(self.services.produce(partition, request), deadline_ms)
        self._sequences[partition] = sequence + count

    def _note_sent(self, sent: SentTransaction, records: list[SentRecord]) -> None:
        """Note the records of a batch before its first request."""
        sent.sent.update(records)

    def _write(self, serve: Serve[None], deadline_ms: float) -> Program:
        """Send a request of the transaction until it has succeeded. Raises Abortable and Fatal."""
        while True:
            answer = yield serve
            if answer is None:
                return
            if answer in _FENCING:
                raise Fatal(answer.name)
            if answer not in RETRIABLE or self.services.now_ms() > deadline_ms:
                raise Abortable(answer.name)
            yield _RETRY_MS
