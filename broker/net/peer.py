"""Requests to other nodes: one connection per node, opened on demand and opened again after a loss.

Theory of operation
-------------------
A `_Peer` stands for one endpoint. It is in one of four states, each with one timer at most: *idle* (no connection, none
needed), *connecting* until versions are negotiated and a login has succeeded (timer: connect timeout), *ready* (timer:
idle limit), *backing off* after a failure (timer: next attempt). Requests that cannot be sent yet wait in order.

- A connection that cannot be made, or a login that fails, fails all waiting requests, because their senders know best
  what to do instead.
- A connection that is lost fails the requests that were sent. The others go out on the next connection.
- A request that times out after it was sent ends its connection: the requests behind it would never be answered.

So a node that is dead or misbehaves costs each request its own timeout at most. Outcomes are delivered in a later turn
of the loop, and neither outcomes nor requests cost a task. Kinds of requests that must not wait for one another (a
heartbeat behind a long poll) belong into separate `NetworkClient`s, as Kafka has a channel for each.

This file does not know what a request means, nor which node to send it to.
"""

import asyncio
import random
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Final, Protocol, TypeVar

from broker.logs import EventLog
from broker.net.peer_connection import (
    ApiVersionRange,
    Call,
    Done,
    Ending,
    Outcome,
    PeerConnection,
    PeerError,
    PeerLoop,
    PeerRefused,
    PeerTimedOut,
    PeerUnavailable,
    Versioned,
    VersionMismatch,
    versions_of,
)
from broker.net.peer_login import PeerLogin
from broker.net.receiver import ReceiveArena
from broker.quorum.identity import SocketAddress
from broker.sasl.client.sasl_login import SaslLogin
from protocol.api_keys import ApiKey
from protocol.messages import Message

__all__ = [
    "ApiVersionRange",
    "Done",
    "NetworkClient",
    "Outcome",
    "PeerError",
    "PeerRefused",
    "PeerSettings",
    "PeerTimedOut",
    "PeerUnavailable",
    "SaslConnect",
    "SocketAddress",
    "VersionMismatch",
    "Versioned",
]

R = TypeVar("R", bound=Message)

_JITTER: Final = 0.2  # relative, both ways, so that not all nodes reconnect to a returning node at once
_CLOSED: Final = Ending("is not contacted any more, because the client is closed")

_log: Final = EventLog("broker.net.peer")


@dataclass(frozen=True, slots=True)
class PeerSettings:
    """Limits per endpoint; times in ms. The idle limit is below the ten minutes of servers."""

    max_in_flight: int = 16
    max_waiting: int = 10_000
    connect_timeout_ms: int = 2_000
    backoff_ms: int = 50
    backoff_max_ms: int = 500
    max_idle_ms: int = 540_000
    frame_bytes_max: int = 104_857_600


class ConnectAttempt(Protocol):
    def cancel(self) -> object: ...


class Connect(Protocol):
    """Opens a connection in the background; calls `protocol.connection_made`, or `on_failure` with the reason."""

    def __call__(
        self, endpoint: SocketAddress, protocol: asyncio.BaseProtocol, on_failure: Callable[[Ending], None]
    ) -> ConnectAttempt: ...


class SaslConnect:
    """Opens connections as `connect` does; peers log in on them with `login`."""

    def __init__(self, connect: Connect, login: SaslLogin) -> None:
        self._connect = connect
        self.login = login

    def __call__(
        self, endpoint: SocketAddress, protocol: asyncio.BaseProtocol, on_failure: Callable[[Ending], None]
    ) -> ConnectAttempt:
        """Open a connection, after the first access token has been fetched if the login has tokens."""
        pending = self.login.prepare()
        if pending is None:
            return self._connect(endpoint, protocol, on_failure)
        return _ConnectWithToken(pending, lambda: self._connect(endpoint, protocol, on_failure), on_failure)


