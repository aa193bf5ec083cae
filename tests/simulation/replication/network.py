"""Connections between simulated processes, with the faults of TCP connections.

Data on a connection arrives in order and once, if at all. It may be delayed; a blocked link holds it until the link is
restored, possibly long after the sender gave up, reconnected and retried. A connection breaks with data in flight in
one or both directions, or when one end dies. Servers handle the requests of a connection one after another, and respond
in order.
"""

import asyncio
from collections import Counter, deque
from collections.abc import Callable
from dataclasses import replace
from random import Random
from typing import Any, Final, Generic, Protocol, TypeAlias, TypeVar, cast

from broker.net.peer import SocketAddress
from broker.net.request import CloseConnection, ConnectionInfo, Request
from broker.runtime.replication.fetch_transport import Unanswered
from protocol.compiler import decode, encode_bytes
from protocol.headers import RequestHeader
from protocol.messages import Message
from tests.simulation.weather import Weather
from tests.simulation.world import Process, World

T = TypeVar("T")

Outcome: TypeAlias = Any
"""A response, a substitute of one, or Unanswered."""

LISTENER: Final = "PLAINTEXT"
_RETRANSMIT_MS: Final = (50.0, 400.0)
_REFUSED_MS: Final = 1.0
_LOST_FOR_GOOD: Final = 0.3
"""Share of lost segments that break their connection; the others are sent again."""


class Call(Protocol):
    """A request as the server's code sees it."""

    @property
    def message(self) -> Any: ...

    @property
    def version(self) -> int: ...

    @property
    def request(self) -> Request: ...


class Server(Protocol):
    """A running process as the network sees it."""

    @property
    def process(self) -> Process: ...

    def serve(self, call: Call) -> "asyncio.Future[Any] | Any":
        """Handle a request within the current event; return the response or its future. Raises CloseConnection."""
        ...


class Wires:
    """Servers by endpoint, blocked links, and the state of the network."""

    def __init__(self, world: World, random: Random) -> None:
        self.world = world
        self.random = random
        self.weather = Weather()
        self.in_bytes = False
        """Whether messages are encoded and decoded on the way."""
        self.pace = 1.0
        """The factor of the time after which held data is sent again."""
        self.messages = 0
        self.streams = 0
        """Number of connections so far."""
        self._servers: dict[SocketAddress, Server] = {}
        self._owners: dict[SocketAddress, int] = {}
        self._blocked: frozenset[tuple[int, int]] = frozenset()
        self._severed: Counter[tuple[int, int]] = Counter()
        """The number of long cuts of each link."""

    def block(self, links: frozenset[tuple[int, int]]) -> None:
        """Block the links from the first to the second node of each pair; open all others."""
        self._blocked = links

    def is_blocked(self, source: int, target: int) -> bool:
        return (source, target) in self._blocked or self._severed[source, target] > 0

    def sever(self, links: frozenset[tuple[int, int]]) -> None:
        """Cut links until they are restored, whatever else is blocked."""
        self._severed.update(links)

    def restore(self, links: frozenset[tuple[int, int]]) -> None:
        """End one cut of each link."""
        self._severed.subtract(links)

    def clear_up(self) -> None:
        """End all faults."""
        self._blocked = frozenset()
        self._severed.clear()
        self.weather = replace(self.weather, lost=0.0, twice=0.0, slow=0.0, delay_ms=1.0)

    def listen(self, endpoint: SocketAddress, server: Server) -> None:
        self._servers[endpoint] = server
        self._owners[endpoint] = server.process.node_id

    def own(self, endpoint: SocketAddress, node_id: int) -> None:
        """Assign an endpoint to a node, whether the node listens or not."""
        self._owners[endpoint] = node_id

    def server_at(self, endpoint: SocketAddress) -> Server | None:
        """Return the running server at an endpoint."""
        server = self._servers.get(endpoint)
        return server if server is not None and server.process.is_alive else None

    def owner(self, endpoint: SocketAddress) -> int:
        """Return the node of an endpoint, running or not; -1 without one."""
        return self._owners.get(endpoint, -1)

    def delay_ms(self) -> float:
        weather, random = self.weather, self.random
        mean = weather.slow_ms if weather.slow and random.random() < weather.slow else weather.delay_ms
        return 0.1 + random.expovariate(1.0 / mean)

    def copied(self, message: T, version: int) -> T:
        """Return a message as its receiver decodes it."""
        kind: Any = type(message)
        if not self.in_bytes or not hasattr(kind, "MAX_VERSION"):
            return message
        copy: T = decode(kind, bytearray(encode_bytes(cast(Message, message), version)), version)[0]
        return copy


