"""Controllers of other nodes for the router: each responds from a script, or hangs."""

import asyncio
from collections.abc import Callable
from typing import Any, TypeVar

from broker.net.peer import ApiVersionRange, PeerError, PeerTimedOut, PeerUnavailable, SocketAddress, Versioned
from broker.runtime.controller.controller_router import ControllerLocation
from protocol.api_keys import API_BY_KEY, response_class
from protocol.compiler import decode, encode_bytes
from protocol.messages import Message

M = TypeVar("M", bound=Message)

OWN, OWN_ID = SocketAddress("own", 9093), 1
SECOND, THIRD = SocketAddress("second", 9093), SocketAddress("third", 9093)
NODES = {SECOND: 2, THIRD: 3}

Answer = Callable[[Any], Message | PeerError | None]
"""None: the node hangs."""


class OtherNodes:
    """Implements `ControllerConnections`. `leader` is the presumed location of the active controller."""

    def __init__(self) -> None:
        self.leader: SocketAddress | None = SECOND
        self.answers: dict[SocketAddress, Answer] = {}
        self.requests: list[tuple[SocketAddress, Message]] = []
        self.sent_versions: list[int] = []
        self.dropped: list[SocketAddress] = []
        self._hanging: dict[SocketAddress, list[asyncio.Future[Any]]] = {}
        self.on_request: Callable[[], object] = lambda: None

    def locate(self) -> ControllerLocation:
        if self.leader == OWN:
            return ControllerLocation(OWN_ID, None)
        return ControllerLocation(None if self.leader is None else NODES[self.leader], self.leader)

    def request(
        self,
        endpoint: SocketAddress,
        request: Message | Versioned,
        answer: type[M],
        *,
        timeout_ms: float,
        versions: tuple[int, int] | None = None,
    ) -> "asyncio.Future[M]":
        """Encode and decode messages, so that fields missing in a version are missing here too."""
        assert not isinstance(request, Versioned)
        loop = asyncio.get_running_loop()
        future: asyncio.Future[M] = loop.create_future()
        version = API_BY_KEY[request.API_KEY].max_version if versions is None else versions[1]
        received, _ = decode(type(request), encode_bytes(request, version), version)
        self.requests.append((endpoint, received))
        self.sent_versions.append(version)
        self.on_request()
        outcome = self.answers[endpoint](received) if endpoint in self.answers else PeerUnavailable("refused")
        if outcome is None:
            self._hanging.setdefault(endpoint, []).append(future)
            loop.call_later(timeout_ms / 1000, _fail, future, PeerTimedOut(f"nothing within {timeout_ms:.0f} ms"))
        elif isinstance(outcome, PeerError):
            future.set_exception(outcome)
        else:
            assert type(outcome) is response_class(request.API_KEY)
            future.set_result(decode(answer, encode_bytes(outcome, version), version)[0])
        return future

    def versions(self, endpoint: SocketAddress) -> dict[int, ApiVersionRange] | None:
        """Return one version of CreateTopics per node, equal to its id."""
        return {19: ApiVersionRange(NODES[endpoint], NODES[endpoint])}

    def drop(self, endpoint: SocketAddress) -> None:
        self.dropped.append(endpoint)
        for future in self._hanging.pop(endpoint, ()):
            _fail(future, PeerUnavailable("dropped"))


def _fail(future: "asyncio.Future[Any]", error: PeerError) -> None:
    if not future.done():
        future.set_exception(error)
