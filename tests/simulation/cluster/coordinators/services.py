"""The cluster as the processes of transactional applications see it: requests over the simulated connections."""

from collections.abc import Callable, Sequence
from functools import partial
from random import Random
from typing import TYPE_CHECKING, Any, Final

from broker.coordination.partitioner import partition_for
from broker.metadata.image.features import TRANSACTION_VERSION
from broker.metadata.image.topic_names import GROUP_OFFSETS_TOPIC, TRANSACTION_STATE_TOPIC
from broker.net.peer import SocketAddress
from broker.runtime.replication.fetch_transport import Unanswered
from broker.transactions.end import EndRequest
from broker.transactions.init_producer import InitRequest
from broker.transactions.state import ProducerIdAndEpoch, TransactionPartition
from protocol.errors import ErrorCode
from protocol.messages import Message
from protocol.messages.end_txn import EndTxnRequest, EndTxnResponse
from protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from protocol.messages.produce import PartitionProduceData, ProduceResponse, TopicProduceData
from protocol.messages.produce import ProduceRequest as ProduceMessage
from protocol.primitives import Uuid
from tests.simulation.replication.broker import LeaderSeen, Whereabouts
from tests.simulation.replication.clients import ACKS_ALL, AGAIN, AGAIN_ELSEWHERE
from tests.simulation.replication.network import Connection, Outcome
from tests.simulation.replication.process import TaskProcess
from tests.simulation.transactions.network import Answer, Serve
from tests.simulation.transactions.partitions import ProduceRequest

if TYPE_CHECKING:
    from tests.simulation.cluster.coordinators.applications import Applications
    from tests.simulation.cluster.simulation import ClusterSimulator

_TIMEOUT_MS: Final = 2_500.0
_STRAY_MS: Final = 5_000.0
_INIT_VERSION: Final = 5
_END_VERSION: Final = 5
_PRODUCE_VERSION: Final = 12
_AGAIN: Final = (
    AGAIN
    | AGAIN_ELSEWHERE
    | {
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.UNSTABLE_OFFSET_COMMIT,
    }
)
Make = Callable[[], Message]
"""Builds the request, once for each time that it is sent: a broker writes offsets into its records."""
Read = Callable[[Any], Answer[Any]]
"""Converts a response to an answer."""
Respond = Callable[[Answer[Any]], None]


