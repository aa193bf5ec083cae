"""A partition with the product's log, verification of transactions, and a model of replication."""

from collections.abc import Callable
from random import Random
from typing import Final

from broker.runtime.partitions.transaction_marker import EPOCH_BUMP_FROM
from broker.transactions.state import ProducerIdAndEpoch, TransactionPartition
from protocol.errors import ErrorCode
from protocol.ids import LeaderEpoch
from protocol.records.batch import parse_header
from protocol.records.control import end_transaction_marker
from storage.config import LogConfig
from storage.errors import InvalidRecords
from storage.log import Log
from storage.producer_state import EndTransactionMarker, Origin
from storage.verification import Guard
from tests.simulation.transactions.checker import TransactionChecker
from tests.simulation.transactions.network import Answer
from tests.simulation.world import World
from tests.support.fakes.memory_files import MemoryFileSystem

Verify = Callable[["ProduceRequest", TransactionPartition, Callable[[Answer[None]], None]], None]
"""Asks the coordinator whether a partition belongs to the ongoing transaction; version 2 adds it."""

_REPLICATION_MS: Final = 15.0
_STALL_MS: Final = 4_000.0
_CONFIG: Final = LogConfig(segment_bytes=4_096, verify_transactions=True)
_ALL: Final = 1 << 30


class ProduceRequest:
    """A transactional batch for one partition. `version` is the transaction version of the client."""

    def __init__(self, transactional_id: str, producer: ProducerIdAndEpoch, version: int, batch: bytes) -> None:
        self.transactional_id = transactional_id
        self.producer = producer
        self.version = version
        self.batch = batch


class DataPartition:
    """One partition at its present leader."""

    def __init__(
        self, name: TransactionPartition, world: World, rng: Random, checker: TransactionChecker, verify: Verify
    ) -> None:
        self.name = name
        self.leader_epoch = 0
        self.slow_commits = 0.0
        self._world = world
        self._rng = rng
        self._checker = checker
        self._verify = verify
        self._waiting: list[tuple[int, Callable[[Answer[None]], None]]] = []
        self.log = self._new_log()

    def _new_log(self) -> Log:
        log = Log.open(
            MemoryFileSystem(), f"{self.name.topic}-{self.name.partition}", _CONFIG, now_ms=0, clean_shutdown=True
        )
        return log

    @property
    def is_stable(self) -> bool:
        """Whether everything in the log is decided and replicated."""
        return self.log.last_stable_offset == self.log.log_end_offset

    # Requests

    def produce(self, request: ProduceRequest, respond: Callable[[Answer[None]], None]) -> None:
        """Append a batch, after the coordinator has confirmed the first one of a transaction; acks=all."""
        header = parse_header(request.batch)
        try:
            guard = self.log.start_verification(
                header.producer_id, header.producer_epoch, header.base_sequence, int(self._world.now_ms)
            )
        except InvalidRecords as error:
            respond(ErrorCode[error.kind.name])
            return
        if guard is None:
            self._append(request.batch, None, respond)
            return
        epoch = self.leader_epoch

        def on_verified(answer: Answer[None]) -> None:
            if self.leader_epoch != epoch:
                respond(ErrorCode.NOT_LEADER_OR_FOLLOWER)
            elif answer is None:
                self._append(request.batch, guard, respond)
            else:
                respond(answer)

        self._verify(request, self.name, on_verified)

    def _append(self, batch: bytes, guard: Guard | None, respond: Callable[[Answer[None]], None]) -> None:
        header = parse_header(batch)
        try:
            info = self.log.append_as_leader(
                bytearray(batch), LeaderEpoch(self.leader_epoch), now_ms=int(self._world.now_ms), guard=guard
            )
        except InvalidRecords as error:
            respond(ErrorCode[error.kind.name])
            return
        if not info.duplicate:
            self._checker.on_data(self.name, header.producer_id, info.first_offset)
        self._acknowledge(info.last_offset + 1, respond)

    def write_marker(
        self,
        producer: ProducerIdAndEpoch,
        marker: EndTransactionMarker,
        version: int,
        respond: Callable[[Answer[None]], None],
    ) -> None:
        """Append a marker; acks=all."""
        now_ms = int(self._world.now_ms)
        batch = end_transaction_marker(marker.type, producer.id, producer.epoch, marker.coordinator_epoch, now_ms)
        try:
            if version >= EPOCH_BUMP_FROM:
                self.log.producers.check_raised_epoch(producer.id, producer.epoch)
            info = self.log.append_as_leader(
                bytearray(batch), LeaderEpoch(self.leader_epoch), now_ms=now_ms, origin=Origin.COORDINATOR
            )
        except InvalidRecords as error:
            respond(ErrorCode[error.kind.name])
            return
        self._checker.on_marker(self.name, producer.id, info.first_offset)
        self._acknowledge(info.last_offset + 1, respond)

    # Replication

    def _acknowledge(self, end: int, respond: Callable[[Answer[None]], None]) -> None:
        if end <= self.log.high_watermark:
            respond(None)
            return
        self._waiting.append((end, respond))
        delay_ms = 1.0 + self._rng.random() * _REPLICATION_MS
        if self._rng.random() < self.slow_commits:
            delay_ms += self._rng.random() * _STALL_MS
        self._world.schedule(delay_ms, self._replicate, self.leader_epoch, self.log.log_end_offset)

    def _replicate(self, leader_epoch: int, end: int) -> None:
        if leader_epoch != self.leader_epoch:
            return
        self.log.advance_high_watermark(end)
        self._checker.on_high_watermark(self.name, self.log)
        replicated = [respond for waiting_end, respond in self._waiting if waiting_end <= self.log.high_watermark]
        self._waiting = [each for each in self._waiting if each[0] > self.log.high_watermark]
        for respond in replicated:
            respond(None)

    def change_leader(self) -> None:
        """Elect another leader, with the replicated records and perhaps more. Its log follows the former leader's."""
        former, high_watermark = self.log, self.log.high_watermark
        kept = self._rng.randint(high_watermark, former.log_end_offset)
        self.log = self._new_log()
        offset = former.log_start_offset
        while offset < kept:
            found = former.read(offset, _ALL, kept)
            if not found.data:
                break
            self.log.append_as_follower(bytes(found.data), now_ms=int(self._world.now_ms))
            offset = self.log.log_end_offset
        self.log.advance_high_watermark(high_watermark)
        self.leader_epoch += 1
        waiting, self._waiting = self._waiting, []
        for _, respond in waiting:
            respond(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        self._checker.on_truncation(self.name, self.log.log_end_offset)
        self._world.schedule(_REPLICATION_MS, self._replicate, self.leader_epoch, self.log.log_end_offset)
