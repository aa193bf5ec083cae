"""Runs something at the active controller, wherever that is now: in this process, or at the end of a connection.

Who the controller is, the quorum says; the answer may be out of date, unknown, or this node before it is ready. So an
attempt that does not meet the active controller is followed by another: at once when there is news of a leader, else
after a growing pause, until the time is up. An attempt whose connection broke may have had its effect; what is run
here must bear that (KIP-631).
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
    """No answer came from an active controller in time; one may or may not have acted."""


class ControllerLocation(NamedTuple):
    """The leader of the quorum as this node knows it, and where its controller listens; None for what is not known."""

    node_id: int | None
    endpoint: SocketAddress | None


class Activity(Protocol):
    """The controller of this node; a broker's is never active."""

    @property
    def is_active(self) -> bool: ...


class Requests(Protocol):
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

    requests: Requests
    endpoint: SocketAddress
    timeout_ms: float

    def ask(
        self, request: Message | Versioned, answer: type[M], *, versions: tuple[int, int] | None = None
    ) -> "asyncio.Future[M]":
        """Send one request. The future raises PeerError."""
        return self.requests.request(self.endpoint, request, answer, timeout_ms=self.timeout_ms, versions=versions)


class ControllerRouter:
    """`locate` tells where the active controller should be; `on_leader_change` wants to be called when that changes.

    Without the latter nothing is lost but time. Connections belong to this router alone, since it breaks off those to
    a controller that was replaced.
    """

    def __init__(
        self,
        node_id: int,
        local: Activity,
        locate: Callable[[], ControllerLocation],
        requests: Requests,
    ) -> None:
        self._node_id = node_id
        self._local = local
        self._locate = locate
        self._requests = requests
        self._last_asked: tuple[int, SocketAddress] | None = None
        self._news = asyncio.Event()

    def on_leader_change(self) -> None:
        """There is another leader, or none: whoever waits tries again."""
        node_id, endpoint = self._locate()
        if self._last_asked is not None and node_id is not None:
            former_id, former = self._last_asked
            if node_id != former_id or endpoint not in (None, former):
                self._requests.drop(former)  # it may be cut off, and never say that it was replaced
                self._last_asked = None
        self._news.set()  # wakes those who wait now, and nobody later
        self._news.clear()

    def controller_versions(self) -> Mapping[int, ApiVersionRange] | None:
        """What the active controller of another node serves, by API key; None for this one, and while not connected."""
        endpoint = None if self._local.is_active else self._locate().endpoint
        return None if endpoint is None else self._requests.versions(endpoint)

    async def run(
        self,
        here: Callable[[], Awaitable[R]],
        there: Callable[[RemoteController], Awaitable[R]],
        *,
        within_ms: float,
        attempt_ms: float,
    ) -> R:
        """The result of `here` or `there`, whichever met the active controller, begun anew until one did.

        Both say by KafkaError NOT_CONTROLLER that they did not. Raises ControllerUnavailable when `within_ms` have
        passed, and what they raise, VersionMismatch among others.
        """
        loop = asyncio.get_running_loop()
        give_up_at = loop.time() + within_ms / 1000
        pause_ms = float(FIRST_PAUSE_MS)
        while True:
            left_ms = (give_up_at - loop.time()) * 1000
            try:
                return await self._attempt(here, there, min(attempt_ms, max(left_ms, 1.0)))
            except (ControllerUnavailable, PeerUnavailable, PeerTimedOut) as error:
                reason = str(error)
            except KafkaError as error:
                if error.code is not ErrorCode.NOT_CONTROLLER:
                    raise
                reason = error.message
            await self._wait_for_news(min(pause_ms, max(0.0, (give_up_at - loop.time()) * 1000)))
            pause_ms = min(2 * pause_ms, LAST_PAUSE_MS)
            if loop.time() >= give_up_at:  # looked at after the pause: an attempt of no time would hide the reason
                raise ControllerUnavailable(f"no active controller answered within {within_ms:.0f} ms: {reason}")

    async def _attempt(
        self, here: Callable[[], Awaitable[R]], there: Callable[[RemoteController], Awaitable[R]], timeout_ms: float
    ) -> R:
        if self._local.is_active:
            return await _in_time(here(), timeout_ms)
        node_id, endpoint = self._locate()
        if node_id is None or node_id == self._node_id:
            raise ControllerUnavailable("there is none" if node_id is None else "this node is about to become it")
        if endpoint is None:
            raise ControllerUnavailable(f"the endpoint of node {node_id} is not known")
        self._last_asked = node_id, endpoint
        return await there(RemoteController(self._requests, endpoint, timeout_ms))

    async def _wait_for_news(self, limit_ms: float) -> None:
        try:
            async with asyncio.timeout(limit_ms / 1000):
                await self._news.wait()
        except TimeoutError:
            return


async def _in_time(answer: Awaitable[R], timeout_ms: float) -> R:
    """A controller that cannot commit answers nobody, until it finds out and resigns."""
    try:
        async with asyncio.timeout(timeout_ms / 1000):
            return await answer
    except TimeoutError:
        raise ControllerUnavailable(f"nothing was committed within {timeout_ms:.0f} ms") from None
