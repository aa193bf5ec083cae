"""TLS on real sockets of the loopback, on both event loops: principals, failing hand-shakes, outgoing connections."""

import asyncio
import logging
import shutil
import ssl
import struct
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
import uvloop

from broker.net.limits import NetLimits
from broker.net.listening import ListenAddress
from broker.net.peer import NetworkClient, PeerUnavailable, SocketAddress, TcpConnect
from broker.net.request import Dispatch, EncodedResponse, Request
from broker.net.server import Server
from broker.net.tls_connect import TlsConnect
from broker.tls.listener import ListenerTls
from protocol.api_keys import ApiKey
from protocol.headers import encode_response
from protocol.messages.api_versions import ApiVersion, ApiVersionsResponse
from protocol.messages.broker_heartbeat import BrokerHeartbeatRequest, BrokerHeartbeatResponse
from tests.broker.net.fakes import Broker, frame
from tests.support.certificates import CertificateAuthority
from tests.support.fakes.clock import ManualClock
from tests.support.tls import client, inline, listener, loaded

Run = Callable[[Coroutine[Any, Any, None]], None]
AUTHORITY = CertificateAuthority()
SERVER = AUTHORITY.issue("broker", "localhost", "127.0.0.1")
ALICE = AUTHORITY.issue("alice", organization="Acme")
MALLORY = CertificateAuthority("Stranger").issue("mallory")
TRUSTING, AS_ALICE = client(inline(AUTHORITY)), client(inline(AUTHORITY, ALICE))
OPEN = listener(inline(AUTHORITY, SERVER))
MUTUAL = listener(inline(AUTHORITY, SERVER, ssl_client_auth="required"))
MB = 1024 * 1024


@pytest.fixture(params=[asyncio.new_event_loop, uvloop.new_event_loop], ids=["asyncio", "uvloop"])
def run(request: pytest.FixtureRequest) -> Iterator[Run]:
    """Run a test's coroutine on one of the loops."""
    with asyncio.Runner(loop_factory=request.param) as runner:
        yield runner.run


class TlsHarness:
    """A running server with a TLS listener, the requests that it got, and its clients."""

    def __init__(self, server: Server, broker: Broker) -> None:
        self.server = server
        self.broker = broker
        self._writers: list[asyncio.StreamWriter] = []

    @property
    def address(self) -> tuple[str, int]:
        return self.server.addresses["SSL"]

    async def connect(
        self, context: ssl.SSLContext | None, host: str = "localhost"
    ) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        name = None if context is None else host
        reader, writer = await asyncio.open_connection(*self.address, ssl=context, server_hostname=name)
        self._writers.append(writer)
        return reader, writer

    async def ask(self, context: ssl.SSLContext, number: int, body: bytes = b"") -> bytes:
        """Send one request over a new connection; return the body of its response."""
        reader, writer = await self.connect(context)
        writer.write(frame(number, body))
        return await read_answer(reader, number)

    async def end(self) -> None:
        for writer in self._writers:
            writer.close()
        await self.server.drain(5.0)


async def read_answer(reader: asyncio.StreamReader, number: int) -> bytes:
    size, answered = struct.unpack(">ii", await reader.readexactly(8))
    assert answered == number
    return await reader.readexactly(size - 4)


async def read_to_end(reader: asyncio.StreamReader) -> bytes:
    try:
        return await reader.read()
    except (ConnectionResetError, ssl.SSLError):
        return b""


@asynccontextmanager
async def serving(
    tls: ListenerTls, limits: NetLimits | None = None, dispatch: Dispatch | None = None
) -> AsyncIterator[TlsHarness]:
    broker = Broker()
    server = Server(
        lambda _connection: dispatch or broker,
        limits or NetLimits(),
        [ListenAddress("SSL", "127.0.0.1", 0, "SSL")],
        clock=ManualClock(),
        tls={"SSL": tls},
    )
    server.open()
    server.start()
    harness = TlsHarness(server, broker)
    try:
        yield harness
    finally:
        await harness.end()


def test_principal_of_a_connection_is_that_of_its_certificate(run: Run) -> None:
    async def scenario() -> None:
        async with serving(MUTUAL) as harness:
            await harness.ask(AS_ALICE, 1)
            info = harness.broker.requests[1].connection
            assert (info.principal, info.security_protocol) == ("User:CN=alice,O=Acme", "SSL")
        stats = harness.server.stats["SSL"]
        assert (stats.connections, stats.authenticated, stats.failed_authentications) == (0, 1, 0)

    run(scenario())


