"""What the network hands to `dispatch`, and what `dispatch` may hand back.

This file owns the seam between connections and request handling: one `Request` per frame, one `ConnectionInfo` per
connection. It knows no socket and no API.
"""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Protocol, TypeAlias

from protocol.headers import RequestHeader
from protocol.primitives import Buffer

ANONYMOUS = "User:ANONYMOUS"
UNKNOWN_SOFTWARE = "unknown"
_NOTHING = memoryview(b"")

EncodedResponse: TypeAlias = list[Buffer] | None
"""The chunks of a whole response frame, size prefix included; None where the protocol wants no answer (acks=0)."""


class CloseConnection(Exception):
    """The peer broke the protocol in a way that has no error response: answer what came before, then hang up.

    The argument is the reason as a log line may show it, without a final stop.
    """


@dataclass(slots=True, eq=False)
class ConnectionInfo:
    """What is known about a connection; handlers read it, and ApiVersions and authentication write into it.

    `connection_id` is `local-host:port-peer-host:port-number`, as Kafka writes it in its logs. `mute_ms` is for quotas:
    a handler that sets it has its answer sent at once, and this connection's next request is begun only so many
    milliseconds later (KIP-219); the connection sets it back to 0.
    """

    connection_id: str
    listener: str
    peer_host: str
    peer_port: int
    principal: str = ANONYMOUS
    client_software_name: str = UNKNOWN_SOFTWARE
    client_software_version: str = UNKNOWN_SOFTWARE
    mute_ms: float = 0.0
    _closed: list[Callable[[], None]] | None = None  # few want to know

    def when_closed(self, callback: Callable[[], None]) -> None:
        """Call back once the connection is gone."""
        self._closed = [*(self._closed or ()), callback]

    def closed(self) -> None:
        """The connection is gone."""
        callbacks, self._closed = self._closed or (), None
        for callback in callbacks:
            callback()


class RequestOwner(Protocol):
    """The connection as its requests see it."""

    def on_effects_applied(self, request: "Request") -> None:
        """`request` has done what later requests of the connection could observe; only its answer is missing."""
        ...


@dataclass(slots=True, eq=False)
class Request:
    """One request: its header, its undecoded body, where it came from and the wall clock when it was complete.

    `body` is a writable view of memory that belongs to this frame alone; it stays valid for as long as it is held. Once
    effects are applied it is empty.
    `size` is the whole frame's without size prefix; `arrived_ms` is `received_ms` by the clock that never goes back.
    """

    header: RequestHeader
    body: memoryview
    connection: ConnectionInfo
    received_ms: int
    size: int = 0
    arrived_ms: float = 0.0
    owner: RequestOwner | None = None
    is_applied: bool = False
    _on_input_ended: Callable[[], None] | None = None

    def when_input_ended(self, callback: Callable[[], None]) -> None:
        """Call back once if the peer has sent its last byte while this request is not answered yet.

        Most likely nobody is there any more to take the answer. A handler that only waits for something to happen (a
        fetch) ends its wait and answers; one that does something need not care.
        """
        self._on_input_ended = callback

    def on_input_ended(self) -> None:
        """The peer has sent its last byte."""
        callback, self._on_input_ended = self._on_input_ended, None
        if callback is not None:
            callback()

    def on_answered(self) -> None:
        """The handler has come to its end, and is let go of: it may well hold this request in turn."""
        self._on_input_ended = None

    def effects_applied(self) -> None:
        """Let the connection begin its next request although this one is not answered yet.

        A request whose handler waits holds back those behind it, so that effects happen in the order of sending. A
        handler whose effects are in place and that only waits to confirm them (a produce with acks=all, once appended)
        says so here, and a pipelining client is not slowed to one request per round trip to the followers. Answers
        leave in order all the same.

        The frame is let go of: nobody needs it any more, and with many such requests the next frame would lie in memory
        that was never touched instead of where the last one was.
        """
        if not self.is_applied:
            self.is_applied = True
            self.body = _NOTHING
            if self.owner is not None:
                self.owner.on_effects_applied(self)


Dispatch: TypeAlias = Callable[[Request], EncodedResponse | Awaitable[EncodedResponse]]
"""Handles one request. May raise `CloseConnection` or `DecodeError`, which end this connection and no other.

An answer that is ready is returned as it is, and costs no task. A future or coroutine is waited for, and belongs to the
connection from then on: when the peer goes away it is cancelled, so what others wait for too must be shielded.
"""

OpenPipeline: TypeAlias = Callable[[ConnectionInfo], Dispatch]
"""Returns what handles the requests of a new connection; called once per connection."""
