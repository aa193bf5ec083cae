"""The client listeners of a node: opening, accepting, connection limits, idle connections, and draining.

Sockets become `AcceptedConnection`s here. Only the pipelines that `open_pipeline` returns know what a request means.
"""

import asyncio
import socket
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial

from broker.clock import Clock
from broker.logs import EventLog
from broker.net.admission import ConnectionCounts
from broker.net.backlog import RequestBacklog
from broker.net.connection import AcceptedConnection
from broker.net.deferred_writes import DeferredWrites
from broker.net.idle import IdleOrder
from broker.net.limits import ListenerLimits, NetLimits
from broker.net.listening import Acceptor, ListenAddress, by_address, host_and_port, listen, set_options
from broker.net.openings import Openings
from broker.net.pending_protocol import PendingProtocol
from broker.net.rate_limited_log import RateLimitedLog
from broker.net.receiver import ReceiveArena
from broker.net.request import ConnectionInfo, OpenPipeline, Request
from broker.net.server_resources import ServerResources
from broker.net.stats import ListenerStats
from broker.net.tls_accept import TlsAcceptor, TlsServing
from broker.net.turns import Turns, never
from broker.rates.connection_rates import ConnectionRates

IDLE_CHECKS_PER_LIMIT = 20  # an idle connection outlives connections.max.idle.ms by a twentieth of it at most,
IDLE_CHECK_MAX_S = 5.0  # and by this time at most
IDLE_CHECK_MIN_S = 0.05
THROTTLED_SOCKETS_MAX = 1_000  # further connections of addresses above their rate are closed at once

log = EventLog("broker.net")


