"""TLS between a connection's transport and its protocol, over memory BIOs.

Theory of operation
-------------------
`TlsStream` is the protocol of the raw transport. It drives the hand-shake, then hands a `TlsTransport` to `on_open`,
which returns the protocol of the connection. From then on the stream decrypts into the memory of that
protocol, and the transport encrypts what the protocol writes. Both ends look like plain TCP: a half-closed connection
still gets its responses, reading and writing pause and resume, and no protocol is told of a connection whose hand-shake
failed.

Event loops have TLS of their own. This one is faster beside uvloop (figures in ARCHITECTURE.md), shares one buffer for
ciphertext among all connections where uvloop reserves 256 KB for each, and sees the bytes of failing hand-shakes.

Bounds: hand-shake messages are limited by OpenSSL, a hand-shake's time by the caller's `timeout_s`. While the protocol
does not read, the raw transport does not either, so that at most one buffer of ciphertext waits.
"""

import asyncio
import ssl
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Any, Final, Protocol, TypeAlias, cast

from broker.net.receiver import ReceiveArena
from broker.tls.failures import explain
from protocol.primitives import Buffer

PLAINTEXT_SLICE_BYTES: Final = 256 * 1024  # encrypted at once; ciphertext of longer responses leaves in parts
_HANDSHAKE_RECORD: Final = 0x16

OpenTls: TypeAlias = Callable[["TlsTransport"], asyncio.BufferedProtocol | None]


class TlsFailed(Exception):
    """A hand-shake failed; the text is the reason, as a predicate to the peer. `is_silent`: the peer sent nothing."""

    def __init__(self, reason: str, *, is_silent: bool = False) -> None:
        super().__init__(reason)
        self.is_silent = is_silent


class HandshakeTimers(Protocol):
    """The part of an event loop that a stream needs."""

    def call_later(self, delay: float, callback: Callable[[], object]) -> asyncio.TimerHandle:
        """Run `callback` after `delay` seconds."""
        ...

    def call_soon(self, callback: Callable[[], object]) -> object:
        """Run `callback` in the next turn of the loop."""
        ...


