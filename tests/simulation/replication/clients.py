"""The common part of producers and consumers: they find the leader of their partition and send requests to it.

Each client uses one partition and is a process of its own. A produce without a response may have been executed; a
consumer whose position is gone from the leader's log resets.
"""

from collections.abc import Callable
from random import Random
from typing import Any, Final, Protocol

from broker.net.peer import SocketAddress
from protocol.errors import ErrorCode
from protocol.messages.fetch import PartitionData
from protocol.primitives import Uuid
from protocol.records.batch import BatchHeader
from tests.simulation.replication.broker import LeaderSeen, Whereabouts
from tests.simulation.replication.disk import ReplicaName
from tests.simulation.replication.network import Connection, Outcome, Wires
from tests.simulation.replication.process import TaskProcess
from tests.simulation.world import World

ACKS_ALL: Final = -1
_BACKOFF_MS: Final = (20.0, 120.0)

AGAIN_ELSEWHERE: Final = frozenset(
    {
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.LEADER_NOT_AVAILABLE,
    }
)
AGAIN: Final = frozenset(
    {
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.OFFSET_NOT_AVAILABLE,
    }
)


class Read:
    """The last batch that a consumer read."""

    __slots__ = ("base_offset", "end_offset", "epoch")

    def __init__(self, header: BatchHeader) -> None:
        self.base_offset = header.base_offset
        self.end_offset = header.next_offset
        self.epoch = header.leader_epoch


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

    def on_read(self, consumer: int, name: ReplicaName, header: BatchHeader, *, follows: Read | None) -> None: ...

    def on_follower_read(self, consumer: int, name: ReplicaName, replica: int, data: PartitionData) -> None:
        """Check the records that a follower has sent."""
        ...

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

    retried = AGAIN
    """Errors after which the same request is repeated."""

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
        self.pace = 1.0

    def slow_down(self, pace: float) -> None:
        """Stretch all waits of the client."""
        self.pace = pace

    def ask(self, node_id: int, message: Any, version: int, done: Callable[[Outcome], None]) -> None:
        endpoint = self.cluster.endpoint_of(node_id)
        connection = self._connections.get(endpoint)
        if connection is None:
            connection = self._connections[endpoint] = Connection(
                self.cluster.wires, self.process, endpoint, f"client-{self.process.node_id}", self._timeout_ms
            )
        connection.ask(message, version, done)

    def miss_answers(self, node_id: int) -> None:
        """Hold the responses of a broker for longer than the client waits; the requests take effect."""
        connection = self._connections.get(self.cluster.endpoint_of(node_id))
        if connection is not None:
            connection.stall_answers(self.cluster.world.now_ms + 2 * self._timeout_ms)

    def later(self, action: Callable[[], None], within_ms: tuple[float, float] = _BACKOFF_MS) -> None:
        self.process.call_later(self.pace * self.random.uniform(*within_ms) / 1000.0, action)

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
        """Handle a metadata response; ignore a response older than the known metadata, or about a deleted topic."""
        is_present = isinstance(outcome, LeaderSeen) and outcome.topic_id == self.cluster.topic_id(self.name.topic)
        if is_present and outcome.leader_id >= 0 and outcome.leader_epoch >= self.leader_epoch:
            self._is_looking = False
            before, self.leader_epoch = self.leader_epoch, outcome.leader_epoch
            self.leader = outcome.leader_id
            self.on_leader(is_new_epoch=outcome.leader_epoch > before)
        else:
            self.later(self._ask_around)

    def on_topic_deleted(self) -> None:
        """Look for the leader of the topic that will have the name; its leader epochs begin anew."""
        self.leader_epoch = -1
        self.look()

    def on_leader(self, *, is_new_epoch: bool) -> None:
        """Handle a newly found leader."""
        raise NotImplementedError