class _Pipe(Generic[T]):
    """One direction of a connection."""

    def __init__(
        self,
        wires: Wires,
        source: int,
        target: int,
        receiver: Callable[[], Process | None],
        deliver: Callable[[T], None],
    ) -> None:
        self._wires = wires
        self._link = (source, target)
        self._receiver = receiver
        self._deliver = deliver
        self._queue: deque[T] = deque()
        self._last_due = 0.0
        self.held_until_ms = 0.0
        self.is_broken = False

    def send(self, item: T) -> bool:
        """Send data; return False if that broke the connection."""
        wires = self._wires
        wires.messages += 1
        delay_ms = wires.delay_ms()
        if wires.weather.lost and wires.random.random() < wires.weather.lost:
            if wires.random.random() < _LOST_FOR_GOOD:
                self.is_broken = True
                return False
            delay_ms += wires.random.uniform(*_RETRANSMIT_MS)
        if self.is_broken:
            return False
        self._last_due = max(self._last_due, wires.world.now_ms + delay_ms)
        self._queue.append(item)
        wires.world.schedule(self._last_due - wires.world.now_ms, self._arrive)
        return True

    def _arrive(self) -> None:
        wires = self._wires
        if wires.world.now_ms < self.held_until_ms:
            wires.world.schedule(self.held_until_ms - wires.world.now_ms, self._arrive)
            return
        if wires.is_blocked(*self._link):
            wires.world.schedule(wires.pace * wires.random.uniform(*_RETRANSMIT_MS), self._arrive)
            return
        process = self._receiver()
        if process is not None and process.stalled_until_ms > wires.world.now_ms:
            wires.world.schedule(process.stalled_until_ms - wires.world.now_ms, self._arrive)
            return
        self._deliver(self._queue.popleft())


class _Asked:
    """A request at its sender."""

    __slots__ = ("done", "is_open", "message", "timer", "version")

    def __init__(self, message: Message, version: int, done: Callable[[Outcome], None]) -> None:
        self.message = message
        self.version = version
        self.done = done
        self.is_open = True
        self.timer: asyncio.TimerHandle | None = None


class _Served:
    """The same request at its server. Implements Call, and owns the request passed to handlers."""

    __slots__ = ("answer", "future", "is_answered", "message", "request", "version")

    def __init__(self, message: Message, version: int, request: Request) -> None:
        self.message = message
        self.version = version
        self.request = request
        self.future: asyncio.Future[Any] | None = None
        self.answer: Any = None
        self.is_answered = False


class _Fin:
    """The client closed the connection."""


