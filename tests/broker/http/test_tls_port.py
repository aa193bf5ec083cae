"""The TLS side of the HTTP port on real sockets, on both event loops."""

import asyncio
import http.client
import ssl
from collections.abc import Callable, Coroutine, Iterator
from typing import Any

import pytest
import uvloop

from broker.http.access import HttpAccess
from broker.http.messages import HttpResponse
from broker.http.server import CONNECTIONS_MAX, HttpServer
from broker.http.tls_port import PLAIN_RESPONSE
from tests.support.certificates import CertificateAuthority

AUTHORITY = CertificateAuthority()
LARGE = b"x" * 1_000_000
ROUTES = {
    "/large": lambda _request: HttpResponse(200, LARGE),
    "POST /act": lambda request: HttpResponse(200, request.body),
}

Run = Callable[[Coroutine[Any, Any, None]], None]


@pytest.fixture(params=[asyncio.new_event_loop, uvloop.new_event_loop], ids=["asyncio", "uvloop"])
def run(request: pytest.FixtureRequest) -> Iterator[Run]:
    """Run a test's coroutine on one of the event loops."""
    with asyncio.Runner(loop_factory=request.param) as runner:
        yield runner.run


@pytest.fixture(scope="module")
def contexts(tmp_path_factory: pytest.TempPathFactory) -> list[ssl.SSLContext]:
    """Return contexts with two certificates of the same name."""
    found = []
    for number in range(2):
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        file = tmp_path_factory.mktemp("keys") / f"{number}.pem"
        context.load_cert_chain(AUTHORITY.issue("node", "localhost").write_pem(file))
        found.append(context)
    return found


async def open_tls(server: HttpServer) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    trust = ssl.create_default_context(cadata=AUTHORITY.pem)
    return await asyncio.open_connection(*server.address, ssl=trust, server_hostname="localhost")


async def started(access: HttpAccess) -> HttpServer:
    server = HttpServer(ROUTES, "127.0.0.1", 0, access)
    server.open()
    await server.start()
    return server


def test_large_responses_and_bodies_pass(run: Run, contexts: list[ssl.SSLContext]) -> None:
    def ask(port: int) -> tuple[bytes, bytes]:
        """Ask from a thread: uvloop's own TLS client loses data that has arrived before the end of a connection."""
        trust = ssl.create_default_context(cadata=AUTHORITY.pem)
        connection = http.client.HTTPSConnection("localhost", port, context=trust, timeout=60)
        connection.request("POST", "/act", b"b" * 50_000)
        posted = connection.getresponse().read()
        connection.request("GET", "/large", headers={"Connection": "close"})
        large = connection.getresponse().read()
        connection.close()
        return posted, large

    async def test() -> None:
        server = await started(HttpAccess(contexts[0]))
        assert await asyncio.to_thread(ask, server.address[1]) == (b"b" * 50_000, LARGE)
        server.close()

    run(test())


@pytest.mark.parametrize("sent", [b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", b"G", b"\x00\x00\x00\x10"])
def test_client_without_tls_gets_a_sentence(run: Run, contexts: list[ssl.SSLContext], sent: bytes) -> None:
    async def test() -> None:
        server = await started(HttpAccess(contexts[0]))
        reader, writer = await asyncio.open_connection(*server.address)
        writer.write(sent)
        assert await reader.read() == PLAIN_RESPONSE
        writer.close()
        server.close()

    run(test())


def test_broken_hand_shake_closes_the_connection(run: Run, contexts: list[ssl.SSLContext]) -> None:
    async def test() -> None:
        server = await started(HttpAccess(contexts[0]))
        reader, writer = await asyncio.open_connection(*server.address)
        writer.write(b"\x16\x03\x01\x00\x05hello")
        assert not (await reader.read()).startswith(b"HTTP")
        writer.close()
        server.close()

    run(test())


def test_new_connections_take_a_replaced_certificate(run: Run, contexts: list[ssl.SSLContext]) -> None:
    def certificate(writer: asyncio.StreamWriter) -> bytes:
        found = writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
        assert isinstance(found, bytes)
        return found

    async def test() -> None:
        access = HttpAccess(contexts[0])
        server = await started(access)
        _, first = await open_tls(server)
        access.tls = contexts[1]
        _, second = await open_tls(server)
        assert certificate(first) != certificate(second)
        first.close()
        second.close()
        server.close()

    run(test())


def test_silent_connections_keep_nobody_out(run: Run, contexts: list[ssl.SSLContext]) -> None:
    async def test() -> None:
        server = await started(HttpAccess(contexts[0]))
        silent = [await asyncio.open_connection(*server.address) for _ in range(CONNECTIONS_MAX + 1)]
        reader, writer = await open_tls(server)
        writer.write(b"GET /none HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
        assert (await reader.read()).startswith(b"HTTP/1.1 404")
        assert await silent[0][0].read() == b"", "the oldest silent connection has made room"
        writer.close()
        server.close()
        assert await silent[-1][0].read() == b""
        for _, each in silent:
            each.close()

    run(test())
