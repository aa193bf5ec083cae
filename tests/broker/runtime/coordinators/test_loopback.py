"""Requests of a node to itself (`broker.runtime.coordinators.loopback`)."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from broker.clock import SystemClock
from broker.metadata.image.delta import MetadataDelta
from broker.metadata.image.metadata_image import EMPTY_IMAGE, MetadataImage, Provenance
from broker.net.peer import Done, Outcome, PeerUnavailable, SocketAddress
from broker.runtime.coordinators.loopback import LoopbackPeers
from broker.runtime.coordinators.own_markers import OwnMarkers
from broker.runtime.coordinators.transaction_markers import TransactionMarkers
from broker.transactions.markers import DueMarker, PendingMarkers
from broker.transactions.state import Transaction, TransactionPartition, TransactionState
from protocol.errors import ErrorCode
from protocol.ids import LeaderEpoch
from protocol.messages import Message
from protocol.messages.metadata_records import BrokerEndpoint, PartitionRecord, RegisterBrokerRecord, TopicRecord
from protocol.messages.write_txn_markers import WriteTxnMarkersRequest, WriteTxnMarkersResponse
from protocol.primitives import Uuid
from tests.support.fakes.runtimes import make_runtime

HERE, THERE = SocketAddress("here", 9092), SocketAddress("there", 9092)
TIMEOUT_S = 30


class Connections:
    """Notes what is sent to other nodes."""

    def __init__(self) -> None:
        self.sent: list[SocketAddress] = []
        self.is_closed = False

    def send(
        self,
        endpoint: SocketAddress,
        request: Message,
        done: Done,
        *,
        timeout_ms: float,
        versions: tuple[int, int] | None = None,
    ) -> None:
        self.sent.append(endpoint)

    def close(self) -> None:
        self.is_closed = True


class Node:
    """A node whose answer to itself is a response, an error, or late."""

    def __init__(self, error: Exception | None = None) -> None:
        self.connections = Connections()
        self.error = error
        self.is_answered = asyncio.Event()
        self.outcomes: asyncio.Queue[Outcome] = asyncio.Queue()
        self.peers = LoopbackPeers(asyncio.get_running_loop(), self.connections, lambda to: to == HERE, self.serve)

    async def serve(self, request: Message) -> Message:
        await self.is_answered.wait()
        if self.error is not None:
            raise self.error
        return WriteTxnMarkersResponse()

    def send(self, endpoint: SocketAddress) -> None:
        self.peers.send(endpoint, WriteTxnMarkersRequest(), self.outcomes.put_nowait, timeout_ms=1000)

    async def outcome(self) -> Outcome:
        return await asyncio.wait_for(self.outcomes.get(), TIMEOUT_S)


async def test_own_requests_use_no_connection() -> None:
    node = Node()
    node.send(HERE)
    node.is_answered.set()
    assert isinstance(await node.outcome(), WriteTxnMarkersResponse)
    assert node.connections.sent == []


async def test_answer_without_a_wait_needs_no_task() -> None:
    loop, outcomes = asyncio.get_running_loop(), list[Outcome]()
    peers = LoopbackPeers(loop, Connections(), lambda to: to == HERE, lambda _: WriteTxnMarkersResponse())
    peers.send(HERE, WriteTxnMarkersRequest(), outcomes.append, timeout_ms=1000)
    assert outcomes == []
    await asyncio.sleep(0)
    assert outcomes == [WriteTxnMarkersResponse()]
    assert asyncio.all_tasks() == {asyncio.current_task()}


async def test_failure_without_a_wait_is_an_unavailable_peer() -> None:
    def serve(_: Message) -> Message:
        raise ZeroDivisionError("markers")

    outcomes: list[Outcome] = []
    peers = LoopbackPeers(asyncio.get_running_loop(), Connections(), lambda to: to == HERE, serve)
    peers.send(HERE, WriteTxnMarkersRequest(), outcomes.append, timeout_ms=1000)
    await asyncio.sleep(0)
    assert isinstance(outcomes[0], PeerUnavailable)


async def test_requests_to_others_use_a_connection() -> None:
    node = Node()
    node.send(THERE)
    assert node.connections.sent == [THERE]


async def test_failed_answer_is_an_unavailable_peer() -> None:
    node = Node(ZeroDivisionError("markers"))
    node.send(HERE)
    node.is_answered.set()
    outcome = await node.outcome()
    assert isinstance(outcome, PeerUnavailable)
    assert "markers" in str(outcome)


async def test_closed_node_gives_no_more_answers() -> None:
    node = Node()
    node.send(HERE)
    await asyncio.sleep(0)
    node.peers.close()
    node.is_answered.set()
    await asyncio.gather(*(asyncio.all_tasks() - {asyncio.current_task()}), return_exceptions=True)
    assert node.outcomes.empty()
    assert node.connections.is_closed


@dataclass
class Requests:
    """Notes the requests of a coordinator, with the producers that each names."""

    sent: list[tuple[SocketAddress, list[int]]] = field(default_factory=list)

    def send(
        self,
        endpoint: SocketAddress,
        request: Message,
        done: Done,
        *,
        timeout_ms: float,
        versions: tuple[int, int] | None = None,
    ) -> None:
        assert isinstance(request, WriteTxnMarkersRequest)
        self.sent.append((endpoint, [marker.producer_id for marker in request.markers]))


class NotedMarkers(OwnMarkers):
    """Notes the partitions of markers, and appends none."""

    def __init__(self) -> None:
        self.partitions: list[int] = []

    def write(self, due: DueMarker, done: Callable[[ErrorCode], None]) -> None:
        self.partitions.append(due.partition.partition)


def two_leaders(led_here: Sequence[int] = (1,)) -> MetadataImage:
    """Return a cluster in which broker 1 (here) leads these partitions of the topic `t`, and 2 (there) partition 2."""
    identity = Uuid(b"t" * 16)
    records = [TopicRecord("t", identity)]
    brokers = [
        RegisterBrokerRecord(broker_id=number, end_points=[BrokerEndpoint("L", at.host, at.port)], fenced=False)
        for number, at in ((1, HERE), (2, THERE))
    ]
    partitions = [
        PartitionRecord(partition_id=number, topic_id=identity, replicas=[leader], isr=[leader], leader=leader)
        for number, leader in (*((number, 1) for number in led_here), (2, 2))
    ]
    delta = MetadataDelta(EMPTY_IMAGE)
    delta.replay_all([*brokers, *records, *partitions])
    return delta.apply(Provenance(0, LeaderEpoch(1), 0))


async def test_markers_for_own_partitions_go_at_once_and_others_together() -> None:
    runtime, requests, image = make_runtime(asyncio.get_running_loop(), clock=SystemClock()), Requests(), two_leaders()
    markers = TransactionMarkers(runtime, requests, lambda: image, "L", lambda: 1000, lambda to: to == HERE)
    both = frozenset((TransactionPartition("t", 1), TransactionPartition("t", 2)))
    for producer in (7, 8):
        decided = Transaction(
            producer_id=producer,
            producer_epoch=0,
            timeout_ms=1000,
            state=TransactionState.PREPARE_COMMIT,
            partitions=both,
            last_update_ms=0,
        )
        markers.send(PendingMarkers(f"id-{producer}", decided, 0))
    assert requests.sent == [(HERE, [7]), (HERE, [8])]
    await asyncio.sleep(0)
    assert requests.sent[2:] == [(THERE, [7, 8])]
    runtime.deadlines.close()


async def test_markers_of_many_own_partitions_take_several_turns_of_the_loop() -> None:
    own, led_here = NotedMarkers(), range(1000, 1150)
    runtime, image = make_runtime(asyncio.get_running_loop(), clock=SystemClock()), two_leaders(led_here)
    markers = TransactionMarkers(runtime, Requests(), lambda: image, "L", lambda: 1000, lambda to: to == HERE, own)
    decided = Transaction(
        producer_id=7,
        producer_epoch=0,
        timeout_ms=1000,
        state=TransactionState.PREPARE_COMMIT,
        partitions=frozenset(TransactionPartition("t", number) for number in led_here),
        last_update_ms=0,
    )
    markers.send(PendingMarkers("id", decided, 0))
    appended = []
    for _ in range(3):
        await asyncio.sleep(0)
        appended.append(len(own.partitions))
    assert appended == [64, 128, 150]
    assert own.partitions == list(led_here)
    runtime.deadlines.close()
