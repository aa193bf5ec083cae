"""An HTTP connection: h11 parses the bytes, a route makes the response, and time and size are limited.

The response of a handler is complete, or a stream of server-sent events that ends with the connection.

Knows the routes, not the code behind them. The server imports this file when the first client connects: h11 and its
imports cost more start-up time than the rest of the server.
"""

import asyncio
from collections.abc import Awaitable, Callable
from email.utils import formatdate
from http import HTTPStatus
from typing import Protocol, TypeAlias

import h11

from broker.http.access import HttpAccess
from broker.http.guard import CHALLENGE
from broker.http.messages import EventSource, HttpRequest, HttpResponse, Routes, find_handler
from broker.logs import EventLog

HEAD_MAX_BYTES = 16 * 1024  # request line and headers together: twice the most that browsers and scrapers send
BODY_MAX_BYTES = 64 * 1024  # the body of a GET is skipped, to keep the connection
UNSENT_MAX_BYTES = 1024 * 1024  # events that a slow client has not received yet; beyond it is disconnected
SILENCE_MAX_S = 30.0  # for a complete request, for a response to be received, and for the next request

_METHODS = (b"GET", b"HEAD", b"POST")

OnClosed: TypeAlias = Callable[[asyncio.Transport], object]

log = EventLog("broker.http")


class HttpTimers(Protocol):
    """The part of an event loop that sets timers."""

    def call_later(self, delay: float, callback: Callable[[], object], /) -> asyncio.TimerHandle:
        """Call `callback` after `delay` seconds."""
        ...


