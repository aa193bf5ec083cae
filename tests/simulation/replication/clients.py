"""Producers and consumers with Kafka's rules for retries, sequences, leader epochs and truncation.

Each client uses one partition and is a process of its own. A produce without a response may have been executed; a
consumer whose position is gone from the leader's log resets.
"""

from bisect import insort
from collections.abc import Callable
from functools import partial
from random import Random
from typing import Any, Final, Protocol

from broker.net.peer import SocketAddress
from broker.runtime.replication.fetch_transport import Unanswered
from protocol.errors import ErrorCode
from protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic, PartitionData
from protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from protocol.messages.offset_for_leader_epoch import EpochEndOffset as EpochEndAnswer
from protocol.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from protocol.primitives import Uuid
from protocol.records.batch import BatchHeader, iter_headers
from protocol.records.builder import Record, build_batch
from tests.simulation.replication.broker import LeaderSeen, Whereabouts
from tests.simulation.replication.disk import ReplicaName
from tests.simulation.replication.network import Connection, Outcome, Wires
from tests.simulation.replication.process import TaskProcess
from tests.simulation.world import World

PRODUCE_VERSION: Final = 12
FETCH_VERSION: Final = 16
EPOCH_VERSION: Final = 4
OFFSETS_VERSION: Final = 9
ACKS_ALL: Final = -1
EARLIEST: Final = -2
LATEST: Final = -1
_BACKOFF_MS: Final = (20.0, 120.0)
_FETCH_WAIT_MS: Final = 200
_REMEMBERED: Final = 5
_PAUSE_MS: Final = (1.0, 60.0)

_AGAIN_ELSEWHERE: Final = frozenset(
    {
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.LEADER_NOT_AVAILABLE,
    }
)
_AGAIN: Final = frozenset(
    {
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.OFFSET_NOT_AVAILABLE,
    }
)
_BUMPED: Final = frozenset(
    {
        ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
        ErrorCode.UNKNOWN_PRODUCER_ID,
        ErrorCode.INVALID_PRODUCER_EPOCH,
    }
)


class ClientWitness(Protocol):
    """Checker of the results of clients."""

    def on_sent(self, name: ReplicaName, crc: int, *, is_idempotent: bool) -> bool:
        """Record a batch before its first request; return False if another batch has the same content."""
        ...

    def on_acknowledged(self, name: ReplicaName, crc: int, offset: int, acks: int) -> None:
        """Record the acknowledged offset of a batch (-1: appended at an unknown offset)."""
        ...

    def on_sequence_lost(self, name: ReplicaName, crc: int, leader_id: int) -> None:
        """Check a sequence error: the leader lacks the preceding batch, or has later ones."""
        ...

    def on_read(self, consumer: int, name: ReplicaName, header: BatchHeader, *, follows: "Read | None") -> None: ...

    def on_truncation_noticed(self, consumer: int, name: ReplicaName, position: int, offset: int) -> None: ...

    def on_out_of_range(self, consumer: int, name: ReplicaName, position: int, start: int) -> None: ...


class Cluster(Protocol):
    """The brokers as clients see them."""

    @property
    def world(self) -> World: ...

    @property
    def wires(self) -> Wires: ...

    def endpoint_of(self, node_id: int) -> SocketAddress: ...

    def any_broker(self, random: Random) -> int: ...

    def topic_id(self, topic: str) -> Uuid: ...


