"""Producers with Kafka's rules for retries and sequences."""

from bisect import insort
from functools import partial
from random import Random
from typing import Final

from broker.runtime.replication.fetch_transport import Unanswered
from protocol.errors import ErrorCode
from protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from protocol.records.batch import iter_headers
from protocol.records.builder import Record, build_batch
from tests.simulation.replication.clients import ACKS_ALL, AGAIN_ELSEWHERE, Client, ClientWitness, Cluster
from tests.simulation.replication.disk import ReplicaName
from tests.simulation.replication.network import Outcome

PRODUCE_VERSION: Final = 12
_IN_FLIGHT: Final = (1, 2, 5)
_WINDOWS: Final = (5, 40)
"""Numbers of batches that producers send after one without an outcome. Java's producers send more than a leader
remembers while a response of the former leader is missing.
"""

_BUMPED: Final = frozenset(
    {
        ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
        ErrorCode.UNKNOWN_PRODUCER_ID,
        ErrorCode.INVALID_PRODUCER_EPOCH,
    }
)


class _Batch:
    """A batch in flight. `sequence` is -1 without idempotence."""

    __slots__ = ("crc", "data", "expires_ms", "number", "sent_to", "sequence", "was_sent")

    def __init__(self, number: int, sequence: int, data: bytes, crc: int, expires_ms: float) -> None:
        self.number = number
        self.sequence = sequence
        self.data = data
        self.crc = crc
        self.expires_ms = expires_ms
        self.was_sent = False
        self.sent_to = -1
        """The broker of the last request."""


