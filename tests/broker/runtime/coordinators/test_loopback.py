"""Requests of a node to itself (`broker.runtime.coordinators.loopback`)."""

import asyncio

from broker.net.peer import Done, Outcome, PeerUnavailable, SocketAddress
from broker.runtime.coordinators.loopback import LoopbackPeers
from protocol.messages import Message
from protocol.messages.write_txn_markers import WriteTxnMarkersRequest, WriteTxnMarkersResponse

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