class Client:
    """A client that finds the leader of its partition and sends requests to it. `leader` is None while unknown."""

    def __init__(
        self, cluster: Cluster, node_id: int, name: ReplicaName, random: Random, *, timeout_ms: float, rate: float
    ) -> None:
        self.cluster = cluster
        self.name = name
        self.random = random
        self.process = TaskProcess(cluster.world, node_id, rate=rate, wall_offset_ms=1_700_000_000_000)
        self._timeout_ms = timeout_ms
        self._connections: dict[SocketAddress, Connection] = {}
        self._is_looking = False
        self.leader: int | None = None
        self.leader_epoch = -1

    def ask(self, node_id: int, message: Any, version: int, done: Callable[[Outcome], None]) -> None:
        endpoint = self.cluster.endpoint_of(node_id)
        connection = self._connections.get(endpoint)
        if connection is None:
            connection = self._connections[endpoint] = Connection(
                self.cluster.wires, self.process, endpoint, f"client-{self.process.node_id}", self._timeout_ms
            )
        connection.ask(message, version, done)

    def later(self, action: Callable[[], None], within_ms: tuple[float, float] = _BACKOFF_MS) -> None:
        self.process.call_later(self.random.uniform(*within_ms) / 1000.0, action)

    def look(self) -> None:
        """Request the leader from some broker, after a while."""
        self.leader = None
        if not self._is_looking:
            self._is_looking = True
            self.later(self._ask_around)

    def _ask_around(self) -> None:
        asked = self.cluster.any_broker(self.random)
        self.ask(asked, Whereabouts(*self.name), 0, self._on_whereabouts)

    def _on_whereabouts(self, outcome: Outcome) -> None:
        """Handle a metadata response; ignore a response older than the known metadata."""
        if isinstance(outcome, LeaderSeen) and outcome.leader_id >= 0 and outcome.leader_epoch >= self.leader_epoch:
            self._is_looking = False
            before, self.leader_epoch = self.leader_epoch, outcome.leader_epoch
            self.leader = outcome.leader_id
            self.on_leader(is_new_epoch=outcome.leader_epoch > before)
        else:
            self.later(self._ask_around)

    def on_leader(self, *, is_new_epoch: bool) -> None:
        """Handle a newly found leader."""
        raise NotImplementedError


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
    idempotent producer continues with a new producer epoch.
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
    ) -> None:
        super().__init__(cluster, node_id, name, random, timeout_ms=1.5 * timeout_ms, rate=rate)
        self._witness = witness
        self._acks = acks
        self._request_timeout_ms = int(timeout_ms)
        self._delivery_timeout_ms = delivery_timeout_ms
        self._is_idempotent = acks == ACKS_ALL
        self._in_flight_max = random.choice((1, 2, 5))
        self._epoch = 0
        self._sequence = 0
        self._number = 0
        self._queue: list[_Batch] = []
        self._in_flight: dict[int, _Batch] = {}
        self._is_resting = False
        self._is_known = False

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

    def on_leader(self, *, is_new_epoch: bool) -> None:
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
        """Whether the next batch may be sent. Leaders remember five batches, so a batch to be retried must be among
        them; of an unknown producer they accept any batch as the first.
        """
        limit = self._in_flight_max if self._is_known else 1
        if not self._queue or self._is_resting or len(self._in_flight) >= limit:
            return False
        return self._queue[0].number < min(self._in_flight, default=self._queue[0].number) + _REMEMBERED

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
        elif code in _AGAIN_ELSEWHERE or code in _AGAIN:
            self._again(batch, elsewhere=code in _AGAIN_ELSEWHERE)
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


class Read:
    """The last batch that a consumer read."""

    __slots__ = ("base_offset", "end_offset", "epoch")

    def __init__(self, header: BatchHeader) -> None:
        self.base_offset = header.base_offset
        self.end_offset = header.next_offset
        self.epoch = header.leader_epoch


