"""A pipeline that consumes, transforms and produces: each transaction holds its output and the offsets of its input."""

from random import Random
from typing import Any, Final

from broker.transactions.state import EPOCH_PER_TRANSACTION
from protocol.errors import ErrorCode
from protocol.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
    TxnOffsetCommitResponse,
)
from protocol.records.batch import iter_headers
from tests.simulation.cluster.coordinators.checker import CoordinatorChecker, PipelineWork
from tests.simulation.cluster.coordinators.offsets import fetch_offset
from tests.simulation.cluster.coordinators.services import WireServices
from tests.simulation.transactions.checker import SentRecord, SentTransaction
from tests.simulation.transactions.clients import Abortable, Fatal, ProducerInstance, Program
from tests.simulation.transactions.network import Answer

_FETCH_VERSION: Final = 16
_COMMIT_VERSION: Final = 5
_FETCH_WAIT_MS: Final = 100
_CHUNK: Final = 5
_TRIES: Final = 10
_RETRY_MS: Final = 60.0
_IDLE_MS: Final = 100.0


class Pipeline(ProducerInstance):
    """One run of the pipeline. A run fences the former ones before it fetches the offsets that they have committed."""

    def __init__(
        self, name: str, services: WireServices, rng: Random, checker: CoordinatorChecker, work: PipelineWork
    ) -> None:
        self._wires = services
        self._work = work
        self._position: int | None = None
        self._chunk: list[int] = []
        super().__init__(name, work.group_id, services, rng, checker, supports_v2=True)

    def _run(self) -> Program:
        self.version = EPOCH_PER_TRANSACTION
        try:
            yield from self._init(None)
            while not self.is_stopping or self._position is None or self._position < self._work.goal():
                yield from self._step()
        except Fatal as error:
            self._checker.note(f"{self.name} ends: {error}")

    def _step(self) -> Program:
        """Process the next records, if there are any."""
        if self._position is None:
            floor = self._work.acknowledged
            offset = yield from fetch_offset(self._wires, self._work.group_id, self._work.source)
            self._work.on_fetched(offset, floor)
            self._position = max(0, offset)
        offsets: list[int] = yield from self._consume(self._position)
        if offsets:
            yield from self._process(self._position, offsets[: self._rng.randint(1, _CHUNK)])
        else:
            yield _IDLE_MS

    def _consume(self, position: int) -> Program:
        """Return the offsets of the next records."""
        topic_id = self._wires.topic_id(self._work.source.topic)

        def make() -> FetchRequest:
            asked = FetchPartition(self._work.source.partition, -1, position, -1, -1, 1_000)
            return FetchRequest(
                max_wait_ms=_FETCH_WAIT_MS,
                min_bytes=1,
                max_bytes=1_000,
                session_epoch=-1,
                topics=[FetchTopic(topic_id=topic_id, partitions=[asked])],
            )

        answer = yield self._wires.request(self._work.source, make, _FETCH_VERSION, _records, may_stray=False)
        if isinstance(answer, ErrorCode):
            return []
        return [
            offset
            for _, header in iter_headers(memoryview(answer))
            for offset in range(header.base_offset, header.next_offset)
            if offset >= position
        ]

    def _process(self, position: int, offsets: list[int]) -> Program:
        sent = self._begin()
        self._chunk, is_commit = offsets, self._rng.random() < 0.9
        try:
            yield from self._produce(self._rng.choice(self.services.partitions), sent, len(offsets))
            if self._rng.random() < 0.2:
                yield self._rng.random() * 500.0
            yield from self._commit_offset(offsets[-1] + 1, sent)
        except Abortable as error:
            self._checker.note(f"{self.name} aborts {sent.name}: {error}")
            is_commit = False
        self._position = None
        if is_commit:
            self._work.on_commit_sent(offsets[-1] + 1)
        yield from self._end(sent, is_commit=is_commit)
        if is_commit:
            self._position = offsets[-1] + 1
            self._work.on_commit_acknowledged(self._position)

    def _note_sent(self, sent: SentTransaction, records: list[SentRecord]) -> None:
        super()._note_sent(sent, records)
        for record, offset in zip(records, self._chunk, strict=True):
            self._work.inputs[sent.name, record] = offset

    def _commit_offset(self, offset: int, sent: SentTransaction) -> Program:
        """Add the offset of the input to the transaction. Raises Abortable and Fatal."""
        group_id, (topic, index) = self._work.group_id, self._work.source
        producer, partition = self._producer, self._wires.group_partition(group_id)
        sent.sent.add(SentRecord(partition, 0))

        def make() -> TxnOffsetCommitRequest:
            committed = TxnOffsetCommitRequestPartition(index, offset, -1, f"{sent.name}#0")
            return TxnOffsetCommitRequest(
                self.transactional_id,
                group_id,
                producer.id,
                producer.epoch,
                topics=[TxnOffsetCommitRequestTopic(topic, [committed])],
            )

        deadline_ms = self.services.now_ms() + _TRIES * _RETRY_MS
        yield from self._write(self._wires.request(partition, make, _COMMIT_VERSION, _committed), deadline_ms)


def _records(response: FetchResponse) -> Answer[Any]:
    code = ErrorCode(response.error_code)
    if code is not ErrorCode.NONE:
        return code
    (data,) = response.responses[0].partitions
    code = ErrorCode(data.error_code)
    return (data.records or b"") if code is ErrorCode.NONE else code


def _committed(response: TxnOffsetCommitResponse) -> Answer[None]:
    code = ErrorCode(response.topics[0].partitions[0].error_code)
    return None if code is ErrorCode.NONE else code
