"""The TLS side of the HTTP port.

A client that speaks HTTP without TLS gets a response that says so, which its user can read, instead of a closed
connection. Knows bytes and hand-shakes, no requests.
"""

import asyncio
import ssl
from collections.abc import Callable
from typing import Final, cast

from broker.logs import EventLog
from broker.net.receiver import ReceiveArena
from broker.net.tls_stream import HandshakeTimers, TlsFailed, TlsStream, TlsTransport

HANDSHAKE_MAX_S: Final = 10.0  # from the connection to the end of its hand-shake
_HANDSHAKE_RECORD: Final = 0x16
_SENTENCE: Final = b"This port speaks HTTPS only: use https:// in place of http://.\n"
PLAIN_RESPONSE: Final = (
    b"HTTP/1.1 400 Bad Request\r\nContent-Type: text/plain; charset=utf-8\r\nConnection: close\r\n"
    b"Content-Length: " + str(len(_SENTENCE)).encode() + b"\r\n\r\n" + _SENTENCE
)

_log: Final = EventLog("broker.http")


class TlsPort:
    """Makes the protocols of accepted sockets.

    `context` is asked for each connection. `connect` makes the protocol of a connection whose hand-shake is complete.
    At most `pending_max` connections are before that point; a further one replaces the oldest.
    """

    def __init__(
        self,
        context: Callable[[], ssl.SSLContext],
        connect: Callable[[asyncio.Transport], asyncio.Protocol],
        timers: HandshakeTimers,
        *,
        pending_max: int,
    ) -> None:
        self.arena = ReceiveArena()
        self.timers = timers
        self._context = context
        self._connect = connect
        self._pending_max = pending_max
        self._pending: dict[asyncio.Transport, None] = {}  # a dict for its order

    def accept(self) -> asyncio.BufferedProtocol:
        """Return the protocol of an accepted socket."""
        return _FirstBytes(self)

    def begin(self, transport: asyncio.Transport) -> None:
        """Count a connection whose hand-shake is to come."""
        if len(self._pending) >= self._pending_max:
            oldest = next(iter(self._pending))
            self.forget(oldest)
            oldest.abort()
        self._pending[transport] = None

    def forget(self, transport: asyncio.Transport) -> None:
        """Drop a connection that has ended or is open."""
        self._pending.pop(transport, None)

    def shake_hands(self, transport: asyncio.Transport) -> TlsStream:
        """Return the protocol of a connection that begins with a TLS record."""

        def on_open(tls: TlsTransport) -> asyncio.BufferedProtocol:
            self.forget(transport)
            return _Decrypted(self._connect(tls))

        def on_failure(failure: TlsFailed) -> None:
            self.forget(transport)
            _log.debug("an HTTP client was closed", reason=str(failure))

        return TlsStream(
            self._context(),
            None,
            on_open,
            on_failure,
            arena=self.arena,
            timers=self.timers,
            timeout_s=HANDSHAKE_MAX_S,
        )

    def abort(self) -> None:
        """Give up all hand-shakes."""
        for transport in tuple(self._pending):
            transport.abort()


class _FirstBytes(asyncio.BufferedProtocol):
    """The protocol of an accepted socket until its first byte tells TLS from plain HTTP."""

    def __init__(self, port: TlsPort) -> None:
        self._port = port
        self._raw: asyncio.Transport | None = None
        self._timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._raw = raw = cast(asyncio.Transport, transport)
        self._port.begin(raw)
        self._timer = self._port.timers.call_later(HANDSHAKE_MAX_S, raw.abort)

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._port.arena.view

    def buffer_updated(self, nbytes: int) -> None:
        raw = self._raw
        assert raw is not None
        if raw.is_closing():
            return
        self._stop_timer()
        if self._port.arena.data[0] != _HANDSHAKE_RECORD:
            raw.write(PLAIN_RESPONSE)
            raw.close()
            return
        stream = self._port.shake_hands(raw)
        raw.set_protocol(stream)
        stream.connection_made(raw)
        stream.buffer_updated(nbytes)  # the bytes are in the buffer that the stream reads

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_timer()
        if self._raw is not None:
            self._port.forget(self._raw)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


class _Decrypted(asyncio.BufferedProtocol):
    """Passes decrypted bytes on to a protocol that takes them as objects."""

    _room = ReceiveArena()
    """Memory for all connections: each chunk is copied before the next one arrives."""

    def __init__(self, protocol: asyncio.Protocol) -> None:
        self._protocol = protocol

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._room.view

    def buffer_updated(self, nbytes: int) -> None:
        self._protocol.data_received(bytes(self._room.view[:nbytes]))

    def eof_received(self) -> bool | None:
        return self._protocol.eof_received()

    def connection_lost(self, exc: Exception | None) -> None:
        self._protocol.connection_lost(exc)