class HttpConnection(asyncio.Protocol):
    """The protocol of an accepted connection. Calls `on_closed` once, when the transport is closed."""

    def __init__(
        self,
        transport: asyncio.Transport,
        routes: Routes,
        timers: HttpTimers,
        on_closed: OnClosed,
        access: HttpAccess | None = None,
    ) -> None:
        self._transport = transport
        self._routes = routes
        self._timers = timers
        self._on_closed = on_closed
        self._access = HttpAccess() if access is None else access
        self._http = h11.Connection(h11.SERVER, HEAD_MAX_BYTES)
        self._request: h11.Request | None = None
        self._body: list[bytes] = []
        self._body_bytes = 0
        self._events: EventSource | None = None
        self._handling: asyncio.Future[HttpResponse] | None = None
        self._deadline = timers.call_later(SILENCE_MAX_S, transport.abort)

    @property
    def is_idle(self) -> bool:
        """Whether no response is due: the connection may be closed to make room for another one."""
        return self._request is None and self._handling is None and self._events is None

    def data_received(self, data: bytes) -> None:
        """Parse bytes of the client."""
        if self._events is not None:  # a client that streams has nothing more to say
            self._transport.abort()
            return
        self._http.receive_data(data)
        if self._handling is None:
            self._advance()

    def eof_received(self) -> bool:
        """Keep the connection open: the client sends no more, but may still expect its response."""
        self._http.receive_data(b"")
        if self._events is not None:
            return False
        if self._handling is None:
            self._advance()
        return not self._transport.is_closing()

    def connection_lost(self, exc: Exception | None) -> None:
        """Release the connection after the transport has closed."""
        self._deadline.cancel()
        if self._handling is not None:
            self._handling.cancel()
        if self._events is not None:
            self._events.close()
        self._on_closed(self._transport)

    def _advance(self) -> None:
        """Process received events, up to a request whose response is not ready."""
        while not self._transport.is_closing() and self._handling is None and self._events is None:
            try:
                event = self._http.next_event()
            except h11.RemoteProtocolError as error:
                self._refuse(error.error_status_hint)
                return
            if event is h11.NEED_DATA or event is h11.PAUSED:
                return
            self._on_event(event)

    def _on_event(self, event: object) -> None:
        match event:
            case h11.Request():
                self._request = event
                self._body, self._body_bytes = [], 0
                if self._http.they_are_waiting_for_100_continue:
                    self._respond()  # without the body, which a client sends unasked unless it is large
            case h11.Data():
                self._body_bytes += len(event.data)
                if self._body_bytes > BODY_MAX_BYTES:
                    self._refuse(HTTPStatus.REQUEST_ENTITY_TOO_LARGE)
                elif self._request is not None and self._request.method == b"POST":
                    self._body.append(bytes(event.data))
            case h11.EndOfMessage():
                self._respond()
            case h11.ConnectionClosed():
                self._transport.close()

    def _respond(self) -> None:
        assert self._request is not None
        response = self._handle(self._request)
        if isinstance(response, HttpResponse):
            self._send(response)
            return
        self._deadline.cancel()
        self._transport.pause_reading()  # a pipelining client waits in its socket buffer
        self._handling = asyncio.ensure_future(response)
        self._handling.add_done_callback(self._on_handled)

    def _handle(self, request: h11.Request) -> HttpResponse | Awaitable[HttpResponse]:
        if request.method not in _METHODS:
            return _plain(HTTPStatus.METHOD_NOT_ALLOWED)
        path, _, query = request.target.decode("ascii").partition("?")
        if not path.startswith("/"):  # the absolute form, which proxies use
            return _plain(HTTPStatus.NOT_FOUND)
        authorization = _authorization(request)
        guard = self._access.guard
        if guard is not None and not guard.admits(path, authorization):
            return _plain(HTTPStatus.UNAUTHORIZED)
        method = request.method.decode("ascii")
        handler = find_handler(self._routes, method, path)
        if handler is None:
            return _plain(HTTPStatus.METHOD_NOT_ALLOWED if method == "POST" else HTTPStatus.NOT_FOUND)
        try:
            return handler(self._parsed(request, method, path, query, authorization))
        except Exception as error:  # noqa: BLE001  an error in a handler is logged and answered with 500
            return _fault(error)

    def _parsed(
        self, request: h11.Request, method: str, path: str, query: str, authorization: bytes | None
    ) -> HttpRequest:
        guard = self._access.guard
        user = None if guard is None else guard.user_of(authorization)
        headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in request.headers}
        peer = self._transport.get_extra_info("peername")
        peer_host = str(peer[0]) if isinstance(peer, tuple) else ""
        return HttpRequest(path, query, method, headers, b"".join(self._body), user, peer_host)

    def _on_handled(self, handling: "asyncio.Future[HttpResponse]") -> None:
        if handling.cancelled():  # cancelled by the end of the connection or of the node
            self._transport.abort()
            return
        self._handling = None
        error = handling.exception()
        self._send(handling.result() if error is None else _fault(error))
        if not self._transport.is_closing():
            self._transport.resume_reading()
            self._advance()

    def _send(self, response: HttpResponse) -> None:
        is_head = self._request is not None and self._request.method == b"HEAD"
        headers = _headers(response)
        head = h11.Response(status_code=response.status, headers=headers, reason=HTTPStatus(response.status).phrase)
        if response.events is not None and not is_head:
            self._stream(head, response.events)
            return
        body = [] if is_head else [h11.Data(data=response.body)]
        parts = [self._http.send(event) or b"" for event in (head, *body, h11.EndOfMessage())]
        self._transport.write(b"".join(parts))  # one write: otherwise Nagle's algorithm delays the second part
        self._end_cycle()

    def _stream(self, head: h11.Response, events: EventSource) -> None:
        """Send events until the client goes. The end of the client's requests closes the connection."""
        self._deadline.cancel()
        self._events = events
        self._transport.write(self._http.send(head) or b"")
        events.open(self._send_event, self._end_events)

    def _send_event(self, event: bytes) -> None:
        if self._transport.is_closing():
            return
        if self._transport.get_write_buffer_size() > UNSENT_MAX_BYTES:
            self._transport.abort()
            return
        self._transport.write(self._http.send(h11.Data(data=event)) or b"")

    def _end_events(self) -> None:
        if not self._transport.is_closing():
            self._transport.write(self._http.send(h11.EndOfMessage()) or b"")
            self._transport.close()

    def _end_cycle(self) -> None:
        self._request = None
        self._deadline.cancel()
        self._deadline = self._timers.call_later(SILENCE_MAX_S, self._transport.abort)
        if self._http.our_state is h11.DONE and self._http.their_state is h11.DONE:
            self._http.start_next_cycle()
        else:
            self._transport.close()

    def _refuse(self, status: int) -> None:
        """Send an error for an unparsable request, if that is still possible, and close."""
        if self._http.our_state in (h11.IDLE, h11.SEND_RESPONSE):
            self._send(_plain(HTTPStatus(status)))
        self._transport.close()


def _headers(response: HttpResponse) -> list[tuple[str, str]]:
    headers = [("Content-Type", response.content_type), ("Date", formatdate(usegmt=True)), *response.headers]
    given = {name for name, _ in headers}
    if response.events is None and response.status != HTTPStatus.NOT_MODIFIED:
        headers.append(("Content-Length", str(len(response.body))))
    defaults = {"Cache-Control": "no-store", "X-Content-Type-Options": "nosniff"}
    headers += [(name, value) for name, value in defaults.items() if name not in given]
    if response.status == HTTPStatus.METHOD_NOT_ALLOWED:
        headers.append(("Allow", "GET, HEAD"))
    if response.status == HTTPStatus.UNAUTHORIZED:
        headers.append(("WWW-Authenticate", CHALLENGE))
    return headers


def _authorization(request: h11.Request) -> bytes | None:
    """Return the Authorization header; None unless there is exactly one."""
    found = [value for name, value in request.headers if name == b"authorization"]
    return found[0] if len(found) == 1 else None


def _plain(status: HTTPStatus) -> HttpResponse:
    return HttpResponse(status, f"{status.value} {status.phrase}\n".encode())


def _fault(error: BaseException) -> HttpResponse:
    log.error("HTTP handler failed", error)
    return _plain(HTTPStatus.INTERNAL_SERVER_ERROR)
