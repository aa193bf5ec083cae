"""The server on real sockets of the loopback, on both event loops."""

import asyncio
import socket
import struct
import sys
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import asynccontextmanager, closing
from typing import Any

import pytest
import uvloop

from broker.net import openings
from broker.net.limits import ListenerLimits, NetLimits
from broker.net.listening import ListenAddress, ListenError
from broker.net.request import ConnectionInfo, Dispatch
from broker.net.server import Server
from broker.rates.windowed_rate import QuotaWindows
from tests.broker.net.fakes import Broker, frame
from tests.support.fakes.clock import ManualClock

Run = Callable[[Coroutine[Any, Any, None]], None]
PLAINTEXT = ListenAddress("PLAINTEXT", "127.0.0.1", 0)
INTERNAL = ListenAddress("INTERNAL", "127.0.0.1", 0)
MB = 1024 * 1024
WRITELINES_NEVER_PAUSES = (3, 12) <= sys.version_info < (3, 12, 9) or (3, 13) <= sys.version_info < (3, 13, 2)
"""CVE-2024-12254: asyncio's transport ignores its write limit in `writelines`; uvloop, on which nodes run, does not."""


@pytest.fixture(params=[asyncio.new_event_loop, uvloop.new_event_loop], ids=["asyncio", "uvloop"])
def run(request: pytest.FixtureRequest) -> Iterator[Run]:
    """Run a test's coroutine on one of the loops."""
    with asyncio.Runner(loop_factory=request.param) as runner:
        yield runner.run


