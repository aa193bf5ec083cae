"""The HTTP server on real sockets, on both event loops."""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
import uvloop

from broker.http.messages import HttpRequest, HttpResponse, Routes
from broker.http.routes import node_routes
from broker.http.server import CONNECTIONS_MAX, HttpServer
from broker.net.listening import ListenError

Run = Callable[[Coroutine[Any, Any, None]], None]


@pytest.fixture(params=[asyncio.new_event_loop, uvloop.new_event_loop], ids=["asyncio", "uvloop"])
def run(request: pytest.FixtureRequest) -> Iterator[Run]:
    """Run a test's coroutine on one of the event loops."""
    with asyncio.Runner(loop_factory=request.param) as runner:
        yield runner.run


@asynccontextmanager
async def serving(routes: Routes) -> AsyncIterator[HttpServer]:
    server = HttpServer(routes, "127.0.0.1", 0)
    server.open()
    await server.start()
    try:
        yield server
    finally:
        server.close()


async def fetch(server: HttpServer, text: str) -> tuple[int, dict[str, str], bytes]:
    """Return status, headers and body of all data until the server closes."""
    reader, writer = await asyncio.open_connection(*server.address)
    writer.write(text.encode())
    answer = await reader.read()
    writer.close()
    head, _, body = answer.partition(b"\r\n\r\n")
    status, *lines = head.decode().split("\r\n")
    headers = {name.lower(): value for name, value in (line.split(": ", 1) for line in lines)}
    return int(status.split()[1]), headers, body


def get(path: str, *, method: str = "GET") -> str:
    return f"{method} {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"


async def page() -> bytes:
    """Render metrics after one iteration of the event loop."""
    await asyncio.sleep(0)
    return b"a_metric 1\n"


def test_serving_node_is_live_and_ready(run: Run) -> None:
    async def scenario() -> None:
        async with serving(node_routes(not_ready_because=lambda: None, render_metrics=page)) as server:
            for path, status in (("/health/live", "live"), ("/health/ready", "ready")):
                code, headers, body = await fetch(server, get(path))
                assert code == 200
                assert headers["content-type"] == "application/json"
                assert json.loads(body) == {"status": status}

    run(scenario())


def test_starting_node_is_live_and_reports_why_it_is_not_ready(run: Run) -> None:
    async def scenario() -> None:
        async with serving(node_routes(not_ready_because=lambda: "loading logs", render_metrics=page)) as server:
            assert (await fetch(server, get("/health/live")))[0] == 200
            code, _, body = await fetch(server, get("/health/ready?verbose"))
            assert code == 503
            assert json.loads(body) == {"status": "not ready", "reason": "loading logs"}

    run(scenario())


def test_metrics_are_served_as_text(run: Run) -> None:
    async def scenario() -> None:
        async with serving(node_routes(not_ready_because=lambda: None, render_metrics=page)) as server:
            code, headers, body = await fetch(server, get("/metrics"))
            assert (code, body) == (200, b"a_metric 1\n")
            assert headers["content-type"].startswith("text/plain; version=0.0.4")

    run(scenario())


def test_requests_on_one_connection_are_answered_in_order(run: Run) -> None:
    async def scenario() -> None:
        async with serving(node_routes(not_ready_because=lambda: None, render_metrics=page)) as server:
            reader, writer = await asyncio.open_connection(*server.address)
            keep = "GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n"
            writer.write((keep + keep + get("/health/live")).encode())
            answer = await reader.read()
            writer.close()
            assert answer.count(b"HTTP/1.1 200") == 3
            assert answer.count(b"a_metric 1") == 2
            assert answer.endswith(b'{"status": "live"}\n')

    run(scenario())


def test_head_request_gets_headers_only(run: Run) -> None:
    async def scenario() -> None:
        async with serving(node_routes(not_ready_because=lambda: None, render_metrics=page)) as server:
            code, headers, body = await fetch(server, get("/metrics", method="HEAD"))
            assert (code, headers["content-length"], body) == (200, "11", b"")

    run(scenario())


def fail(request: HttpRequest) -> HttpResponse:
    raise ZeroDivisionError("bug")


