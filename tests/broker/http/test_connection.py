"""Time limits of an HTTP connection, on a transport in memory."""

import asyncio
from collections.abc import Callable

import pytest

from broker.http.connection import BODY_MAX_BYTES, SILENCE_MAX_S, UNSENT_MAX_BYTES, HttpConnection
from broker.http.messages import HttpRequest, HttpResponse, Routes


class Transport(asyncio.Transport):
    """A transport that stores written data."""

    def __init__(self) -> None:
        super().__init__()
        self.sent = b""
        self.ended = ""
        self.unsent = 0

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.sent += data

    def get_write_buffer_size(self) -> int:
        return self.unsent

    def is_closing(self) -> bool:
        return bool(self.ended)

    def close(self) -> None:
        self.ended = self.ended or "closed"

    def abort(self) -> None:
        self.ended = "aborted"

    def pause_reading(self) -> None:
        pass

    def resume_reading(self) -> None:
        pass


class Timers:
    """Timers with real handles that fire on the test's command."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self.handles: list[asyncio.TimerHandle] = []
        self._callbacks: list[Callable[[], object]] = []

    def call_later(self, delay: float, callback: Callable[[], object]) -> asyncio.TimerHandle:
        assert delay == SILENCE_MAX_S
        handle = self._loop.call_later(3600, callback)
        self.handles.append(handle)
        self._callbacks.append(callback)
        return handle

    def ring(self) -> None:
        """Fire all timers."""
        for handle, callback in zip(self.handles, self._callbacks, strict=True):
            if not handle.cancelled():
                callback()


class Stream:
    """A source of events, driven by the test."""

    def __init__(self) -> None:
        self.send: Callable[[bytes], None] = lambda event: None
        self.end: Callable[[], None] = lambda: None
        self.state = "new"

    def open(self, send: Callable[[bytes], None], end: Callable[[], None]) -> None:
        self.send, self.end, self.state = send, end, "open"

    def close(self) -> None:
        self.state = "closed"


class Client:
    """A connection with its transport and timers."""

    def __init__(self) -> None:
        self.transport = Transport()
        self.timers = Timers(asyncio.get_running_loop())
        self.closed: list[asyncio.Transport] = []
        self.stream = Stream()
        routes: Routes = {
            "/": lambda request: HttpResponse(200, b"page"),
            "/later": self._later,
            "/events": lambda request: HttpResponse(200, b"", "text/event-stream", (), self.stream),
            "POST /act": lambda request: HttpResponse(200, request.method.encode() + b" " + request.body),
        }
        self.pending: asyncio.Future[HttpResponse] = asyncio.get_running_loop().create_future()
        self.connection = HttpConnection(self.transport, routes, self.timers, self.closed.append)

    def _later(self, request: HttpRequest) -> "asyncio.Future[HttpResponse]":
        return self.pending

    def send(self, text: str) -> None:
        self.connection.data_received(text.encode())


@pytest.mark.parametrize("sent", ["", "GET / HT", "GET / HTTP/1.1\r\nHost: x\r\n", "GET / HTTP/1.1\r\nHost: x\r\n\r\n"])
async def test_idle_connection_is_closed_in_every_phase(sent: str) -> None:
    client = Client()
    client.send(sent)
    client.timers.ring()
    assert client.transport.ended == "aborted"


async def test_slow_bytes_do_not_extend_the_timeout() -> None:
    client = Client()
    for character in "GET / HTTP/1.1\r\n":
        client.send(character)
    assert len(client.timers.handles) == 1


async def test_slow_handler_is_awaited() -> None:
    client = Client()
    client.send("GET /later HTTP/1.1\r\nHost: x\r\n\r\n")
    client.timers.ring()
    assert client.transport.ended == ""
    client.pending.set_result(HttpResponse(200, b"at last"))
    await asyncio.sleep(0)
    assert client.transport.sent.endswith(b"at last")


async def test_unread_response_ends_the_connection() -> None:
    client = Client()
    client.send("GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
    assert client.transport.ended == "closed"
    client.timers.ring()
    assert client.transport.ended == "aborted"


async def test_half_closed_client_gets_its_response() -> None:
    client = Client()
    client.send("GET /later HTTP/1.1\r\nHost: x\r\n\r\n")
    assert client.connection.eof_received()
    client.pending.set_result(HttpResponse(200, b"at last"))
    await asyncio.sleep(0)
    assert client.transport.sent.endswith(b"at last")
    assert client.transport.ended == "closed"


async def test_closed_connection_cancels_its_handler() -> None:
    client = Client()
    client.send("GET /later HTTP/1.1\r\nHost: x\r\n\r\n")
    client.connection.connection_lost(None)
    assert client.closed == [client.transport]
    assert all(handle.cancelled() for handle in client.timers.handles)
    assert client.pending.cancelled()


async def test_events_are_sent_without_time_limit() -> None:
    client = Client()
    client.send("GET /events HTTP/1.1\r\nHost: x\r\n\r\n")
    assert b"text/event-stream" in client.transport.sent
    client.timers.ring()
    client.stream.send(b"data: 1\n\n")
    assert b"data: 1\n\n" in client.transport.sent
    assert (client.transport.ended, client.connection.is_idle) == ("", False)
    client.connection.connection_lost(None)
    assert client.stream.state == "closed"


async def test_source_ends_its_stream() -> None:
    client = Client()
    client.send("GET /events HTTP/1.1\r\nHost: x\r\n\r\n")
    client.stream.end()
    assert client.transport.sent.endswith(b"0\r\n\r\n")
    assert client.transport.ended == "closed"
    client.stream.send(b"late")
    client.stream.end()
    assert b"late" not in client.transport.sent


async def test_slow_reader_of_events_is_disconnected() -> None:
    client = Client()
    client.send("GET /events HTTP/1.1\r\nHost: x\r\n\r\n")
    client.transport.unsent = UNSENT_MAX_BYTES + 1
    client.stream.send(b"data: 1\n\n")
    assert client.transport.ended == "aborted"


@pytest.mark.parametrize("ends", [True, False])
async def test_client_that_streams_has_nothing_more_to_say(ends: bool) -> None:
    client = Client()
    client.send("GET /events HTTP/1.1\r\nHost: x\r\n\r\n")
    if ends:
        assert not client.connection.eof_received()
    else:
        client.send("GET / HTTP/1.1\r\nHost: x\r\n\r\n")
        assert client.transport.ended == "aborted"


async def test_head_request_for_events_opens_no_stream() -> None:
    client = Client()
    client.send("HEAD /events HTTP/1.1\r\nHost: x\r\n\r\n")
    assert client.stream.state == "new"


async def test_body_of_a_post_reaches_its_handler() -> None:
    client = Client()
    client.send("POST /act HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\nab")
    client.send("cde")
    assert client.transport.sent.endswith(b"POST abcde")
    client.send(f"POST /act HTTP/1.1\r\nHost: x\r\nContent-Length: {BODY_MAX_BYTES + 1}\r\n\r\n")
    client.send("x" * (BODY_MAX_BYTES + 1))
    assert b" 413 " in client.transport.sent
    assert client.transport.ended == "closed"


async def test_connection_is_idle_between_requests_only() -> None:
    client = Client()
    idle = [client.connection.is_idle]
    client.send("GET /later HTTP/1.1\r\nHost: x\r\n\r\n")
    idle.append(client.connection.is_idle)
    client.pending.set_result(HttpResponse(200, b"at last"))
    await asyncio.sleep(0)
    assert [*idle, client.connection.is_idle] == [True, False, True]