class _Stream:
    """One connection, from the first request until it breaks or is closed."""

    def __init__(self, wires: Wires, client: Process, client_id: str, endpoint: SocketAddress) -> None:
        self._wires = wires
        self._client = client
        self._client_id = client_id
        self._endpoint = endpoint
        server_id = wires.owner(endpoint)
        self._requests: _Pipe[_Asked | _Fin] = _Pipe(
            wires, client.node_id, server_id, self._server_process, self._on_request
        )
        self._answers: _Pipe[tuple[_Asked, Any]] = _Pipe(
            wires, server_id, client.node_id, lambda: client, self._on_answer
        )
        self._server: Server | None = None
        wires.streams += 1
        self._info = ConnectionInfo(f"connection-{wires.streams}", LISTENER, f"host-{client.node_id}", 50_000)
        self._asked: deque[_Asked] = deque()
        self._waiting: deque[_Asked] = deque()
        self._served: deque[tuple[_Asked, _Served]] = deque()
        self.is_open = True
        self._is_refused = False

    # The client's end

    def send(self, asked: _Asked, timeout_ms: float) -> None:
        self._asked.append(asked)
        asked.timer = self._client.call_later(timeout_ms / 1000.0, self.fail, "no response in time")
        if not self._requests.send(asked):
            self._break_soon()

    def hold(self, until_ms: float) -> None:
        """Hold all requests until a time."""
        self._requests.held_until_ms = until_ms

    def hold_answers(self, until_ms: float) -> None:
        """Hold all responses until a time."""
        self._answers.held_until_ms = until_ms

    def end(self) -> None:
        """Close the connection as a machine does for a process that has ended."""
        if self.is_open:
            self.is_open = False
            self._requests.send(_Fin())

    def fail(self, reason: str) -> None:
        """Give up the connection at the client. Data in flight may still arrive."""
        if not self.is_open:
            return
        self.is_open = False
        self._requests.send(_Fin())
        for asked in self._asked:
            if asked.timer is not None:
                asked.timer.cancel()
            self._client.call_soon(asked.done, Unanswered(reason))
        self._asked.clear()

    def _break_soon(self) -> None:
        """Let the client detect the broken connection after a while."""
        delay_ms = self._wires.random.choice((_REFUSED_MS, _REFUSED_MS, 300.0))
        self._wires.world.schedule(delay_ms, self.fail, "the connection broke", process=self._client)

    def _on_answer(self, answered: tuple[_Asked, Any]) -> None:
        asked, answer = answered
        if self.is_open and self._client.is_alive:
            assert self._asked[0] is asked, "responses arrive in the order of requests"
            self._asked.popleft()
            if asked.timer is not None:
                asked.timer.cancel()
            self._wires.world.run(self._client, asked.done, answer)

    # The server's end

    def _server_process(self) -> Process | None:
        server = self._server or self._wires.server_at(self._endpoint)
        return None if server is None else server.process

    def _on_request(self, item: "_Asked | _Fin") -> None:
        if self._is_refused:
            return
        if self._server is None:
            self._server = self._wires.server_at(self._endpoint)
        if self._server is None or not self._server.process.is_alive:
            self._is_refused = True
            self._break_soon()
            return
        if isinstance(item, _Fin):
            self._wires.world.run(self._server.process, self._hang_up)
            return
        self._waiting.append(item)
        self._wires.world.run(self._server.process, self._serve_next)

    def _hang_up(self) -> None:
        for _, served in self._served:
            if served.future is not None:
                served.future.cancel()
        self._waiting.clear()
        self._answers.is_broken = True
        self._info.closed()

    def _serve_next(self) -> None:
        while self._waiting and not self._is_busy:
            self._serve(self._waiting.popleft())

    @property
    def _is_busy(self) -> bool:
        """Whether the last request has not taken effect yet."""
        if not self._served:
            return False
        last = self._served[-1][1]
        return not last.is_answered and not last.request.is_applied

    def _serve(self, asked: _Asked) -> None:
        server = self._server
        assert server is not None
        header = RequestHeader(0, asked.version, 1, self._client_id)
        request = Request(header, memoryview(b""), self._info, server.process.now_ms(), owner=self)
        served = _Served(self._wires.copied(asked.message, asked.version), asked.version, request)
        self._served.append((asked, served))
        try:
            answer = server.serve(served)
        except CloseConnection:
            self._break_soon()
            return
        if isinstance(answer, asyncio.Future):
            served.future = answer
            answer.add_done_callback(lambda done: self._on_served(served, done))
        else:
            self._note_answer(served, answer)

    def on_effects_applied(self, request: Request) -> None:
        """Implements RequestOwner."""
        assert self._server is not None
        self._server.process.call_soon(self._serve_next)

    def _on_served(self, served: _Served, done: "asyncio.Future[Any]") -> None:
        if not done.cancelled():
            self._note_answer(served, done.result())
            self._serve_next()

    def _note_answer(self, served: _Served, answer: Any) -> None:
        served.answer, served.is_answered = answer, True
        while self._served and self._served[0][1].is_answered:
            asked, first = self._served.popleft()
            if not self._answers.send((asked, self._wires.copied(first.answer, asked.version))):
                self._break_soon()


class Connection:
    """Requests of a process to one endpoint; reconnects when the connection has broken."""

    def __init__(
        self, wires: Wires, client: Process, endpoint: SocketAddress, client_id: str, timeout_ms: float
    ) -> None:
        self._wires = wires
        self._client = client
        self._client_id = client_id
        self.endpoint = endpoint
        self._timeout_ms = timeout_ms
        self._stream: _Stream | None = None

    def ask(self, message: Message, version: int, done: Callable[[Outcome], None]) -> None:
        """Send a request; `done` is called once, in a later turn."""
        if self._stream is None or not self._stream.is_open:
            self._stream = _Stream(self._wires, self._client, self._client_id, self.endpoint)
        self._stream.send(_Asked(message, version, done), self._timeout_ms)

    def stall(self, until_ms: float) -> None:
        """Hold the requests of this connection alone until a time, even if its process ends before."""
        if self._stream is not None:
            self._stream.hold(until_ms)

    def stall_answers(self, until_ms: float) -> None:
        """Hold the responses of this connection alone until a time; its requests arrive."""
        if self._stream is not None:
            self._stream.hold_answers(until_ms)

    def end(self) -> None:
        """Close the connection of a process that has ended."""
        if self._stream is not None:
            self._stream.end()

    def close(self) -> None:
        """Close the connection; requests in flight get no response."""
        if self._stream is not None:
            self._stream.fail("closed")