class Producer(Client):
    """Sends batches in order, a limited number at a time, each until a response decides its outcome.

    After `delivery_timeout_ms` a batch is abandoned: its outcome, and that of later batches, is unknown, and an
    idempotent producer continues with a new producer epoch. With `sends_ahead`, several batches are in flight before
    the first is acknowledged. Histories with ACLs go without: these producers repeat a batch that ACLs refuse, and real
    clients do not.
    """

    def __init__(
        self,
        cluster: Cluster,
        witness: ClientWitness,
        node_id: int,
        name: ReplicaName,
        random: Random,
        *,
        acks: int,
        timeout_ms: float,
        delivery_timeout_ms: float,
        rate: float,
        sends_ahead: bool = False,
    ) -> None:
        super().__init__(cluster, node_id, name, random, timeout_ms=1.5 * timeout_ms, rate=rate)
        self._sends_ahead = sends_ahead
        self._witness = witness
        self._acks = acks
        self._request_timeout_ms = int(timeout_ms)
        self._delivery_timeout_ms = delivery_timeout_ms
        self._is_idempotent = acks == ACKS_ALL
        self._in_flight_max = random.choice(_IN_FLIGHT)
        self._epoch = 0
        self._sequence = 0
        self._number = 0
        self._queue: list[_Batch] = []
        self._in_flight: dict[int, _Batch] = {}
        self._is_resting = False
        self._is_known = False
        self._mute: int | None = None
        """A broker whose responses are missing; no batch is sent there before its requests have failed."""
        self._window = _WINDOWS[node_id % len(_WINDOWS)]

    @property
    def pending_count(self) -> int:
        """Number of batches without an outcome."""
        return len(self._queue) + len(self._in_flight)

    def produce(self) -> None:
        """Send another batch."""
        count = self.random.choice((1, 1, 2, 4))
        now_ms = self.process.now_ms()
        while True:
            self._number += 1
            data = self._build(count, now_ms)
            header = next(iter_headers(data))[1]
            if self._witness.on_sent(self.name, header.crc, is_idempotent=self._is_idempotent):
                break
        expires_ms = self.process.monotonic_ms() + self._delivery_timeout_ms
        self._queue.append(_Batch(self._number, header.base_sequence, data, header.crc, expires_ms))
        self._sequence += count
        self._send()

    def _build(self, count: int, now_ms: int) -> bytes:
        size = self.random.choice((0, 20, 100))
        records = [
            Record(now_ms, b"%d" % index, b"%d-%d-%d-" % (self.process.node_id, self._number, index) + bytes(size))
            for index in range(count)
        ]
        if not self._is_idempotent:
            return build_batch(records)
        return build_batch(
            records, producer_id=self.process.node_id, producer_epoch=self._epoch, base_sequence=self._sequence
        )

    # Sending

    @property
    def is_idempotent(self) -> bool:
        """Whether batches have sequences."""
        return self._is_idempotent

    def be_patient(self, timeout_ms: float) -> None:
        """Wait `timeout_ms` for a response, send as many batches as Java's producers meanwhile, and retry for long."""
        self._timeout_ms = timeout_ms
        self._delivery_timeout_ms = max(self._delivery_timeout_ms, 10 * timeout_ms)
        self._in_flight_max, self._window = max(_IN_FLIGHT), max(_WINDOWS)

    def send_and_miss_answer(self) -> bool:
        """Send a batch, let the responses of its leader be missing, and look for another leader, as an idle client does
        that renews its metadata. Return False if the producer has other work.
        """
        if self.leader is None or self._queue or self._in_flight or not self._is_known:
            return False
        self._mute = self.leader
        self.produce()
        self.miss_answers(self._mute)
        self.look()
        return True

    def on_leader(self, *, is_new_epoch: bool) -> None:
        if self._mute is not None and self.leader == self._mute and self._in_flight:
            self.look()
            return
        self._mute = None
        self._send()

    def _send(self) -> None:
        if self.leader is None:
            self.look()
            return
        self._expire()
        while self._may_send:
            batch = self._queue.pop(0)
            batch.was_sent, batch.sent_to = True, self.leader
            self._in_flight[batch.number] = batch
            self.ask(
                self.leader,
                self._request(batch),
                PRODUCE_VERSION,
                partial(self._on_answer, batch),
            )

    @property
    def _may_send(self) -> bool:
        """Whether the next batch may be sent.

        A leader that does not know the producer accepts any batch as the first, unless it has refused an earlier one
        with a retriable error. So the first batches all go to one leader.
        """
        limit = self._in_flight_max if self._is_known or self._is_ordered else 1
        if not self._queue or self._is_resting or len(self._in_flight) >= limit:
            return False
        return self._queue[0].number < min(self._in_flight, default=self._queue[0].number) + self._window

    @property
    def _is_ordered(self) -> bool:
        """Whether one leader decides on all batches in flight."""
        return self._sends_ahead and all(each.sent_to == self.leader for each in self._in_flight.values())

    def _request(self, batch: _Batch) -> ProduceRequest:
        data = PartitionProduceData(self.name.partition, bytearray(batch.data))
        return ProduceRequest(
            acks=self._acks,
            timeout_ms=self._request_timeout_ms,
            topic_data=[TopicProduceData(name=self.name.topic, partition_data=[data])],
        )

    def _on_answer(self, batch: _Batch, outcome: Outcome) -> None:
        if self._in_flight.pop(batch.number, None) is None:
            return  # abandoned
        if isinstance(outcome, Unanswered):
            self._again(batch, elsewhere=True)
            return
        (entry,) = outcome.responses[0].partition_responses
        code = ErrorCode(entry.error_code)
        if code in (ErrorCode.NONE, ErrorCode.DUPLICATE_SEQUENCE_NUMBER):
            self._is_known = True
            self._witness.on_acknowledged(self.name, batch.crc, entry.base_offset, self._acks)
            self._send()
        elif code in _BUMPED and self._is_idempotent:
            self._on_sequence_error(batch)
        elif code in AGAIN_ELSEWHERE or code in self.retried:
            self._again(batch, elsewhere=code in AGAIN_ELSEWHERE)
        else:
            raise AssertionError(f"a producer got {code.name}")

    def _on_sequence_error(self, batch: _Batch) -> None:
        """Handle a sequence error, which may only mean reordering while an earlier batch has no outcome."""
        earlier = [each for each in (*self._queue, *self._in_flight.values()) if each.number < batch.number]
        if earlier:
            self._again(batch, elsewhere=False)
        else:
            self._witness.on_sequence_lost(self.name, batch.crc, batch.sent_to)
            self._begin_anew()

    def _again(self, batch: _Batch, *, elsewhere: bool) -> None:
        insort(self._queue, batch, key=lambda each: each.number)
        if elsewhere:
            self.look()
        elif not self._is_resting:
            self._is_resting = True
            self.later(self._wake)

    def _wake(self) -> None:
        self._is_resting = False
        self._send()

    def on_topic_deleted(self) -> None:
        """Abandon what was sent to the deleted topic."""
        super().on_topic_deleted()
        self._begin_anew()

    # Abandoned batches

    def _expire(self) -> None:
        now_ms = self.process.monotonic_ms()
        if any(batch.expires_ms <= now_ms for batch in self._queue):
            if self._is_idempotent:
                self._begin_anew()
            else:
                self._queue = [batch for batch in self._queue if batch.expires_ms > now_ms]

    def _begin_anew(self) -> None:
        """Start a new producer epoch: forget sent batches, and rebuild unsent ones."""
        unsent = sum(not batch.was_sent for batch in self._queue)
        self._queue, self._in_flight = [], {}
        self._epoch, self._sequence, self._is_known = self._epoch + 1, 0, False
        for _ in range(unsent):
            self.process.call_soon(self.produce)
        self.process.call_soon(self._send)
