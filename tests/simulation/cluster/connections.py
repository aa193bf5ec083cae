"""Connections of a broker to the controllers, over the simulated network."""

import asyncio
from collections.abc import Callable, Mapping
from typing import Any

from broker.net.peer import ApiVersionRange, PeerUnavailable, SocketAddress
from broker.runtime.replication.fetch_transport import Unanswered
from tests.simulation.replication.metadata import Refusal
from tests.simulation.replication.network import Connection, Outcome, Wires
from tests.simulation.world import Process


class ControllerWires:
    """Requests of one process to controllers. Implements ControllerConnections."""

    def __init__(self, wires: Wires, process: Process, client_id: str, timeout_ms: float) -> None:
        self._wires = wires
        self._process = process
        self._client_id = client_id
        self._timeout_ms = timeout_ms
        self._open: dict[SocketAddress, Connection] = {}
        self.on_request: Callable[[ControllerWires, Any], None] = _nothing
        """Called after each request is sent."""

    def request(
        self,
        endpoint: SocketAddress,
        request: Any,
        answer: Any,
        *,
        timeout_ms: float,
        versions: tuple[int, int] | None = None,
    ) -> "asyncio.Future[Any]":
        future: asyncio.Future[Any] = self._process.create_future()

        def settle(outcome: Outcome) -> None:
            if future.done():
                return
            match outcome:
                case Unanswered(reason):
                    future.set_exception(PeerUnavailable(reason))
                case Refusal(code):
                    future.set_result(answer(error_code=code))
                case _:
                    future.set_result(outcome)

        connection = self._open.get(endpoint)
        if connection is None:
            connection = self._open[endpoint] = Connection(
                self._wires, self._process, endpoint, self._client_id, self._timeout_ms
            )
        version = type(request).MAX_VERSION if versions is None else versions[1]
        connection.ask(request, version, settle)
        self.on_request(self, request)
        return future

    def stall(self, until_ms: float) -> None:
        """Hold the requests of the open connections until a time."""
        for connection in self._open.values():
            connection.stall(until_ms)

    def end(self) -> None:
        """Close the connections of a process that has ended."""
        for connection in self._open.values():
            connection.end()

    def versions(self, endpoint: SocketAddress) -> Mapping[int, ApiVersionRange] | None:
        return None

    def drop(self, endpoint: SocketAddress) -> None:
        connection = self._open.pop(endpoint, None)
        if connection is not None:
            connection.close()


def _nothing(_wires: ControllerWires, _request: Any) -> None:
    """Ignore the request."""