class Consumer(Client):
    """Reads from its position, and validates the position with each new leader epoch (KIP-320). Its reset policy is
    `earliest`.
    """

    def __init__(
        self,
        cluster: Cluster,
        witness: ClientWitness,
        node_id: int,
        name: ReplicaName,
        random: Random,
        *,
        timeout_ms: float,
        rate: float,
    ) -> None:
        super().__init__(cluster, node_id, name, random, timeout_ms=timeout_ms + _FETCH_WAIT_MS, rate=rate)
        self._witness = witness
        self.position = 0
        self._last_epoch = -1
        self._is_in_doubt = False
        self._read: list[Read] = []
        self.is_closed = False

    def start(self) -> None:
        self.look()

    def close(self) -> None:
        self.is_closed = True

    @property
    def _id(self) -> int:
        return self.process.node_id

    def on_leader(self, *, is_new_epoch: bool) -> None:
        if (is_new_epoch or self._is_in_doubt) and self._last_epoch >= 0:
            self._validate()
        else:
            self._fetch()

    # Truncation

    def _validate(self) -> None:
        asked = OffsetForLeaderPartition(self.name.partition, self.leader_epoch, self._last_epoch)
        request = OffsetForLeaderEpochRequest(
            replica_id=-1, topics=[OffsetForLeaderTopic(topic=self.name.topic, partitions=[asked])]
        )
        assert self.leader is not None
        self.ask(self.leader, request, EPOCH_VERSION, self._on_validated)

    def _on_validated(self, outcome: Outcome) -> None:
        if isinstance(outcome, Unanswered):
            self._find_anew()
            return
        (answer,) = outcome.topics[0].partitions
        assert isinstance(answer, EpochEndAnswer)
        if answer.error_code:
            self._find_anew()
            return
        self._is_in_doubt = False
        if answer.end_offset < 0:
            self._reset()
        elif answer.end_offset < self.position:
            self._go_back(answer.leader_epoch, answer.end_offset)
            self._fetch()
        else:
            self._fetch()

    def _find_anew(self) -> None:
        """Find the leader again, and validate the position even if the leader is the same."""
        self._is_in_doubt = True
        self.look()

    def _go_back(self, epoch: int, offset: int) -> None:
        """Reset to `offset`, where the logs diverge, or below if the records before it have a later epoch."""
        self._witness.on_truncation_noticed(self._id, self.name, self.position, offset)
        self._read = [read for read in self._read if read.end_offset <= offset and read.epoch <= epoch]
        self.position = offset
        self._last_epoch = epoch if offset else -1

    # Fetching

    def _fetch(self) -> None:
        if self.leader is None or self.is_closed:
            return
        asked = FetchPartition(self.name.partition, self.leader_epoch, self.position, self._last_epoch, -1, 10_000)
        topic = FetchTopic(topic_id=self.cluster.topic_id(self.name.topic), partitions=[asked])
        request = FetchRequest(
            max_wait_ms=_FETCH_WAIT_MS, min_bytes=1, max_bytes=10_000, session_epoch=-1, topics=[topic]
        )
        self.ask(self.leader, request, FETCH_VERSION, self._on_fetched)

    def _on_fetched(self, outcome: Outcome) -> None:
        if isinstance(outcome, Unanswered):
            self.look()
            return
        (data,) = outcome.responses[0].partitions
        code = ErrorCode(data.error_code)
        if code is ErrorCode.OFFSET_OUT_OF_RANGE:
            self._reset()
        elif code in _AGAIN_ELSEWHERE:
            self._find_anew()
        elif code in _AGAIN:
            self.later(self._fetch)
        elif code:
            raise AssertionError(f"a consumer got {code.name}")
        else:
            self._take(data)

    def _take(self, data: PartitionData) -> None:
        if data.diverging_epoch.epoch >= 0:
            self._go_back(data.diverging_epoch.epoch, min(data.diverging_epoch.end_offset, self.position))
        elif data.records is not None:
            for _, header in iter_headers(memoryview(data.records)):
                if header.next_offset > self.position:
                    self._take_batch(header)
        self.later(self._fetch, _PAUSE_MS)

    def _take_batch(self, header: BatchHeader) -> None:
        last = self._read[-1] if self._read and self._read[-1].end_offset == header.base_offset else None
        self._witness.on_read(self._id, self.name, header, follows=last)
        self._read.append(Read(header))
        self.position, self._last_epoch = header.next_offset, header.leader_epoch

    # Out of range

    def _reset(self) -> None:
        asked = ListOffsetsPartition(self.name.partition, self.leader_epoch, EARLIEST)
        request = ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsTopic(name=self.name.topic, partitions=[asked])])
        if self.leader is None:
            self.look()
            return
        self.ask(self.leader, request, OFFSETS_VERSION, self._on_start_known)

    def _on_start_known(self, outcome: Outcome) -> None:
        if isinstance(outcome, Unanswered):
            self.look()
            return
        (answer,) = outcome.topics[0].partitions
        assert isinstance(answer, ListOffsetsPartitionResponse)
        if answer.error_code:
            self._find_anew()
            return
        self._witness.on_out_of_range(self._id, self.name, self.position, answer.offset)
        self._read.clear()
        self.position, self._last_epoch = answer.offset, -1
        self._fetch()
