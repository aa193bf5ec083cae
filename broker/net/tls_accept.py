"""Hand-shakes of accepted connections: principals, time limits, and one log line for each that fails."""

import asyncio
import ssl
from collections.abc import Callable, Mapping
from typing import Protocol
from weakref import WeakSet

from broker.clock import Clock
from broker.logs import EventLog
from broker.net.rate_limited_log import RateLimitedLog
from broker.net.receiver import ReceiveArena
from broker.net.request import ConnectionInfo
from broker.net.stats import ListenerStats
from broker.net.tls_stream import HandshakeTimers, TlsFailed, TlsStream, TlsTransport
from broker.tls.principal_rules import NoRuleApplies

log = EventLog("broker.net")


class TlsServing(Protocol):
    """The TLS side of a listener. The context is that of the next connection; it may change at any time."""

    @property
    def server_context(self) -> ssl.SSLContext: ...

    def principal_of(self, certificate: bytes | None) -> str:
        """Return the principal of a peer by its verified certificate in DER. Raise NoRuleApplies or ValueError."""
        ...


class TlsAcceptor:
    """Makes the protocols of accepted sockets on TLS listeners, by listener name."""

    def __init__(
        self,
        listeners: Mapping[str, TlsServing],
        timers: HandshakeTimers,
        clock: Clock,
        warnings: RateLimitedLog,
        *,
        timeout_ms: int,
    ) -> None:
        self._listeners = listeners
        self._timers = timers
        self._clock = clock
        self._warnings = warnings
        self._timeout_s = timeout_ms / 1000
        self._arena = ReceiveArena()
        self._shaking: WeakSet[TlsStream] = WeakSet()  # a socket may fail before its stream learns of it

    def serves(self, listener: str) -> bool:
        """Whether connections of the listener begin with a hand-shake."""
        return listener in self._listeners

    def begin(
        self,
        info: ConnectionInfo,
        stats: ListenerStats,
        connect: Callable[[asyncio.Transport], asyncio.BufferedProtocol],
        on_failed: Callable[[], None],
    ) -> TlsStream:
        """Return the protocol of an accepted socket.

        `connect` makes the connection after the hand-shake; its principal is in `info` by then. Otherwise `on_failed`
        is called once.
        """
        listener = self._listeners[info.listener]

        def on_open(transport: TlsTransport) -> asyncio.BufferedProtocol | None:
            self._shaking.discard(stream)
            if info.security_protocol == "SASL_SSL":  # the principal is that of SASL
                return connect(transport)
            try:
                info.principal = listener.principal_of(transport.peer_certificate)
            except (NoRuleApplies, ValueError) as error:
                self._report(info, stats, str(error))
                on_failed()
                return None
            stats.authenticated += 1
            return connect(transport)

        def on_failure(failure: TlsFailed) -> None:
            self._shaking.discard(stream)
            if failure.is_silent:  # a probe of the port
                log.debug("connection ended before its TLS hand-shake", peer=info.peer_host, listener=info.listener)
            else:
                self._report(info, stats, str(failure))
            on_failed()

        stream = TlsStream(
            listener.server_context,
            None,
            on_open,
            on_failure,
            arena=self._arena,
            timers=self._timers,
            timeout_s=self._timeout_s,
        )
        self._shaking.add(stream)
        return stream

    def abort(self) -> None:
        """Give up all hand-shakes."""
        for stream in tuple(self._shaking):
            stream.abort()

    def _report(self, info: ConnectionInfo, stats: ListenerStats, reason: str) -> None:
        stats.failed_authentications += 1
        peer = f"{info.peer_host}:{info.peer_port}"
        self._warnings.report(
            "closed a connection", self._clock.monotonic_ms(), reason=reason, peer=peer, listener=info.listener
        )
