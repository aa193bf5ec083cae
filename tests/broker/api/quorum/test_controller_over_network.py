"""A broker and the controller of another node over real sockets: negotiated versions, frames and all codecs."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, cast

from broker.api.pipeline.pipeline import RequestPipelines
from broker.api.serving.dispatch import Dispatcher
from broker.api.serving.forwarding import ForwardingHandler
from broker.net.limits import NetLimits
from broker.net.listening import ListenAddress
from broker.net.peer import NetworkClient, SocketAddress, TcpConnect
from broker.net.request import ConnectionInfo, Request
from broker.net.server import Server
from broker.runtime.controller.channel import ControllerChannel
from broker.runtime.controller.controller_router import ControllerLocation, ControllerRouter
from broker.runtime.controller.driver import ControllerDriver
from broker.runtime.controller.forwarding import Forwarder
from protocol.api_keys import ApiKey
from protocol.headers import RequestHeader
from protocol.messages.allocate_producer_ids import AllocateProducerIdsRequest
from protocol.messages.broker_heartbeat import BrokerHeartbeatRequest
from protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from tests.broker.api.metadata_harness import context, unrestricted_route
from tests.broker.api.serving.test_controller_routes import LISTENER, Node, Observer
from tests.support.fakes.clock import ManualClock

BROKER_ID = 7


class Broker:
    """A node that is never active; `endpoints` names the controllers that it tries in turn."""

    is_active = False

    def __init__(self, *endpoints: SocketAddress) -> None:
        loop = asyncio.get_running_loop()
        self._left = list(endpoints)
        self.peers = NetworkClient(loop, TcpConnect(loop), client_id=str(BROKER_ID))
        self.router = ControllerRouter(BROKER_ID, self, self._locate, self.peers)
        self.channel = ControllerChannel(cast(ControllerDriver, self), self.router)
        self.forwarding = Forwarder(self.router)

    def _locate(self) -> ControllerLocation:
        endpoint = self._left[0]
        if len(self._left) > 1:
            self._left.pop(0)
        return ControllerLocation(1, endpoint)


@asynccontextmanager
async def serving(*nodes: Node) -> AsyncIterator[Broker]:
    """Start listening controllers and a broker that knows their endpoints."""
    servers = []
    for node in nodes:
        dispatch = Dispatcher(node.rows, ManualClock(), Observer())
        server = Server(
            RequestPipelines(dispatch).open, NetLimits(), [ListenAddress(LISTENER, "127.0.0.1", 0)], clock=ManualClock()
        )
        server.open()
        server.start()
        servers.append(server)
    broker = Broker(*(SocketAddress(*server.addresses[LISTENER]) for server in servers))
    try:
        yield broker
    finally:
        broker.peers.close()
        for server in servers:
            await server.drain(5.0)


async def test_broker_registers_over_the_network() -> None:
    node = Node()
    async with serving(node) as broker:
        registered = await broker.channel.register_broker(node.cluster.registration(BROKER_ID))
        epoch = registered.broker_epoch
        beat = BrokerHeartbeatRequest(BROKER_ID, epoch, node.cluster.image.offset)
        assert not (await broker.channel.heartbeat(beat)).is_fenced
        granted = await broker.channel.allocate_producer_ids(AllocateProducerIdsRequest(BROKER_ID, epoch))
        assert granted.producer_id_len == 1_000
    assert [each.id for each in node.cluster.image.brokers.alive()] == [BROKER_ID]


async def test_standby_redirects_the_broker() -> None:
    standby, active = Node(), Node()
    standby.cluster.is_active = False
    async with serving(standby, active) as broker:
        await broker.channel.register_broker(active.cluster.registration(BROKER_ID))
    assert BROKER_ID in active.cluster.image.brokers
    assert BROKER_ID not in standby.cluster.image.brokers


async def test_client_request_travels_in_an_envelope() -> None:
    standby, active = Node(), Node()
    standby.cluster.is_active = False
    active.cluster.start_brokers(1)

    async def never(_request: Any, _context: Any) -> Any:
        raise AssertionError("this node is not active")

    async with serving(standby, active) as broker:
        handler = ForwardingHandler(unrestricted_route(ApiKey.CREATE_TOPICS, never), broker.forwarding)
        request_context = context(7, api_key=ApiKey.CREATE_TOPICS)
        response = await handler(CreateTopicsRequest([CreatableTopic("t", 3, 1)]), request_context)
        assert [(topic.name, topic.num_partitions, topic.error_code) for topic in response.topics] == [("t", 3, 0)]
    assert active.cluster.image.topics.names() == ["t"]


async def test_envelope_names_the_forwarding_broker_and_the_client() -> None:
    node = Node()
    seen: list[ConnectionInfo] = []
    original = next(row for row in node.rows if row.key is ApiKey.ENVELOPE).handler

    def watch(request: Any, arrived: Any) -> Any:
        seen.append(arrived.connection)
        return original(request, arrived)

    node.rows = tuple(unrestricted_route(row.key, watch) if row.key is ApiKey.ENVELOPE else row for row in node.rows)
    async with serving(node) as broker:
        client = ConnectionInfo("c", "PLAINTEXT", "10.1.2.3", 50_000, principal="User:alice")
        header = RequestHeader(ApiKey.CREATE_TOPICS, 7, 1, "app")
        handler = ForwardingHandler(unrestricted_route(ApiKey.CREATE_TOPICS, lambda *_: None), broker.forwarding)
        arrived = context(7)
        arrived.connection, arrived.request = client, Request(header, memoryview(b""), client, 0)
        await handler(CreateTopicsRequest([CreatableTopic("t", 1, 1)], validate_only=True), arrived)
    (forwarder,) = seen
    assert (forwarder.listener, forwarder.peer_host) == (LISTENER, "127.0.0.1")
    assert forwarder.client_software_name == "ottla"