class TlsStream(asyncio.BufferedProtocol):
    """One side of a TLS connection.

    `on_open` gets the transport after the hand-shake and returns the connection's protocol, or None to close. Otherwise
    `on_failure` is called once. `arena` may be shared by all streams of a loop. `host` is the name to check and to send
    by a client, None for a server.
    """

    __slots__ = (
        "__weakref__",
        "_arena",
        "_eof_seen",
        "_eof_told",
        "_error",
        "_incoming",
        "_is_server",
        "_on_failure",
        "_on_open",
        "_outgoing",
        "_protocol",
        "_raw",
        "_received",
        "_timeout_s",
        "_timer",
        "_timers",
        "_tls",
        "is_paused",
    )

    def __init__(
        self,
        context: ssl.SSLContext,
        host: str | None,
        on_open: OpenTls,
        on_failure: Callable[[TlsFailed], None],
        *,
        arena: ReceiveArena,
        timers: HandshakeTimers,
        timeout_s: float,
    ) -> None:
        self._arena = arena
        self._is_server = host is None
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._incoming, self._outgoing, server_side=host is None, server_hostname=host)
        self._on_open = on_open
        self._on_failure: Callable[[TlsFailed], None] | None = on_failure
        self._timers = timers
        self._timeout_s = timeout_s
        self._timer: asyncio.TimerHandle | None = None
        self._raw: asyncio.Transport | None = None
        self._protocol: asyncio.BufferedProtocol | None = None
        self._received = 0
        self._eof_seen = False
        self._eof_told = False
        self._error: ConnectionError | None = None
        self.is_paused = False

    # Calls of the raw transport.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin the hand-shake."""
        self._raw = cast(asyncio.Transport, transport)
        self._timer = self._timers.call_later(self._timeout_s, self._on_timeout)
        if not self._is_server:
            self._shake_hands()

    def get_buffer(self, sizehint: int) -> memoryview:
        """Return the memory for the next ciphertext."""
        return self._arena.view

    def buffer_updated(self, nbytes: int) -> None:
        """Continue the hand-shake, or decrypt."""
        self._incoming.write(self._arena.view[:nbytes])
        if self._protocol is not None:
            self.deliver()
            return
        if not self._received and self._is_server and self._arena.data[0] != _HANDSHAKE_RECORD:
            self._fail(TlsFailed("sent bytes that are not TLS to an SSL listener"))
            return
        self._received += nbytes
        self._shake_hands()

    def eof_received(self) -> bool:
        """Tell the protocol once it has read everything; the raw transport stays open for responses."""
        self._eof_seen = True
        if self._protocol is None:
            self._fail(TlsFailed("closed the connection during the TLS hand-shake", is_silent=not self._received))
        else:
            self.deliver()
        return True

    def connection_lost(self, exc: Exception | None) -> None:
        """End the hand-shake or the protocol: the raw transport is gone."""
        if self._protocol is None:
            self._fail(TlsFailed("closed the connection during the TLS hand-shake", is_silent=not self._received))
        else:
            self._protocol.connection_lost(exc or self._error)

    def pause_writing(self) -> None:
        """Pass on that the peer does not read."""
        if self._protocol is not None:
            self._protocol.pause_writing()

    def resume_writing(self) -> None:
        """Pass on that the peer reads again."""
        if self._protocol is not None:
            self._protocol.resume_writing()

    # Calls of the transport and the server.

    def abort(self) -> None:
        """Give up the hand-shake, or close the open connection at once."""
        if self._raw is not None:
            self._raw.abort()

    def resume(self) -> None:
        """Deliver what is here already, in the next turn of the loop: the protocol is in the middle of something."""
        if self._incoming.pending or self._tls.pending() or (self._eof_seen and not self._eof_told):
            self._timers.call_soon(self.deliver)

    def deliver(self) -> None:
        """Decrypt into the memory of the protocol, while it reads."""
        protocol, raw = self._protocol, self._raw
        assert protocol is not None
        assert raw is not None
        try:
            while not self.is_paused and not raw.is_closing():
                count = self._decrypt(cast(memoryview, protocol.get_buffer(-1)))
                if not count:
                    break
                protocol.buffer_updated(count)
                if not (self._incoming.pending or self._tls.pending()):
                    break
        except ssl.SSLError as error:
            self._flush()
            self._error = ConnectionError(f"TLS: {explain(error)}")
            raw.abort()
            return
        if self._outgoing.pending:  # the answer to a change of keys
            self._flush()
        if self._eof_seen and not self._eof_told and not self.is_paused and not raw.is_closing():
            self._eof_told = True
            if not protocol.eof_received():
                raw.close()

    def _decrypt(self, room: memoryview) -> int:
        """Fill `room` as far as whole records have arrived; return the count. Raise SSLError."""
        tls, incoming = self._tls, self._incoming
        filled, size = 0, len(room)
        try:
            while filled < size:
                count = tls.read(size - filled, room[filled:] if filled else room)
                if not count:
                    self._eof_seen = True  # the peer's close_notify
                    break
                filled += cast(int, count)
                if not (incoming.pending or tls.pending()):
                    break
        except ssl.SSLWantReadError:
            pass
        except ssl.SSLZeroReturnError:
            self._eof_seen = True
        return filled

    def _shake_hands(self) -> None:
        try:
            self._tls.do_handshake()
        except ssl.SSLWantReadError:
            self._flush()
        except (ssl.SSLError, ValueError) as error:  # the latter for a name that is no host name
            self._flush()  # the alert that tells the peer
            self._fail(TlsFailed(f"failed the TLS hand-shake ({explain(error)})"))
        else:
            self._flush()
            self._open()

    def _open(self) -> None:
        assert self._raw is not None
        self._stop_timer()
        self._on_failure = None
        self._protocol = self._on_open(TlsTransport(self._raw, self._tls, self._outgoing, self))
        if self._protocol is None:
            self._protocol = asyncio.BufferedProtocol()
            self._raw.close()
        elif self._incoming.pending or self._tls.pending():
            self.deliver()

    def _flush(self) -> None:
        if self._outgoing.pending and self._raw is not None and not self._raw.is_closing():
            self._raw.write(self._outgoing.read())

    def _on_timeout(self) -> None:
        self._fail(TlsFailed(f"did not complete the TLS hand-shake within {self._timeout_s * 1000:.0f} ms"))

    def _fail(self, failure: TlsFailed) -> None:
        self._stop_timer()
        on_failure, self._on_failure = self._on_failure, None
        if self._raw is not None and not self._raw.is_closing():
            self._raw.close()
        if on_failure is not None:
            on_failure(failure)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