def test_client_without_certificate_is_anonymous_and_rules_map_the_others(run: Run) -> None:
    async def scenario() -> None:
        requested = inline(AUTHORITY, SERVER, ssl_client_auth="requested")
        async with serving(listener(requested, "RULE:^CN=(.*?),O=(.*)$/$1@$2/U")) as harness:
            await harness.ask(TRUSTING, 1)
            await harness.ask(AS_ALICE, 2)
            principals = [harness.broker.requests[number].connection.principal for number in (1, 2)]
            assert principals == ["User:ANONYMOUS", "User:ALICE@ACME"]

    run(scenario())


def test_large_and_pipelined_requests_are_answered(run: Run) -> None:
    async def scenario() -> None:
        body = bytes(range(256)) * (3 * MB // 256)
        async with serving(OPEN) as harness:
            harness.broker.bodies = dict.fromkeys(range(1, 4), body)
            reader, writer = await harness.connect(TRUSTING)
            writer.write(b"".join(frame(number, body if number < 4 else b"") for number in range(1, 300)))
            for number in range(1, 300):
                assert await read_answer(reader, number) == (body if number < 4 else b"")
            assert harness.broker.requests[3].body == body

    run(scenario())


def test_requests_of_a_client_that_says_goodbye_are_answered(run: Run) -> None:
    """A client's close_notify ends its side alone."""

    async def scenario() -> None:
        async with serving(OPEN) as harness:
            harness.broker.later = {1}
            incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
            tls = TRUSTING.wrap_bio(incoming, outgoing, server_hostname="localhost")
            reader, writer = await harness.connect(None)

            async def until_done(step: Callable[[], Any]) -> Any:
                while True:
                    try:
                        return step()
                    except ssl.SSLWantReadError:
                        writer.write(outgoing.read())
                        incoming.write(await reader.read(MB))

            await until_done(tls.do_handshake)
            tls.write(frame(1))
            with pytest.raises(ssl.SSLWantReadError):
                tls.unwrap()
            writer.write(outgoing.read())
            writer.write_eof()
            await harness.broker.has_begun(1)
            await harness.broker.finish(1)
            incoming.write(await reader.read())
            # The session is shut down, so only the number of ciphertext bytes tells of the response.
            assert incoming.pending > len(frame(1))

    run(scenario())


@pytest.mark.parametrize(
    ("sent", "reason"),
    [
        (b"\x00\x00\x00\x10 plain text", "sent bytes that are not TLS to an SSL listener"),
        (b"GET / HTTP/1.0\r\n\r\n", "sent bytes that are not TLS to an SSL listener"),
        (b"\x16\x03\x01\x00\x04\x01\x00\x00\x00 garbage", "failed the TLS hand-shake ("),
        (b"\x16\x03\x01\x02\x00\x01", "did not complete the TLS hand-shake within 100 ms"),
    ],
)
def test_failing_handshake_costs_a_connection_and_one_line(
    run: Run, sent: bytes, reason: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario() -> None:
        async with serving(OPEN, NetLimits(tls_handshake_timeout_ms=100)) as harness:
            reader, writer = await harness.connect(None)
            writer.write(sent)
            await read_to_end(reader)
            await harness.ask(TRUSTING, 1)
        stats = harness.server.stats["SSL"]
        assert (stats.connections, stats.closed, stats.failed_authentications) == (0, 2, 1)

    run(scenario())
    (line,) = [record for record in caplog.records if record.levelno >= logging.WARNING]
    assert str(line.fields["reason"]).startswith(reason)  # type: ignore[attr-defined]
    assert line.exc_info is None


@pytest.mark.skipif(shutil.which("openssl") is None, reason="openssl is not on PATH")
@pytest.mark.parametrize(
    ("options", "typed", "answer"),
    [
        (("-tls1_2",), b"R\n", "no renegotiation"),
        (("-tls1_1", "-cipher", "DEFAULT@SECLEVEL=0"), b"", "alert protocol version"),
        (("-tls1", "-cipher", "DEFAULT@SECLEVEL=0"), b"", "alert protocol version"),
        (("-tls1_2", "-fallback_scsv"), b"", "alert inappropriate fallback"),
    ],
    ids=["renegotiation", "TLS 1.1", "TLS 1.0", "fallback to TLS 1.2"],
)
def test_client_cannot_renegotiate_or_downgrade(run: Run, options: tuple[str, ...], typed: bytes, answer: str) -> None:
    async def scenario() -> None:
        async with serving(OPEN) as harness:
            place = "{}:{}".format(*harness.address)
            client = await asyncio.create_subprocess_exec(
                *("openssl", "s_client", "-connect", place, *options),
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.STDOUT,
            )
            said, _ = await asyncio.wait_for(client.communicate(typed), 20)
            assert answer in said.decode()
            await harness.ask(TRUSTING, 1)

    run(scenario())


def test_clients_with_a_wrong_certificate_are_refused(run: Run, caplog: pytest.LogCaptureFixture) -> None:
    async def scenario() -> None:
        async with serving(MUTUAL) as harness:
            for context in (TRUSTING, client(inline(AUTHORITY, MALLORY))):
                reader, writer = await harness.connect(context)
                writer.write(frame(1))
                assert await read_to_end(reader) == b""
            assert harness.broker.begun == []

    run(scenario())
    reasons = [str(record.fields["reason"]) for record in caplog.records]  # type: ignore[attr-defined]
    assert len(reasons) == 2
    assert "did not return a certificate" in reasons[0]
    assert "certificate verify failed" in reasons[1]


def test_subject_without_rule_is_refused(run: Run, caplog: pytest.LogCaptureFixture) -> None:
    async def scenario() -> None:
        required = inline(AUTHORITY, SERVER, ssl_client_auth="required")
        async with serving(listener(required, "RULE:^OU=(.*)$/$1/")) as harness:
            reader, writer = await harness.connect(AS_ALICE)
            writer.write(frame(1))
            assert await read_to_end(reader) == b""
            assert harness.broker.begun == []

    run(scenario())
    assert [record.fields["reason"] for record in caplog.records] == [  # type: ignore[attr-defined]
        "no rule of ssl.principal.mapping.rules applies to CN=alice,O=Acme"
    ]


def test_probe_of_the_port_costs_no_line(run: Run, caplog: pytest.LogCaptureFixture) -> None:
    async def scenario() -> None:
        async with serving(OPEN) as harness:
            _, writer = await harness.connect(None)
            writer.close()
            await harness.ask(TRUSTING, 1)

    run(scenario())
    assert [record for record in caplog.records if record.levelno >= logging.INFO] == []


def test_drain_gives_up_handshakes(run: Run) -> None:
    async def scenario() -> None:
        async with serving(OPEN) as harness:
            reader, writer = await harness.connect(None)
            writer.write(b"\x16\x03\x01")
            await harness.ask(TRUSTING, 1)
            await harness.server.drain(5.0)
            assert await read_to_end(reader) == b""
        assert harness.server.stats["SSL"].connections == 0

    run(scenario())


def test_replaced_certificates_serve_new_connections_only(run: Run) -> None:
    async def scenario() -> None:
        tls = listener(inline(AUTHORITY, SERVER))
        async with serving(tls) as harness:
            reader, writer = await harness.connect(TRUSTING)
            renewed = AUTHORITY.issue("renewed", "localhost")
            tls.replace(loaded(inline(AUTHORITY, renewed)))
            _, second = await harness.connect(TRUSTING)
            shown = second.get_extra_info("ssl_object").getpeercert(binary_form=True)
            assert shown == renewed.der
            writer.write(frame(1))
            await read_answer(reader, 1)

    run(scenario())


# Outgoing connections.


def heartbeats(request: Request) -> EncodedResponse:
    """Answer as a node that serves heartbeats."""
    header = request.header
    served = [ApiVersion(ApiKey.API_VERSIONS, 0, 4), ApiVersion(ApiKey.BROKER_HEARTBEAT, 0, 1)]
    is_beat = header.api_key == ApiKey.BROKER_HEARTBEAT
    response = BrokerHeartbeatResponse(is_caught_up=True) if is_beat else ApiVersionsResponse(api_keys=served)
    return encode_response(header.api_key, header.api_version, header.correlation_id, response)


@pytest.mark.parametrize(
    ("caller", "host", "failure"),
    [
        (listener(inline(AUTHORITY, ALICE)), "127.0.0.1", None),
        (listener(inline(AUTHORITY, ALICE)), "localhost", None),
        (listener(inline(CertificateAuthority(), ALICE)), "localhost", "certificate verify failed"),
        (listener(inline(AUTHORITY, MALLORY)), "localhost", "the connection"),
        (None, "localhost", "the connection"),
    ],
)
def test_requests_to_other_nodes_use_tls(run: Run, caller: ListenerTls | None, host: str, failure: str | None) -> None:
    async def scenario() -> None:
        loop = asyncio.get_running_loop()
        async with serving(MUTUAL, dispatch=heartbeats) as harness:
            connect = TcpConnect(loop) if caller is None else TlsConnect(loop, caller, timeout_ms=5_000)
            peers = NetworkClient(loop, connect, client_id="1")
            endpoint = SocketAddress(host, harness.address[1])
            asked = peers.request(endpoint, BrokerHeartbeatRequest(), BrokerHeartbeatResponse, timeout_ms=5_000)
            try:
                if failure is None:
                    assert (await asked).is_caught_up
                else:
                    with pytest.raises(PeerUnavailable, match=failure):
                        await asked
            finally:
                peers.close()

    run(scenario())
