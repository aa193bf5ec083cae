"""Requests, connections and responses as the network and the request pipeline exchange them.

This file owns the seam between connections and request handling: one `Request` per frame, one `ConnectionInfo` per
connection. It knows no socket and no API.
"""

from builtins import memoryview
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Protocol, TypeAlias

from broker.net.request_trace import RequestTrace
from protocol.headers import RequestHeader
from protocol.primitives import Buffer

ANONYMOUS = "User:ANONYMOUS"
UNKNOWN_SOFTWARE = "unknown"
RAW_TOKEN_VERSION = -1
"""The version of SaslAuthenticate in the header of a request that is a raw token."""
_NOTHING = memoryview(b"")

EncodedResponse: TypeAlias = list[Buffer] | None
"""The chunks of a whole response frame with its size prefix; None where the protocol has no response (acks=0)."""


class CloseConnection(Exception):
    """A violation of the protocol that has no error response: answer earlier requests, then close the connection.

    The argument is the reason for the log, without a final stop.
    """


class LoginRefused(CloseConnection):
    """A failed authentication: send the last response, then close the connection."""

    def __init__(self, reason: str, last_response: EncodedResponse = None) -> None:
        super().__init__(reason)
        self.last_response = last_response


@dataclass(slots=True, eq=False)
class ConnectionInfo:
    """Facts about a connection. Handlers read them; ApiVersions and authentication write some.

    `security_protocol` is that of the listener. `principal` is known before the first request on PLAINTEXT and SSL
    listeners: `User:` and the name that the certificate gives, or ANONYMOUS. `connection_id` is
    `local-host:port-peer-host:port-number`, as in Kafka's logs. `mute_ms` is for quotas: a handler that sets it has its
    response sent at once, and the connection begins its next request that many milliseconds later (KIP-219). The
    connection sets it back to 0.

    On SASL listeners `is_authenticated` is False before the first successful exchange, and frames are small until then.
    With `takes_raw_tokens` a frame is the token of a mechanism without any header (SaslHandshake, version 0).
    """

    connection_id: str
    listener: str
    peer_host: str
    peer_port: int
    security_protocol: str = "PLAINTEXT"
    principal: str = ANONYMOUS
    client_software_name: str = UNKNOWN_SOFTWARE
    client_software_version: str = UNKNOWN_SOFTWARE
    mute_ms: float = 0.0
    muted_from_ms: float = 0.0  # the last mute, on the monotonic clock
    muted_until_ms: float = 0.0
    is_authenticated: bool = True
    is_token_authenticated: bool = False
    takes_raw_tokens: bool = False
    _on_authenticated: Callable[[bool], None] | None = None
    _on_closed: list[Callable[[], None]] | None = None  # None for most connections

    def when_closed(self, callback: Callable[[], None]) -> None:
        """Call `callback` once the connection is gone."""
        self._on_closed = [*(self._on_closed or ()), callback]

    def when_authenticated(self, callback: Callable[[bool], None]) -> None:
        """Call `callback` at each successful authentication, with whether it is the first."""
        self._on_authenticated = callback

    def authenticated(self) -> None:
        """Note a successful authentication by SASL."""
        is_first, self.is_authenticated = not self.is_authenticated, True
        if self._on_authenticated is not None:
            self._on_authenticated(is_first)

    def closed(self) -> None:
        """Call the callbacks: the connection is gone."""
        callbacks, self._on_closed = self._on_closed or (), None
        for callback in callbacks:
            callback()


class RequestOwner(Protocol):
    """The connection, as its requests see it."""

    def on_effects_applied(self, request: "Request") -> None:
        """Note that later requests of the connection can see all effects of `request`; only its response is missing."""
        ...


@dataclass(slots=True, eq=False)
class Request:
    """One request: header, undecoded body, connection, and the wall clock at the time its frame was complete.

    `body` is a writable view of memory that belongs to this frame alone and stays valid for as long as it is held. It
    is empty once effects are applied. `size` is that of the whole frame without size prefix. `arrived_ms` is
    `received_ms` on the monotonic clock.
    """

    header: RequestHeader
    body: memoryview
    connection: ConnectionInfo
    received_ms: int
    size: int = 0
    arrived_ms: float = 0.0
    owner: RequestOwner | None = None
    is_applied: bool = False
    is_quota_exempt: bool = False  # a request of another broker, which no client quota counts
    trace: RequestTrace | None = None  # the stages so far, while the request is traced
    charged_throttle_ms: int | None = None  # the throttle time of bytes that were charged before the response was ready
    _busy_ms: float = 0.0
    _step_began_ms: float | None = None
    _on_input_ended: Callable[[], None] | None = None

    def begin_step(self, now_ms: float) -> None:
        """Note that the event loop begins to work on the request. Steps are measured only for quotas."""
        self._step_began_ms = now_ms

    def end_step(self, now_ms: float) -> None:
        """Note that the event loop turns to other work."""
        if self._step_began_ms is not None:
            self._busy_ms += now_ms - self._step_began_ms
            self._step_began_ms = None

    def take_busy_ms(self, now_ms: float) -> float:
        """Return the milliseconds that the request occupied the event loop for since the last call."""
        busy_ms, self._busy_ms = self._busy_ms, 0.0
        if self._step_began_ms is not None:
            busy_ms += now_ms - self._step_began_ms
            self._step_began_ms = now_ms
        return busy_ms

    def when_input_ended(self, callback: Callable[[], None]) -> None:
        """Call `callback` once if the peer closes its side of the connection before this request has a response.

        Most likely no client is left to read the response. A handler that waits for an event (a fetch) ends its wait
        and responds; other handlers need no callback.
        """
        self._on_input_ended = callback

    def on_input_ended(self) -> None:
        """Note that the peer has closed its side of the connection."""
        callback, self._on_input_ended = self._on_input_ended, None
        if callback is not None:
            callback()

    def on_answered(self) -> None:
        """Release the handler, which may hold this request in turn."""
        self._on_input_ended = None

    def effects_applied(self) -> None:
        """Let the connection begin its next request although this one has no response yet.

        A request whose handler waits holds back the requests behind it, so that effects happen in the order of sending.
        A handler whose effects are in place and that waits for confirmation alone (a produce with acks=all, once
        appended) calls this, so that a pipelining client is not limited to one request per round trip to the followers.
        Responses leave in order all the same.

        The frame is released, because no handler needs it any more. Otherwise, with many such requests, the next frame
        would lie in untouched memory instead of where the last one was.
        """
        if not self.is_applied:
            self.is_applied = True
            self.body = _NOTHING
            if self.owner is not None:
                self.owner.on_effects_applied(self)


Dispatch: TypeAlias = Callable[[Request], EncodedResponse | Awaitable[EncodedResponse]]
"""Handles one request. May raise `CloseConnection` or `DecodeError`, which end this connection and no other.

A response that is ready is returned as it is and costs no task. A future or coroutine belongs to the connection from
then on: it is cancelled when the peer goes away, so a handler must shield what other requests wait for too.
"""

OpenPipeline: TypeAlias = Callable[[ConnectionInfo], Dispatch]
"""Returns the dispatch of a new connection; called once per connection."""