class Server:
    """Accepts clients on `listeners`; `open_pipeline` returns the handling of each connection's requests.

    Call `open` (takes the ports; clients may connect and wait from then on), then `start` (serves), then `drain`.
    `protected_listener` (the inter-broker listener, when there are several) is exempt from `max.connections`: on a full
    server, a new connection there replaces the longest idle connection of another listener. `tls` has the TLS side of
    each listener that has one. A request that `yields` is begun after those of other connections.
    """

    def __init__(
        self,
        open_pipeline: OpenPipeline,
        limits: NetLimits,
        listeners: Sequence[ListenAddress],
        *,
        clock: Clock,
        protected_listener: str | None = None,
        tls: Mapping[str, TlsServing] | None = None,
        yields: Callable[[Request], bool] = never,
    ) -> None:
        self.stats = {listener.name: ListenerStats() for listener in listeners}
        self.backlog = RequestBacklog(limits.queued_max_requests, limits.queued_max_request_bytes)
        self._open_pipeline = open_pipeline
        self._yields = yields
        self._limits = limits
        self._listeners = listeners
        self._clock = clock
        self._protected = protected_listener
        self._idle: IdleOrder[AcceptedConnection] = IdleOrder(limits.connections_max_idle_ms)
        self._unauthenticated: IdleOrder[AcceptedConnection] = IdleOrder(limits.authentication_timeout_ms)
        self._counts = ConnectionCounts(limits.max_connections, limits.max_connections_per_ip, {})
        self.rates = ConnectionRates(limits.quota_windows, exempt_listener=protected_listener)
        self._throttled: set[socket.socket] = set()  # of addresses above their rate
        self._warnings = RateLimitedLog(log)
        self._tls = tls or {}
        self._handshakes: TlsAcceptor | None = None
        self._protocols = {listener.name: listener.security_protocol for listener in listeners}
        self._sockets: dict[str, socket.socket] = {}
        self._acceptors: dict[str, Acceptor] = {}
        self._shared: ServerResources | None = None
        self._openings: Openings | None = None
        self._opening: set[asyncio.Task[None]] = set()
        self._idle_timer: asyncio.TimerHandle | None = None
        self._serial = 0
        self._is_draining = False
        self._emptied = asyncio.Event()

    @property
    def addresses(self) -> dict[str, tuple[str, int]]:
        """Host and port by listener name, with the port that was picked for port 0. Empty until `open`."""
        return {name: host_and_port(opened.getsockname()) for name, opened in self._sockets.items()}

    def open(self) -> None:
        """Take the ports of all listeners, or of none. Raises ListenError."""
        limits = self._limits
        self.set_limits(limits, by_address(limits.max_connections_per_ip_overrides))
        try:
            for listener in self._listeners:
                self._sockets[listener.name] = listen(
                    listener,
                    backlog=limits.socket_listen_backlog_size,
                    receive_buffer_bytes=limits.socket_receive_buffer_bytes,
                )
        except BaseException:
            for opened in self._sockets.values():
                opened.close()
            self._sockets.clear()
            raise

    def set_limits(self, limits: NetLimits, overrides: Mapping[str, int]) -> None:
        """Change the limits on connections and their rates; `overrides` of `max.connections.per.ip` are by address.

        Connections above a lower `max.connections` are closed, the longest idle first.
        """
        self._limits = limits
        self._counts.set_limits(limits.max_connections, limits.max_connections_per_ip, overrides)
        self.rates.limit = limits.max_connection_creation_rate
        for listener in self._listeners:
            own = limits.by_listener.get(listener.name, ListenerLimits())
            self.rates.listener(listener.name).limit = own.max_connection_creation_rate
        for _ in range(self._counts.total - limits.max_connections):
            self._evict_longest_idle()
        self._resume_accepting()

    def start(self, only: Collection[str] | None = None) -> None:
        """Serve on the running event loop: `only` these listeners, until a second call serves the rest; else all."""
        loop = asyncio.get_running_loop()
        shared = self._shared or self._begin(loop)
        if self._openings is None:
            self._openings = Openings(loop, self._resume_accepting)
        for name, opened in self._sockets.items():
            if name in self._acceptors or (only is not None and name not in only):
                continue
            acceptor = Acceptor(
                opened,
                loop,
                may_accept=partial(self._may_accept, self._openings, name),
                on_accepted=partial(self._on_accepted, shared, self._openings, name),
            )
            self._acceptors[name] = acceptor
            acceptor.start()

    def _begin(self, loop: asyncio.AbstractEventLoop) -> ServerResources:
        self._shared = shared = ServerResources(
            open_pipeline=self._open_pipeline,
            clock=self._clock,
            timers=loop,
            turns=Turns(loop, self._yields),
            writes=DeferredWrites(loop),
            arena=ReceiveArena(),
            backlog=self.backlog,
            idle=self._idle,
            unauthenticated=self._unauthenticated,
            warnings=self._warnings,
            frame_bytes_max=self._limits.socket_request_max_bytes,
            unauthenticated_frame_bytes_max=self._limits.sasl_server_max_receive_size,
        )
        timeout_ms = self._limits.tls_handshake_timeout_ms
        self._handshakes = TlsAcceptor(self._tls, loop, self._clock, self._warnings, timeout_ms=timeout_ms)
        self._schedule_idle_check(loop)
        return shared

    async def drain(self, timeout_s: float) -> None:
        """Stop accepting, begin no request, answer requests under way for up to `timeout_s`, and close everything."""
        self._is_draining = True
        self.stop_listening()
        if self._handshakes is not None:
            self._handshakes.abort()
        for connection in list(self._idle):
            connection.finish()
        try:
            async with asyncio.timeout(timeout_s):
                await self._wait_until_empty()
        except TimeoutError:
            log.warning("closing connections that did not end in time", connections=len(self._idle))
            for connection in list(self._idle):
                connection.abort()
            await self._wait_until_empty()
        if self._idle_timer is not None:
            self._idle_timer.cancel()

    def close_idle(self) -> None:
        """Close the connections that made no progress for longer than `connections.max.idle.ms`, and those that did not
        authenticate within `ottla.authentication.timeout.ms`.
        """
        now_ms = self._clock.monotonic_ms()
        for connection in self._unauthenticated.expired(now_ms):
            connection.abort()
            connection.stats.expired_unauthenticated += 1
            self._unauthenticated.remove(connection)
            info = connection.info
            reason = f"did not authenticate within {self._limits.authentication_timeout_ms} ms"
            peer = f"{info.peer_host}:{info.peer_port}"
            self._warnings.report("closed a connection", now_ms, reason=reason, peer=peer, listener=info.listener)
        for connection in self._idle.expired(now_ms):
            if connection.close_if_stuck(now_ms):
                connection.stats.expired_idle += 1

    # Accepting.

    def _may_accept(self, openings: Openings, listener: str) -> bool:
        if openings.is_full():
            return False
        own = self._limits.by_listener.get(listener)
        if own is not None and self.stats[listener].connections >= own.max_connections:
            return False
        return listener == self._protected or not self._counts.is_full()

    def _evict_longest_idle(self) -> None:
        for connection in self._idle:
            if connection.info.listener != self._protected:
                connection.abort()
                connection.stats.evicted += 1
                self._idle.remove(connection)  # the connection counts until its transport is gone
                return

    def _on_accepted(
        self,
        shared: ServerResources,
        openings: Openings,
        listener: str,
        accepted: socket.socket,
        peer: tuple[str, int],
    ) -> None:
        stats = self.stats[listener]
        now_ms = self._clock.monotonic_ms()
        pause_ms, host_pause_ms = self.rates.admit(listener, peer[0], now_ms)
        if pause_ms:
            self._acceptors[listener].throttle(pause_ms)
        if host_pause_ms:
            self._hold(accepted, host_pause_ms)
            stats.throttled_per_ip += 1
            return
        if not self._counts.admits(peer[0]):
            accepted.close()
            stats.refused_per_ip += 1
            self._warnings.report("too many connections from one address", now_ms, host=peer[0], listener=listener)
            return
        if self._counts.is_full():
            self._evict_longest_idle()
        self._counts.opened(peer[0])
        stats.accepted += 1
        stats.connections += 1
        openings.add(partial(self._begin_opening, shared, listener, accepted, peer))

    def _begin_opening(
        self, shared: ServerResources, listener: str, accepted: socket.socket, peer: tuple[str, int]
    ) -> None:
        task = asyncio.ensure_future(self._open_connection(shared, listener, accepted, peer))
        self._opening.add(task)
        task.add_done_callback(self._opening.discard)

    def _hold(self, accepted: socket.socket, pause_ms: int) -> None:
        """Close a connection after a pause, so that the client does not try again at once."""
        if len(self._throttled) >= THROTTLED_SOCKETS_MAX:
            accepted.close()
            return
        self._throttled.add(accepted)
        asyncio.get_running_loop().call_later(pause_ms / 1000, self._end_hold, accepted)

    def _end_hold(self, accepted: socket.socket) -> None:
        self._throttled.discard(accepted)
        accepted.close()

    async def _open_connection(
        self, shared: ServerResources, listener: str, accepted: socket.socket, peer: tuple[str, int]
    ) -> None:
        """Make a connection of a socket that is already counted."""
        protocol = self._protocol_of(self._describe(listener, accepted, peer), shared)
        try:
            set_options(accepted, self._limits.socket_send_buffer_bytes)
            await asyncio.get_running_loop().connect_accepted_socket(lambda: protocol, accepted)
        except OSError as error:
            log.debug("connection ended before its transport existed", peer=peer[0], reason=error)
            accepted.close()
            self._uncount(listener, peer[0])

    def _protocol_of(self, info: ConnectionInfo, shared: ServerResources) -> asyncio.BaseProtocol:
        """Return the first protocol of a connection, which makes the connection once its transport is ready."""
        connect = partial(self._connect, info, shared)
        handshakes = self._handshakes
        if handshakes is None or not handshakes.serves(info.listener):
            return PendingProtocol(connect)
        on_failed = partial(self._uncount, info.listener, info.peer_host)
        return handshakes.begin(info, self.stats[info.listener], connect, on_failed)

    def _describe(self, listener: str, accepted: socket.socket, peer: tuple[str, int]) -> ConnectionInfo:
        self._serial += 1
        host, port = host_and_port(accepted.getsockname())
        connection_id = f"{host}:{port}-{peer[0]}:{peer[1]}-{self._serial}"
        return ConnectionInfo(connection_id, listener, *peer, self._protocols[listener])

    def _connect(
        self, info: ConnectionInfo, shared: ServerResources, transport: asyncio.Transport
    ) -> AcceptedConnection:
        connection = AcceptedConnection(transport, info, shared, self.stats[info.listener], self._on_closed)
        if self._is_draining:
            connection.finish()
        return connection

    def _on_closed(self, connection: AcceptedConnection) -> None:
        self._uncount(connection.info.listener, connection.info.peer_host)

    def _uncount(self, listener: str, host: str) -> None:
        self._counts.closed(host)
        self.stats[listener].connections -= 1
        self.stats[listener].closed += 1
        if self._is_draining:
            if not self._counts.total:
                self._emptied.set()
            return
        self._resume_accepting()

    def _resume_accepting(self) -> None:
        for acceptor in self._acceptors.values():
            acceptor.start()

    # Draining.

    def stop_listening(self) -> None:
        """Release the ports; open connections stay open. Does nothing the second time."""
        for acceptor in self._acceptors.values():
            acceptor.close()
        for accepted in tuple(self._throttled):
            self._end_hold(accepted)
        for opened in self._sockets.values():
            opened.close()

    async def _wait_until_empty(self) -> None:
        if self._counts.total:
            await self._emptied.wait()

    def _schedule_idle_check(self, loop: asyncio.AbstractEventLoop) -> None:
        limits = [
            each for each in (self._limits.connections_max_idle_ms, self._limits.authentication_timeout_ms) if each >= 0
        ]
        if limits:
            limit_s = min(limits) / 1000
            delay_s = max(IDLE_CHECK_MIN_S, min(IDLE_CHECK_MAX_S, limit_s / IDLE_CHECKS_PER_LIMIT))
            self._idle_timer = loop.call_later(delay_s, self._check_idle, loop)

    def _check_idle(self, loop: asyncio.AbstractEventLoop) -> None:
        self.close_idle()
        self._schedule_idle_check(loop)