class WireServices:
    """Implements TransactionServices for one process of an application."""

    def __init__(self, simulation: "ClusterSimulator", node_id: int, random: Random) -> None:
        self._simulation = simulation
        self._random = random
        self.process = TaskProcess(simulation.world, node_id, wall_offset_ms=1_700_000_000_000)
        self._leaders: dict[TransactionPartition, int] = {}
        self._connections: dict[SocketAddress, Connection] = {}
        self.stray_share = 0.0
        """Share of requests that arrive once more, much later."""

    @property
    def feature_level(self) -> int:
        return self._simulation.checker.committed.image.features.levels.get(TRANSACTION_VERSION, 0)

    @property
    def partitions(self) -> Sequence[TransactionPartition]:
        return self._applications.outputs

    @property
    def _applications(self) -> "Applications":
        applications = self._simulation.applications
        assert applications is not None
        return applications

    again = _AGAIN
    """Errors after which clients ask again, perhaps another broker."""

    def now_ms(self) -> float:
        return self._simulation.world.now_ms

    def later(self, delay_ms: float, action: Callable[..., None], *args: object) -> None:
        self.process.call_later(delay_ms / 1000.0, action, *args)

    def send(self, serve: Serve[Any], done: Callable[[Answer[Any]], None], *, version: int) -> None:
        serve(done)

    def topic_id(self, topic: str) -> Uuid:
        return self._simulation.topic_id(topic)

    # Requests of transactions

    def init_producer(self, transactional_id: str, request: InitRequest) -> Serve[ProducerIdAndEpoch]:
        known = ProducerIdAndEpoch(-1, -1) if request.known is None else request.known
        return self._to_coordinator(
            transactional_id,
            lambda: InitProducerIdRequest(transactional_id, request.timeout_ms, known.id, known.epoch),
            _INIT_VERSION,
        )

    def add_partition(
        self, transactional_id: str, producer: ProducerIdAndEpoch, partition: TransactionPartition, version: int
    ) -> Serve[None]:
        raise AssertionError("the clients know transaction version 2 only")

    def end(self, transactional_id: str, request: EndRequest) -> Serve[ProducerIdAndEpoch]:
        producer, is_commit = request.producer, request.is_commit
        return self._to_coordinator(
            transactional_id,
            lambda: EndTxnRequest(transactional_id, producer.id, producer.epoch, is_commit),
            _END_VERSION,
        )

    def produce(self, partition: TransactionPartition, request: ProduceRequest) -> Serve[None]:
        def make() -> ProduceMessage:
            data = PartitionProduceData(partition.partition, bytearray(request.batch))
            return ProduceMessage(
                transactional_id=request.transactional_id,
                acks=ACKS_ALL,
                timeout_ms=int(_TIMEOUT_MS),
                topic_data=[TopicProduceData(name=partition.topic, partition_data=[data])],
            )

        return self.request(partition, make, _PRODUCE_VERSION, _produced)

    def _to_coordinator(self, transactional_id: str, make: Make, version: int) -> Serve[ProducerIdAndEpoch]:
        return self.request(self._partition_of(TRANSACTION_STATE_TOPIC, transactional_id), make, version, _producer)

    def group_partition(self, group_id: str) -> TransactionPartition:
        """Return the partition of `__consumer_offsets` of a group."""
        return self._partition_of(GROUP_OFFSETS_TOPIC, group_id)

    def _partition_of(self, topic_name: str, key: str) -> TransactionPartition:
        topic = self._simulation.checker.committed.image.topics.by_name(topic_name)
        assert topic is not None
        return TransactionPartition(topic_name, partition_for(key, topic.partition_count))

    def forget(self, partition: TransactionPartition) -> None:
        """Look the leader of a partition up again."""
        self._leaders.pop(partition, None)

    # Requests to leaders

    def request(
        self, partition: TransactionPartition, make: Make, version: int, read: Read, *, may_stray: bool = True
    ) -> Serve[Any]:
        """Return a request to the leader of a partition. REQUEST_TIMED_OUT stands for every error after which clients
        try again.
        """

        def serve(respond: Respond) -> None:
            leader = self._leaders.get(partition)
            if leader is None:
                asked = self._simulation.any_broker(self._random)
                self._ask(asked, Whereabouts(*partition), 0, partial(found, respond))
                return
            self._ask(leader, make(), version, partial(answered, respond))
            if may_stray and self._random.random() < self.stray_share:
                self._send_stray(leader, make(), version)

        def found(respond: Respond, outcome: Outcome) -> None:
            if isinstance(outcome, LeaderSeen) and outcome.leader_id >= 0:
                self._leaders[partition] = outcome.leader_id
                serve(respond)
            else:
                respond(ErrorCode.REQUEST_TIMED_OUT)

        def answered(respond: Respond, outcome: Outcome) -> None:
            answer = ErrorCode.NETWORK_EXCEPTION if isinstance(outcome, Unanswered) else read(outcome)
            assert answer is not ErrorCode.UNKNOWN_SERVER_ERROR, f"a broker failed to serve {make()}"
            if isinstance(answer, ErrorCode) and answer in _AGAIN:
                self._leaders.pop(partition, None)
                answer = ErrorCode.REQUEST_TIMED_OUT
            respond(answer)

        return serve

    def _ask(self, node_id: int, message: Any, version: int, done: Callable[[Outcome], None]) -> None:
        endpoint = self._simulation.endpoint_of(node_id)
        connection = self._connections.get(endpoint)
        if connection is None:
            connection = self._connections[endpoint] = self._connect(endpoint)
        connection.ask(message, version, done)

    def _connect(self, endpoint: SocketAddress) -> Connection:
        name = f"client-{self.process.node_id}"
        return Connection(self._simulation.wires, self.process, endpoint, name, _TIMEOUT_MS)

    def _send_stray(self, node_id: int, message: Message, version: int) -> None:
        """Let the request arrive once more on a connection of its own, as one that the client has given up."""
        self._applications.note_stray()
        connection = self._connect(self._simulation.endpoint_of(node_id))
        connection.ask(message, version, _ignore)
        connection.stall(self.now_ms() + self._random.random() * _STRAY_MS)


def _producer(response: InitProducerIdResponse | EndTxnResponse) -> Answer[ProducerIdAndEpoch]:
    code = ErrorCode(response.error_code)
    return ProducerIdAndEpoch(response.producer_id, response.producer_epoch) if code is ErrorCode.NONE else code


def _produced(response: ProduceResponse) -> Answer[None]:
    code = ErrorCode(response.responses[0].partition_responses[0].error_code)
    return None if code in (ErrorCode.NONE, ErrorCode.DUPLICATE_SEQUENCE_NUMBER) else code


def _ignore(_outcome: Outcome) -> None:
    """Ignore the response."""