class TlsTransport(asyncio.Transport):
    """The transport of an open TLS connection, as the connection's protocol sees it."""

    __slots__ = ("_outgoing", "_raw", "_stream", "_tls")

    def __init__(self, raw: asyncio.Transport, tls: ssl.SSLObject, outgoing: ssl.MemoryBIO, stream: TlsStream) -> None:
        super().__init__()
        self._raw = raw
        self._tls = tls
        self._outgoing = outgoing
        self._stream = stream

    @property
    def peer_certificate(self) -> bytes | None:
        """The certificate of the peer in DER, verified; None without."""
        return self._tls.getpeercert(binary_form=True)

    @property
    def version(self) -> str:
        """The negotiated version, "TLSv1.2" or "TLSv1.3"."""
        return self._tls.version() or ""

    @property
    def cipher_suite(self) -> str:
        """The negotiated cipher suite, by its name in OpenSSL."""
        cipher = self._tls.cipher()
        return "" if cipher is None else cipher[0]

    def write(self, data: Buffer) -> None:
        """Encrypt and send."""
        self.writelines((data,))

    def writelines(self, list_of_data: Iterable[Buffer]) -> None:
        """Encrypt and send chunks, in as few writes as they need."""
        tls, outgoing, raw = self._tls, self._outgoing, self._raw
        if raw.is_closing():
            return
        for chunk in list_of_data:
            size = len(chunk)
            if size <= PLAINTEXT_SLICE_BYTES:
                if size:
                    tls.write(chunk)
            else:
                view = memoryview(chunk)
                for start in range(0, size, PLAINTEXT_SLICE_BYTES):
                    tls.write(view[start : start + PLAINTEXT_SLICE_BYTES])
                    raw.write(outgoing.read())
            if outgoing.pending > PLAINTEXT_SLICE_BYTES:
                raw.write(outgoing.read())
        if outgoing.pending:
            raw.write(outgoing.read())

    def pause_reading(self) -> None:
        """Deliver nothing, and read nothing from the peer."""
        if not self._stream.is_paused:
            self._stream.is_paused = True
            self._raw.pause_reading()

    def resume_reading(self) -> None:
        """Deliver again, first what is here already."""
        if self._stream.is_paused:
            self._stream.is_paused = False
            self._raw.resume_reading()
            self._stream.resume()

    def close(self) -> None:
        """Send what was written and the end of the TLS connection, then close."""
        if self._raw.is_closing():
            return
        with suppress(ssl.SSLError):  # the peer's own end has not arrived, and nobody waits for it
            self._tls.unwrap()
        if self._outgoing.pending:
            self._raw.write(self._outgoing.read())
        self._raw.close()

    def abort(self) -> None:
        """Close at once."""
        self._raw.abort()

    def is_closing(self) -> bool:
        """Whether the connection is closed or about to."""
        return self._raw.is_closing()

    def get_write_buffer_size(self) -> int:
        """Return the bytes of ciphertext that the peer has not taken."""
        return self._raw.get_write_buffer_size()

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """Set the limits of the buffer of ciphertext."""
        self._raw.set_write_buffer_limits(high, low)

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        """Return a fact about the socket below."""
        return self._raw.get_extra_info(name, default)