class _ConnectWithToken:
    """An attempt that connects once there is an access token. A canceled attempt leaves the fetch to the next one."""

    def __init__(
        self, pending: Future[None], connect: Callable[[], ConnectAttempt], on_failure: Callable[[Ending], None]
    ) -> None:
        self._connect = connect
        self._on_failure = on_failure
        self._attempt: ConnectAttempt | None = None
        self._is_canceled = False
        self._loop = asyncio.get_running_loop()
        pending.add_done_callback(self._tell_loop)

    def cancel(self) -> None:
        self._is_canceled = True
        if self._attempt is not None:
            self._attempt.cancel()

    def _tell_loop(self, pending: Future[None]) -> None:
        """Pass the outcome from the thread that fetches to the loop."""
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._on_token, pending)

    def _on_token(self, pending: Future[None]) -> None:
        if self._is_canceled:
            return
        error = pending.exception()
        if error is None:
            self._attempt = self._connect()
        else:
            self._on_failure(Ending(f"cannot be logged in at ({error})"))


class TcpConnect:
    """Plain TCP. A connection costs one task while it is being opened."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop

    def __call__(
        self, endpoint: SocketAddress, protocol: asyncio.BaseProtocol, on_failure: Callable[[Ending], None]
    ) -> ConnectAttempt:
        return self._loop.create_task(self._open(endpoint, protocol, on_failure))

    async def _open(
        self, endpoint: SocketAddress, protocol: asyncio.BaseProtocol, on_failure: Callable[[Ending], None]
    ) -> None:
        """Open the connection. A name with several addresses never fails as a refusal: the loop merges their errors."""
        try:
            await self._loop.create_connection(lambda: protocol, endpoint.host, endpoint.port)
        except (OSError, ValueError, OverflowError) as error:  # the latter two for invalid hosts and ports
            on_failure(Ending(f"cannot be reached ({error})", is_refusal=isinstance(error, ConnectionRefusedError)))


@dataclass(frozen=True, slots=True)
class _SharedPeerState:
    """State that the peers of one `NetworkClient` share."""

    loop: PeerLoop
    client_id: str
    settings: PeerSettings
    connect: Connect
    spread: Callable[[], float]
    arena: ReceiveArena


class _Peer:
    """One endpoint. `on_idle` is called when its connection was closed for lack of use."""

    def __init__(
        self, endpoint: SocketAddress, commons: _SharedPeerState, on_idle: Callable[[SocketAddress], None]
    ) -> None:
        self._endpoint = endpoint
        self._commons = commons
        self._on_idle = on_idle
        self._connection: PeerConnection | None = None
        self._opening: ConnectAttempt | None = None
        self._timer: asyncio.TimerHandle | None = None  # its purpose depends on the state
        self._waiting: dict[Call, None] = {}  # in order
        self._failures = 0  # since the last negotiated versions
        self._retry_at = 0.0
        self._used_at = 0.0

    def send(self, call: Call, timeout_ms: float) -> None:
        """Send the request as soon as possible."""
        if len(self._waiting) >= self._commons.settings.max_waiting:
            call.finish(PeerUnavailable(f"{self._name} has too many requests waiting for it"))
            return
        self._waiting[call] = None
        call.timer = self._commons.loop.call_later(timeout_ms / 1000, partial(self._on_timeout, call, timeout_ms))
        if self._connection is not None:
            self._pump()
        elif self._timer is None:
            self._open_or_back_off()

    def withdraw(self, call: Call) -> None:
        """Drop the request unless it was sent."""
        self._waiting.pop(call, None)

    def close(self) -> None:
        """Fail all requests and close."""
        if self._connection is not None:
            self._connection.end(_CLOSED)
        self._fail_waiting(_CLOSED)
        self._stop_timer()

    @property
    def _name(self) -> str:
        return f"{self._endpoint.host}:{self._endpoint.port}"

    @property
    def versions(self) -> Mapping[int, ApiVersionRange] | None:
        """The versions that the node serves, while a connection has negotiated them."""
        return None if self._connection is None else self._connection.versions

    # Opening.

    def _open_or_back_off(self) -> None:
        delay = self._retry_at - self._commons.loop.time()
        if delay > 0:
            self._start_timer(delay, self._open)
        else:
            self._open()

    def _open(self) -> None:
        self._stop_timer()
        if not self._waiting:  # all were withdrawn or timed out
            return
        settings = self._commons.settings
        connection = PeerConnection(
            self._name,
            self._commons.arena,
            client_id=self._commons.client_id,
            frame_bytes_max=settings.frame_bytes_max,
            max_in_flight=settings.max_in_flight,
            on_room=self._on_room,
            on_end=self._on_end,
            login=self._login(),
        )
        self._connection = connection
        self._start_timer(settings.connect_timeout_ms / 1000, self._on_connect_timeout)
        self._opening = self._commons.connect(self._endpoint, connection, connection.end)

    def _login(self) -> PeerLogin | None:
        connect, loop = self._commons.connect, self._commons.loop
        return PeerLogin(connect.login, loop.time, self._commons.spread) if isinstance(connect, SaslConnect) else None

    def _on_connect_timeout(self) -> None:
        assert self._connection is not None
        took = self._commons.settings.connect_timeout_ms
        self._connection.end(Ending(f"did not accept a connection within {took} ms"))

    def _on_end(self, ending: Ending) -> None:
        assert self._connection is not None
        was_ready, self._connection = self._connection.is_ready, None
        self._stop_timer()
        if self._opening is not None:
            self._opening.cancel()
            self._opening = None
        if ending is _CLOSED:
            return
        self._failures = 1 if was_ready else self._failures + 1
        self._retry_at = self._commons.loop.time() + self._backoff_s()
        self._log_ending(ending)
        if not was_ready:
            self._fail_waiting(ending)
        if self._waiting:
            self._open_or_back_off()

    def _backoff_s(self) -> float:
        settings = self._commons.settings
        doubled = settings.backoff_ms * 2.0 ** min(self._failures - 1, 16)
        return min(settings.backoff_max_ms, doubled) * (1 - _JITTER + 2 * _JITTER * self._commons.spread()) / 1000

    def _log_ending(self, ending: Ending) -> None:
        """Log the first of consecutive failures, so that a dead node costs one line, and every protocol violation."""
        if ending.is_fault:
            _log.warning("node violated the protocol", node=self._name, reason=ending.reason)
        elif ending.is_login_failure and self._failures == 1:
            _log.error("login at a node failed", node=self._name, reason=ending.reason)
        elif self._failures == 1:
            _log.info("connection to a node ended", node=self._name, reason=ending.reason)

    # Sending.

    def _on_room(self) -> None:
        if self._opening is not None:  # the versions have just been negotiated
            self._opening = None
            self._failures = 0
            self._start_timer(self._commons.settings.max_idle_ms / 1000, self._on_idle_check)
        self._pump()

    def _pump(self) -> None:
        self._used_at = self._commons.loop.time()
        if self._connection is not None:
            self._connection.renew_login()
        while self._waiting and self._connection is not None and self._connection.has_room:
            call = next(iter(self._waiting))
            del self._waiting[call]
            try:
                self._connection.begin(call)
            except VersionMismatch as error:
                call.finish(VersionMismatch(f"{self._name}: {error}"))

    def _on_timeout(self, call: Call, timeout_ms: float) -> None:
        self._waiting.pop(call, None)
        connection = self._connection
        was_sent = connection is not None and connection.carries(call)
        is_stalled = connection is not None and connection.is_ready and connection.is_logging_in
        what = f"did not answer {call.key.name} within {timeout_ms:.0f} ms"
        call.finish(PeerTimedOut(f"{self._name} {what}"))
        if connection is not None and (was_sent or is_stalled):
            connection.end(Ending(what))

    def _on_idle_check(self) -> None:
        """Close the connection if it was idle for too long; check again later otherwise."""
        assert self._connection is not None
        limit = self._commons.settings.max_idle_ms / 1000
        left = self._used_at + limit - self._commons.loop.time()
        if left > 0 or self._connection.in_flight:
            self._start_timer(left if left > 0 else limit, self._on_idle_check)
            return
        self.close()
        self._on_idle(self._endpoint)

    def _fail_waiting(self, ending: Ending) -> None:
        waiting, self._waiting = self._waiting, {}
        for call in waiting:
            call.finish(ending.failure(self._name))

    # The timer.

    def _start_timer(self, delay: float, callback: Callable[[], None]) -> None:
        self._stop_timer()
        self._timer = self._commons.loop.call_later(delay, callback)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


class NetworkClient:
    """Sends requests to any number of nodes under one client id. `spread` returns numbers from 0 to 1 for back-offs."""

    def __init__(
        self,
        loop: PeerLoop,
        connect: Connect,
        *,
        client_id: str,
        settings: PeerSettings | None = None,
        spread: Callable[[], float] = random.random,
    ) -> None:
        self._commons = _SharedPeerState(loop, client_id, settings or PeerSettings(), connect, spread, ReceiveArena())
        self._peers: dict[SocketAddress, _Peer] = {}
        self._is_closed = False

    @property
    def endpoints(self) -> list[SocketAddress]:
        """The endpoints that were sent requests and not dropped since."""
        return list(self._peers)

    def versions(self, endpoint: SocketAddress) -> Mapping[int, ApiVersionRange] | None:
        """Return the versions of each API that a node serves; None without a connection."""
        peer = self._peers.get(endpoint)
        return None if peer is None else peer.versions

    def send(
        self,
        endpoint: SocketAddress,
        request: Message | Versioned,
        done: Done,
        *,
        timeout_ms: float,
        versions: ApiVersionRange | tuple[int, int] | None = None,
    ) -> None:
        """Send a request in the highest version that both sides support, within `versions` if given.

        `done` is called once, in a later turn of the loop, with the response or a PeerError.
        """
        self._begin(endpoint, request, done, timeout_ms, versions)

    def request(
        self,
        endpoint: SocketAddress,
        request: Message | Versioned,
        answer: type[R],
        *,
        timeout_ms: float,
        versions: ApiVersionRange | tuple[int, int] | None = None,
    ) -> "asyncio.Future[R]":
        """Send a request; the future has an `answer` or raises PeerError. Cancelling it withdraws an unsent request."""
        future: asyncio.Future[R] = asyncio.get_running_loop().create_future()

        def settle(outcome: Outcome) -> None:
            if future.done():
                return
            if isinstance(outcome, PeerError):
                future.set_exception(outcome)
            else:
                assert isinstance(outcome, answer), f"asked for {answer.__name__}, got {type(outcome).__name__}"
                future.set_result(outcome)

        peer, call = self._begin(endpoint, request, settle, timeout_ms, versions)
        future.add_done_callback(lambda _: peer.withdraw(call))
        return future

    def drop(self, endpoint: SocketAddress) -> None:
        """Close the connection to one node, if there is one, and fail its sent and waiting requests."""
        peer = self._peers.pop(endpoint, None)
        if peer is not None:
            peer.close()

    def close(self) -> None:
        """Close all connections and fail their requests; later requests fail too."""
        self._is_closed = True
        for peer in self._peers.values():
            peer.close()

    def _begin(
        self,
        endpoint: SocketAddress,
        request: Message | Versioned,
        done: Done,
        timeout_ms: float,
        versions: tuple[int, int] | None,
    ) -> tuple[_Peer, Call]:
        key, build = request if isinstance(request, Versioned) else (ApiKey(request.API_KEY), _any_version(request))
        wanted = versions_of(key) if versions is None else ApiVersionRange(*versions)
        call = Call(self._commons.loop, key, build, wanted, done)
        peer = self._peers.get(endpoint)
        if peer is None:
            peer = self._peers[endpoint] = _Peer(endpoint, self._commons, self._forget)
        if self._is_closed:
            call.finish(PeerUnavailable(f"{endpoint.host}:{endpoint.port} {_CLOSED.reason}"))
        else:
            peer.send(call, timeout_ms)
        return peer, call

    def _forget(self, endpoint: SocketAddress) -> None:
        with suppress(KeyError):
            del self._peers[endpoint]


def _any_version(request: Message) -> Callable[[int], Message]:
    return lambda _version: request