@pytest.mark.parametrize(
    ("text", "status"),
    [
        (get("/nothing"), 404),
        (get("/health/live", method="POST"), 405),
        ("PUT /x HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\nConnection: close\r\n\r\nabc", 405),
        ("POST /x HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\nExpect: 100-continue\r\n\r\n", 405),
        ("POST /x HTTP/1.1\r\nHost: x\r\nContent-Length: 99999\r\n\r\n" + "x" * 99_999, 413),
        ("GET /x HTTP/1.1\r\nHost: x\r\nX: " + "y" * 20_000, 431),
        ("nonsense\r\n\r\n", 400),
        ("GET /health/live HTTP/1.1\r\n\r\n", 400),
        (get("/fails"), 500),
        ("GET /health/live HTTP/1.0\r\n\r\n", 200),
    ],
    ids=["unknown", "method", "body", "continue", "large body", "large head", "nonsense", "no host", "bug", "HTTP/1.0"],
)
def test_unusual_requests_get_an_error_status(run: Run, text: str, status: int) -> None:
    async def scenario() -> None:
        routes = node_routes(not_ready_because=lambda: None, render_metrics=page)
        async with serving({**routes, "/fails": fail}) as server:
            code, headers, body = await fetch(server, text)
            assert code == status
            assert int(headers["content-length"]) == len(body)
            assert ("allow" in headers) == (status == 405)

    run(scenario())


def test_disconnected_client_cancels_its_request(run: Run) -> None:
    async def scenario() -> None:
        begun, cancelled = asyncio.Event(), asyncio.Event()

        async def slow() -> bytes:
            begun.set()
            try:
                await asyncio.get_running_loop().create_future()
            finally:
                cancelled.set()
            return b""

        async with serving(node_routes(not_ready_because=lambda: None, render_metrics=slow)) as server:
            _, writer = await asyncio.open_connection(*server.address)
            writer.write(get("/metrics").encode())
            await begun.wait()
            server.close()
            await cancelled.wait()
            writer.close()

    run(scenario())


def test_port_in_use_is_a_listen_error(run: Run) -> None:
    async def scenario() -> None:
        async with serving({}) as server:
            with pytest.raises(ListenError, match="listener HTTP cannot listen"):
                HttpServer({}, *server.address).open()

    run(scenario())


def test_idle_connections_make_room_for_a_health_check(run: Run) -> None:
    async def scenario() -> None:
        async with serving(node_routes(not_ready_because=lambda: None, render_metrics=page)) as server:
            idle = [await asyncio.open_connection(*server.address) for _ in range(CONNECTIONS_MAX)]
            for _, writer in idle:  # browsers keep connections open after a response
                writer.write(b"GET /health/live HTTP/1.1\r\nHost: x\r\n\r\n")
            for reader, _ in idle:
                await reader.readuntil(b'"live"}\n')
            assert (await fetch(server, get("/health/ready")))[0] == 200
            oldest = idle[0][0]
            with contextlib.suppress(ConnectionResetError):
                assert await oldest.read() == b""
            idle[1][1].write(get("/health/live").encode())
            assert b" 200 " in await idle[1][0].read()
            for _, writer in idle:
                writer.close()

    run(scenario())


def test_busy_connections_are_not_replaced(run: Run) -> None:
    async def scenario() -> None:
        gate, all_begun, begun = asyncio.Event(), asyncio.Event(), list[int]()

        async def slow() -> bytes:
            begun.append(1)
            if len(begun) == CONNECTIONS_MAX:
                all_begun.set()
            await gate.wait()
            return b"done 1\n"

        async with serving(node_routes(not_ready_because=lambda: None, render_metrics=slow)) as server:
            busy = [await asyncio.open_connection(*server.address) for _ in range(CONNECTIONS_MAX)]
            for _, writer in busy:
                writer.write(get("/metrics").encode())
            await all_begun.wait()
            reader, writer = await asyncio.open_connection(*server.address)
            with contextlib.suppress(ConnectionResetError):
                assert await reader.read() == b""
            writer.close()
            gate.set()
            for reader, writer in busy:
                assert (await reader.read()).endswith(b"done 1\n")
                writer.close()

    run(scenario())


def test_closing_server_ends_streams_of_events(run: Run) -> None:
    async def scenario() -> None:
        closed = asyncio.Event()

        class Stream:
            def open(self, send: Callable[[bytes], None], end: Callable[[], None]) -> None:
                send(b"data: 1\n\n")

            def close(self) -> None:
                closed.set()

        routes: Routes = {"/events": lambda request: HttpResponse(200, b"", "text/event-stream", (), Stream())}
        async with serving(routes) as server:
            reader, writer = await asyncio.open_connection(*server.address)
            writer.write(b"GET /events HTTP/1.1\r\nHost: x\r\n\r\n")
            await reader.readuntil(b"data: 1\n\n")
            server.close()
            await closed.wait()
            writer.close()

    run(scenario())