class Client:
    """A client of the server under test."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self.writer = writer

    def send(self, *frames: bytes) -> None:
        """Send frames in one write."""
        self.writer.writelines(frames)

    async def answer(self) -> tuple[int, bytes]:
        """Return number and body of the next response."""
        size, number = struct.unpack(">ii", await self._reader.readexactly(8))
        return number, await self._reader.readexactly(size - 4)

    async def ask(self, number: int, body: bytes = b"") -> int:
        """Send one request and return its response."""
        self.send(frame(number, body))
        return (await self.answer())[0]

    async def until_closed(self) -> bytes:
        """Return all bytes until the server closes."""
        try:
            return await self._reader.read()
        except ConnectionResetError:
            return b""


async def turn_of_the_loop() -> None:
    """Run everything that is ready."""
    await asyncio.sleep(0)


class ConnectionHarness:
    """A running server and its clients."""

    def __init__(self, server: Server, clock: ManualClock) -> None:
        self.server = server
        self.clock = clock
        self._clients: list[Client] = []

    async def connect(self, listener: str = "PLAINTEXT", **options: Any) -> Client:
        """Connect a client; the kernel has accepted the connection, the server perhaps not yet."""
        client = Client(*await asyncio.open_connection(*self.server.addresses[listener], **options))
        self._clients.append(client)
        return client

    @property
    def connection_count(self) -> int:
        """The number of open connections on all listeners, as metrics have it."""
        return sum(stats.connections for stats in self.server.stats.values())

    async def end(self) -> None:
        """Close all clients, then the server."""
        for client in self._clients:
            client.writer.close()
        await self.server.drain(5.0)


def _fresh_broker(_connection: ConnectionInfo) -> Broker:
    return Broker()


@asynccontextmanager
async def serving(
    dispatch: Dispatch, limits: NetLimits | None = None, *listeners: ListenAddress, protected: str | None = None
) -> AsyncIterator[ConnectionHarness]:
    """A server on free ports."""
    clock = ManualClock()
    server = Server(
        lambda _connection: dispatch,
        limits or NetLimits(),
        listeners or [PLAINTEXT],
        clock=clock,
        protected_listener=protected,
    )
    server.open()
    server.start()
    house = ConnectionHarness(server, clock)
    try:
        yield house
    finally:
        await house.end()


def test_requests_are_answered_and_counted(run: Run) -> None:
    async def scenario() -> None:
        broker = Broker()
        async with serving(broker) as house:
            client = await house.connect()
            client.send(frame(1), frame(2))
            assert [await client.answer(), await client.answer()] == [(1, b""), (2, b"")]
            assert house.connection_count == 1
            host, port = house.server.addresses["PLAINTEXT"]
            peer_port = client.writer.get_extra_info("sockname")[1]
            info = broker.requests[1].connection
            assert info.connection_id == f"{host}:{port}-127.0.0.1:{peer_port}-1"
            assert (info.listener, info.peer_host, info.peer_port) == ("PLAINTEXT", "127.0.0.1", peer_port)
        stats = house.server.stats["PLAINTEXT"]
        assert (stats.connections, stats.accepted, stats.closed, stats.requests) == (0, 1, 1, 2)

    run(scenario())


def test_listeners_that_start_later_let_clients_wait(run: Run) -> None:
    async def scenario() -> None:
        late = ListenAddress("LATE", "127.0.0.1", 0, "PLAINTEXT")
        server = Server(_fresh_broker, NetLimits(), [PLAINTEXT, late], clock=ManualClock())
        server.open()
        server.start({"PLAINTEXT"})
        waiting = await asyncio.open_connection(*server.addresses["LATE"])
        served = await asyncio.open_connection(*server.addresses["PLAINTEXT"])
        for _reader, writer in (waiting, served):
            writer.write(frame(1))
        assert await served[0].readexactly(4)
        assert server.stats["LATE"].accepted == 0
        server.start()
        assert await waiting[0].readexactly(4)
        for _reader, writer in (waiting, served):
            writer.close()
        await server.drain(5.0)

    run(scenario())


def test_large_requests_and_responses_arrive_whole(run: Run) -> None:
    async def scenario() -> None:
        body = bytes(range(256)) * (3 * MB // 256)
        broker = Broker()
        broker.bodies = dict.fromkeys(range(4), body)
        async with serving(broker) as house:
            client = await house.connect()
            client.send(*(frame(number, body) for number in range(4)))
            for number in range(4):
                assert await client.answer() == (number, body)
                assert broker.requests[number].body == body

    run(scenario())


def test_port_in_use_leaves_no_listener_open(run: Run) -> None:
    async def scenario() -> None:
        async with serving(Broker()) as house:
            port = house.server.addresses["PLAINTEXT"][1]
            other = Server(
                _fresh_broker, NetLimits(), [INTERNAL, ListenAddress("PLAINTEXT", "127.0.0.1", port)], clock=house.clock
            )
            with pytest.raises(ListenError, match="in use"):
                other.open()
            assert other.addresses == {}

    run(scenario())


def test_clients_that_connect_before_start_wait(run: Run) -> None:
    async def scenario() -> None:
        server = Server(_fresh_broker, NetLimits(), [PLAINTEXT], clock=ManualClock())
        server.open()
        client = Client(*await asyncio.open_connection(*server.addresses["PLAINTEXT"]))
        client.send(frame(1))
        server.start()
        assert await client.answer() == (1, b"")
        client.writer.close()
        await server.drain(5.0)

    run(scenario())


def test_surplus_connections_of_an_address_are_closed_at_once(run: Run) -> None:
    async def scenario() -> None:
        async with serving(Broker(), NetLimits(max_connections_per_ip=1)) as house:
            first = await house.connect()
            assert await first.ask(1) == 1
            second = await house.connect()
            assert await second.until_closed() == b""
            assert await first.ask(2) == 2
            assert house.server.stats["PLAINTEXT"].refused_per_ip == 1

    run(scenario())


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
def test_override_allows_a_host_more_connections(run: Run, host: str) -> None:
    async def scenario() -> None:
        limits = NetLimits(max_connections_per_ip=1, max_connections_per_ip_overrides={host: 2})
        async with serving(Broker(), limits) as house:
            clients = [await house.connect(), await house.connect()]
            assert [await client.ask(1) for client in clients] == [1, 1]

    run(scenario())


def test_full_server_leaves_new_connections_waiting(run: Run) -> None:
    async def scenario() -> None:
        async with serving(Broker(), NetLimits(max_connections=1)) as house:
            first = await house.connect()
            assert await first.ask(1) == 1
            second = await house.connect()
            second.send(frame(2))
            assert await first.ask(3) == 3
            assert house.connection_count == 1
            first.writer.close()
            assert await second.answer() == (2, b"")

    run(scenario())


def test_storm_of_clients_is_served_while_accepting_pauses(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(openings, "OPENED_PER_TURN", 1)
    monkeypatch.setattr(openings, "WAITING_MAX", 2)

    async def scenario() -> None:
        async with serving(Broker()) as house:
            address = house.server.addresses["PLAINTEXT"]
            sockets = [socket.create_connection(address) for _ in range(20)]
            clients = [Client(*await asyncio.open_connection(sock=opened)) for opened in sockets]
            assert [await client.ask(number) for number, client in enumerate(clients)] == list(range(20))
            assert house.server.stats["PLAINTEXT"].accepted == 20
            for client in clients:
                client.writer.close()

    run(scenario())


def test_drain_ends_while_sockets_wait_for_their_set_up(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(openings, "OPENED_PER_TURN", 1)

    async def scenario() -> None:
        async with serving(Broker()) as house:
            sockets = [socket.create_connection(house.server.addresses["PLAINTEXT"]) for _ in range(10)]
            while not house.server.stats["PLAINTEXT"].accepted:
                await turn_of_the_loop()
            await house.server.drain(5.0)
            assert house.connection_count == 0
            for opened in sockets:
                opened.close()

    run(scenario())


def test_connection_on_the_protected_listener_evicts_the_longest_idle_other(run: Run) -> None:
    async def scenario() -> None:
        limits = NetLimits(max_connections=2)
        async with serving(Broker(), limits, PLAINTEXT, INTERNAL, protected="INTERNAL") as house:
            silent, active = await house.connect(), await house.connect()
            assert await silent.ask(1) == 1
            assert await active.ask(2) == 2
            peer = await house.connect("INTERNAL")
            assert await peer.ask(3) == 3
            assert await silent.until_closed() == b""
            assert await active.ask(4) == 4
            assert house.server.stats["PLAINTEXT"].evicted == 1

    run(scenario())


def test_simultaneous_protected_connections_evict_one_connection_each(run: Run) -> None:
    async def scenario() -> None:
        limits = NetLimits(max_connections=2)
        async with serving(Broker(), limits, PLAINTEXT, INTERNAL, protected="INTERNAL") as house:
            others = [await house.connect(), await house.connect()]
            for other in others:
                assert await other.ask(1) == 1
            sockets = [socket.create_connection(house.server.addresses["INTERNAL"]) for _ in others]
            assert [await other.until_closed() for other in others] == [b"", b""]
            assert house.server.stats["PLAINTEXT"].evicted == 2
            for opened in sockets:
                opened.close()

    run(scenario())


def test_listener_above_its_connection_rate_pauses(run: Run) -> None:
    async def scenario() -> None:
        own = ListenerLimits(max_connection_creation_rate=1)
        limits = NetLimits(by_listener={"PLAINTEXT": own}, quota_windows=QuotaWindows(1, 20))
        async with serving(Broker(), limits) as house:
            clients = [await house.connect() for _ in range(3)]
            assert [await client.ask(1) for client in clients] == [1, 1, 1]
            assert house.server.rates.listener("PLAINTEXT").throttles.average(house.clock.monotonic_ms()) == 20

    run(scenario())


def test_connection_of_an_address_above_its_rate_is_closed_after_a_pause(run: Run) -> None:
    async def scenario() -> None:
        async with serving(Broker(), NetLimits(quota_windows=QuotaWindows(2, 20))) as house:
            house.server.rates.set_host_limit("127.0.0.1", 50)
            first, second = await house.connect(), await house.connect()
            assert await first.ask(1) == 1
            assert await second.until_closed() == b""
            assert house.server.stats["PLAINTEXT"].throttled_per_ip == 1
            assert house.connection_count == 1

    run(scenario())


def test_listener_has_a_limit_of_its_own(run: Run) -> None:
    async def scenario() -> None:
        limits = NetLimits(by_listener={"PLAINTEXT": ListenerLimits(max_connections=1)})
        async with serving(Broker(), limits, PLAINTEXT, INTERNAL) as house:
            first, second, other = await house.connect(), await house.connect(), await house.connect("INTERNAL")
            second.send(frame(2))
            assert await other.ask(1) == 1
            assert await first.ask(3) == 3
            assert house.server.stats["PLAINTEXT"].connections == 1
            first.writer.close()
            assert await second.answer() == (2, b"")

    run(scenario())


def test_lower_limit_closes_the_longest_idle_connections(run: Run) -> None:
    async def scenario() -> None:
        async with serving(Broker()) as house:
            silent, active = await house.connect(), await house.connect()
            assert await silent.ask(1) == 1
            assert await active.ask(2) == 2
            house.server.set_limits(NetLimits(max_connections=1), {})
            assert await silent.until_closed() == b""
            assert await active.ask(3) == 3

    run(scenario())


def test_idle_connections_are_closed(run: Run) -> None:
    async def scenario() -> None:
        async with serving(Broker(), NetLimits(connections_max_idle_ms=1000)) as house:
            silent, active = await house.connect(), await house.connect()
            assert await silent.ask(1) == 1
            house.clock.advance_ms(900)
            assert await active.ask(2) == 2
            house.clock.advance_ms(200)
            house.server.close_idle()
            assert await silent.until_closed() == b""
            assert await active.ask(3) == 3
            assert house.server.stats["PLAINTEXT"].expired_idle == 1

    run(scenario())


def test_connections_that_do_not_authenticate_in_time_are_closed(run: Run) -> None:
    infos: list[ConnectionInfo] = []
    broker = Broker()

    def open_pipeline(info: ConnectionInfo) -> Dispatch:
        info.is_authenticated = False
        infos.append(info)
        return broker

    async def scenario() -> None:
        clock = ManualClock()
        server = Server(open_pipeline, NetLimits(authentication_timeout_ms=1000), [PLAINTEXT], clock=clock)
        server.open()
        server.start()
        house = ConnectionHarness(server, clock)
        try:
            busy, known = await house.connect(), await house.connect()
            assert [await busy.ask(1), await known.ask(1)] == [1, 1]
            infos[1].authenticated()
            clock.advance_ms(900)
            assert await busy.ask(2) == 2
            clock.advance_ms(200)
            server.close_idle()
            assert await busy.until_closed() == b""
            assert await known.ask(3) == 3
            assert server.stats["PLAINTEXT"].expired_unauthenticated == 1
        finally:
            await house.end()

    run(scenario())


def test_server_checks_for_idle_connections_by_itself(run: Run) -> None:
    async def scenario() -> None:
        async with serving(Broker(), NetLimits(connections_max_idle_ms=10)) as house:
            silent = await house.connect()
            assert await silent.ask(1) == 1
            house.clock.advance_ms(11)
            assert await silent.until_closed() == b""

    run(scenario())


@pytest.mark.parametrize(
    "nonsense",
    [b"GET / HTTP/1.1\r\n\r\n", b"\x16\x03\x01\x02\x00\x01\x00", b"\xff" * 100, struct.pack(">i", 2**31 - 1)],
    ids=["http", "tls", "negative", "2 GiB"],
)
def test_malformed_input_ends_only_its_connection(run: Run, nonsense: bytes) -> None:
    async def scenario() -> None:
        async with serving(Broker()) as house:
            hostile, other = await house.connect(), await house.connect()
            hostile.send(nonsense)
            assert await hostile.until_closed() == b""
            assert await other.ask(1) == 1

    run(scenario())


def test_client_that_never_reads_occupies_little_memory(run: Run, request: pytest.FixtureRequest) -> None:
    if WRITELINES_NEVER_PAUSES and request.node.callspec.id == "asyncio":
        pytest.skip("this Python has CVE-2024-12254")

    async def scenario() -> None:
        broker = Broker()
        broker.bodies = dict.fromkeys(range(1000), bytes(MB))
        async with serving(broker, NetLimits(socket_send_buffer_bytes=100_000)) as house:
            greedy_socket = socket.socket()
            greedy_socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            greedy_socket.connect(house.server.addresses["PLAINTEXT"])
            with closing(greedy_socket):
                greedy_socket.sendall(b"".join(frame(number) for number in range(1000)))
                other = await house.connect()
                for number in range(2000, 2050):
                    assert await other.ask(number) == number
                assert sum(number < 1000 for number in broker.begun) <= 2

    run(scenario())


def test_client_lost_in_the_middle_of_a_frame_leaves_nothing(run: Run) -> None:
    async def scenario() -> None:
        async with serving(Broker()) as house:
            client, other = await house.connect(), await house.connect()
            assert await client.ask(1) == 1
            client.send(frame(2, bytes(MB))[: MB // 2])
            await client.writer.drain()
            client.writer.transport.abort()
            number = 10
            while house.connection_count > 1:
                number += 1
                assert await other.ask(number) == number
            assert house.server.backlog.bytes == 0

    run(scenario())


def test_drain_refuses_new_connections_answers_begun_requests_and_closes(run: Run) -> None:
    async def scenario() -> None:
        broker = Broker()
        broker.later = {2}
        async with serving(broker) as house:
            idle, waiting = await house.connect(), await house.connect()
            address = house.server.addresses["PLAINTEXT"]
            assert await idle.ask(1) == 1
            waiting.send(frame(2), frame(3))
            await broker.has_begun(2)
            drained = asyncio.ensure_future(house.server.drain(5.0))
            assert await idle.until_closed() == b""
            assert not drained.done()
            with pytest.raises(OSError, match=r"refused|Connect call failed"):
                await asyncio.open_connection(*address)
            await broker.finish(2)
            assert await waiting.answer() == (2, b"")
            assert await waiting.until_closed() == b""
            await drained
            assert broker.begun == [1, 2]
            assert house.connection_count == 0

    run(scenario())


def test_drain_includes_a_connection_that_is_being_opened(run: Run, caplog: pytest.LogCaptureFixture) -> None:
    async def scenario() -> None:
        async with serving(Broker()) as house:
            with socket.create_connection(house.server.addresses["PLAINTEXT"]):
                while not house.connection_count:
                    await turn_of_the_loop()
                await house.server.drain(5.0)
        assert caplog.records == []

    run(scenario())


def test_drain_aborts_connections_at_its_timeout(run: Run) -> None:
    async def scenario() -> None:
        broker = Broker()
        broker.later = {1}
        async with serving(broker) as house:
            client = await house.connect()
            client.send(frame(1))
            await broker.has_begun(1)
            await house.server.drain(0)
            assert await client.until_closed() == b""
            assert broker.futures[1].cancelled()
            assert house.connection_count == 0

    run(scenario())
