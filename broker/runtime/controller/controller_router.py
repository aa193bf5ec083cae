"""Execution of requests on the active controller, in this process or on another node.

The quorum knows its leader, but that knowledge may be stale or missing, and this node may be elected without being
active yet. An attempt that misses the active controller is repeated: at once after a leader change, else after a
growing pause, until the timeout. An attempt whose connection failed may have had its effect, so routed requests must
tolerate repetition (KIP-631).
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Final, NamedTuple, Protocol, TypeVar

from broker.net.peer import ApiVersionRange, PeerTimedOut, PeerUnavailable, Versioned
from broker.quorum.identity import SocketAddress
from protocol.errors import ErrorCode, KafkaError
from protocol.messages import Message

R = TypeVar("R")
M = TypeVar("M", bound=Message)

FIRST_PAUSE_MS: Final = 20
LAST_PAUSE_MS: Final = 500


class ControllerUnavailable(Exception):
    """No active controller responded in time; a controller may or may not have acted."""


class ControllerLocation(NamedTuple):
    """The leader of the quorum and its controller endpoint, as this node knows them; None for unknown."""

    node_id: int | None
    endpoint: SocketAddress | None


class LocalController(Protocol):
    """The controller of this node; on a node that is only a broker it is never active."""

    @property
    def is_active(self) -> bool: ...


class ControllerConnections(Protocol):
    """Connections to other nodes; see `broker.net.peer.NetworkClient`."""

    def request(
        self,
        endpoint: SocketAddress,
        request: Message | Versioned,
        answer: type[M],
        *,
        timeout_ms: float,
        versions: tuple[int, int] | None = None,
    ) -> "asyncio.Future[M]": ...

    def versions(self, endpoint: SocketAddress) -> Mapping[int, ApiVersionRange] | None: ...

    def drop(self, endpoint: SocketAddress) -> None: ...


class RemoteController(NamedTuple):
    """The controller of another node, for one attempt."""

    connections: ControllerConnections
    endpoint: SocketAddress
    timeout_ms: float

    def send(
        self, request: Message | Versioned, answer: type[M], *, versions: tuple[int, int] | None = None
    ) -> "asyncio.Future[M]":
        """Send one request. The future raises PeerError."""
        return self.connections.request(self.endpoint, request, answer, timeout_ms=self.timeout_ms, versions=versions)


class ControllerRouter:
    """A router over connections of its own, since it closes connections to a replaced controller.

    `locate` returns the presumed active controller. Call `on_leader_change` when that changes; without the call the
    router only loses time.
    """

    def __init__(
        self,
        node_id: int,
        local: LocalController,
        locate: Callable[[], ControllerLocation],
        connections: ControllerConnections,
    ) -> None:
        self._node_id = node_id
        self._local = local
        self._locate = locate
        self._connections = connections
        self._last_target: tuple[int, SocketAddress] | None = None
        self._leader_changed = asyncio.Event()

    def on_leader_change(self) -> None:
        """Retry waiting requests, and close the connection to a replaced controller."""
        node_id, endpoint = self._locate()
        if self._last_target is not None and node_id is not None:
            former_id, former = self._last_target
            if node_id != former_id or endpoint not in (None, former):
                self._connections.drop(former)  # a partitioned controller never reports that it was replaced
                self._last_target = None
        self._leader_changed.set()  # wake current waiters only
        self._leader_changed.clear()

    def controller_versions(self) -> Mapping[int, ApiVersionRange] | None:
        """Return the API versions of the remote active controller; None if it is local or not connected."""
        endpoint = None if self._local.is_active else self._locate().endpoint
        return None if endpoint is None else self._connections.versions(endpoint)

    async def run(
        self,
        local: Callable[[], Awaitable[R]],
        remote: Callable[[RemoteController], Awaitable[R]],
        *,
        within_ms: float,
        attempt_ms: float,
    ) -> R:
        """Return the result of `local` or `remote`, whichever reached the active controller.

        Both raise KafkaError NOT_CONTROLLER to be retried. Raises ControllerUnavailable after `within_ms`, and all
        other exceptions of `local` and `remote`, such as VersionMismatch.
        """
        loop = asyncio.get_running_loop()
        give_up_at = loop.time() + within_ms / 1000
        pause_ms = float(FIRST_PAUSE_MS)
        while True:
            left_ms = (give_up_at - loop.time()) * 1000
            try:
                return await self._attempt(local, remote, min(attempt_ms, max(left_ms, 1.0)))
            except (ControllerUnavailable, PeerUnavailable, PeerTimedOut) as error:
                reason = str(error)
            except KafkaError as error:
                if error.code is not ErrorCode.NOT_CONTROLLER:
                    raise
                reason = error.message
            await self._wait_for_leader_change(min(pause_ms, max(0.0, (give_up_at - loop.time()) * 1000)))
            pause_ms = min(2 * pause_ms, LAST_PAUSE_MS)
            if loop.time() >= give_up_at:  # checked after the pause: an attempt without time would hide the reason
                raise ControllerUnavailable(f"no active controller answered within {within_ms:.0f} ms: {reason}")

    async def _attempt(
        self, local: Callable[[], Awaitable[R]], remote: Callable[[RemoteController], Awaitable[R]], timeout_ms: float
    ) -> R:
        if self._local.is_active:
            return await _in_time(local(), timeout_ms)
        node_id, endpoint = self._locate()
        if node_id is None or node_id == self._node_id:
            raise ControllerUnavailable("no controller is active" if node_id is None else "this node is not active yet")
        if endpoint is None:
            raise ControllerUnavailable(f"the controller endpoint of node {node_id} is unknown")
        self._last_target = node_id, endpoint
        return await remote(RemoteController(self._connections, endpoint, timeout_ms))

    async def _wait_for_leader_change(self, limit_ms: float) -> None:
        try:
            async with asyncio.timeout(limit_ms / 1000):
                await self._leader_changed.wait()
        except TimeoutError:
            return


async def _in_time(answer: Awaitable[R], timeout_ms: float) -> R:
    """Bound a local command: a controller without a quorum cannot commit until it notices and resigns."""
    try:
        async with asyncio.timeout(timeout_ms / 1000):
            return await answer
    except TimeoutError:
        raise ControllerUnavailable(f"nothing was committed within {timeout_ms:.0f} ms") from None
