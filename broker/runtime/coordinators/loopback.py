"""A short way from this node to itself: requests to its own address are served without a connection.

Under load a request over the network waits for several turns of the loop until it is read, answered and understood. A
transaction that ends on its own coordinator's node would be unfinished when its client begins the next one, which then
has to ask again.
"""

import asyncio
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any, Protocol

from broker.net.peer import Done, PeerUnavailable, SocketAddress
from broker.runtime.coordinators.transaction_verifier import Peers
from protocol.messages import Message

Serve = Callable[[Message], Message | Coroutine[Any, Any, Message]]
"""Answers a request of this node, at once or later. Limits the time that it takes."""


class ClosablePeers(Peers, Protocol):
    """Connections that can be closed."""

    def close(self) -> None: ...


class LoopbackPeers:
    """Implements `Peers`: `serve` answers what is sent to an address that `is_own`, `peers` send everything else.

    Such a request passes no listener, so neither authorization nor quotas apply to it.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        peers: ClosablePeers,
        is_own: Callable[[SocketAddress], bool],
        serve: Serve,
    ) -> None:
        self.is_own = is_own
        self._loop = loop
        self._peers = peers
        self._serve = serve
        self._is_closed = False
        self._running: set[asyncio.Task[Message]] = set()  # the loop itself keeps no task alive

    def send(
        self,
        endpoint: SocketAddress,
        request: Message,
        done: Done,
        *,
        timeout_ms: float,
        versions: tuple[int, int] | None = None,
    ) -> None:
        """Send the request; `done` gets the response in a later turn of the loop."""
        if not self.is_own(endpoint):
            self._peers.send(endpoint, request, done, timeout_ms=timeout_ms, versions=versions)
            return
        # One turn later: the response to the client that waits for the present decision goes first.
        self._loop.call_soon(self._start, request, done)

    def _start(self, request: Message, done: Done) -> None:
        if self._is_closed:
            return
        try:
            response = self._serve(request)
        except Exception as error:  # noqa: BLE001  a failed request of the node to itself is retried like any other
            done(_unavailable(error))
            return
        if not isinstance(response, Coroutine):
            done(response)
            return
        task = self._loop.create_task(response)
        self._running.add(task)
        task.add_done_callback(partial(self._on_done, done))

    def close(self) -> None:
        """Close all connections, and answer no more requests of this node."""
        self._is_closed = True
        self._peers.close()
        for task in self._running:
            task.cancel()

    def _on_done(self, done: Done, task: "asyncio.Task[Message]") -> None:
        self._running.discard(task)
        if task.cancelled():
            return  # the node ends
        error = task.exception()
        done(task.result() if error is None else _unavailable(error))


def _unavailable(error: BaseException) -> PeerUnavailable:
    return PeerUnavailable(f"this node failed to answer itself: {error!r}")
