"""Time limits of an HTTP connection, on a transport in memory."""

import asyncio
from collections.abc import Callable

import pytest

from broker.http.connection import SILENCE_MAX_S, HttpConnection
from broker.http.messages import HttpRequest, HttpResponse, Routes


class Transport(asyncio.Transport):
    """A transport that stores written data."""

    def __init__(self) -> None:
        super().__init__()
        self.sent = b""
        self.ended = ""

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.sent += data

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


class Client:
    """A connection with its transport and timers."""

    def __init__(self) -> None:
        self.transport = Transport()
        self.timers = Timers(asyncio.get_running_loop())
        self.closed: list[asyncio.Transport] = []
        routes: Routes = {"/": lambda request: HttpResponse(200, b"page"), "/later": self._later}
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
