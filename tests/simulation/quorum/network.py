"""A simulated network of requests and responses, with the faults of a real one.

A sender gets exactly one outcome: the response, or a failure when the target is down or the timeout expires. Until
then, the request and the response may be lost, delayed, reordered or duplicated. Links fail in one direction at a time.
Messages are never corrupted, because TCP has checksums.
"""

from collections.abc import Callable
from dataclasses import replace
from random import Random
from typing import Protocol, TypeAlias

from broker.quorum.identity import SocketAddress
from broker.quorum.messages import Request, Response, SendFailure
from protocol.errors import ErrorCode
from tests.simulation.quorum.wire import as_answered, as_received
from tests.simulation.weather import Weather
from tests.simulation.world import Handle, Process, World

Outcome: TypeAlias = "Response | SendFailure"

_REFUSED_AFTER_MS = 1.0


class Server(Protocol):
    """A running node as the network sees it."""

    @property
    def process(self) -> Process: ...

    def receive(self, request: Request, answer: Callable[[Response], None]) -> None:
        """Handle a request within the current event; `answer` is called once, now or in a later event, or never."""
        ...


class NetworkWitness(Protocol):
    """Checker of messages."""

    def on_request_leaves(self, sender: int, request: Request) -> None: ...

    def on_response_leaves(self, sender: int, request: Request, response: Response) -> None: ...

    def on_request_arrives(self, receiver: int, request: Request) -> None: ...

    def on_response_arrives(self, receiver: int, request: Request, response: Response) -> None: ...


class _Exchange:
    """A request until its sender has an outcome."""

    __slots__ = ("done", "is_open", "request", "sender", "timeout_ms", "timer", "to")

    def __init__(
        self, sender: Process, to: SocketAddress, request: Request, timeout_ms: float, done: Callable[[Outcome], None]
    ) -> None:
        self.sender = sender
        self.to = to
        self.request = request
        self.timeout_ms = timeout_ms
        self.done = done
        self.is_open = True
        self.timer: Handle | None = None

    def end(self, outcome: Outcome) -> None:
        if not self.is_open:
            return
        self.is_open = False
        if self.timer is not None:
            self.timer.cancel()
        self.done(outcome)


class Network:
    def __init__(self, world: World, random: Random, witness: NetworkWitness) -> None:
        self._world = world
        self._random = random
        self._witness = witness
        self._servers: dict[SocketAddress, Server] = {}
        self._blocked: frozenset[tuple[int, int]] = frozenset()
        self.weather = Weather()
        self.late_timeouts = 0.0
        """The largest delay of a time-out, as a share of it."""
        self.in_bytes = False
        """Whether messages are encoded and decoded on the way."""

    # Faults

    def block(self, links: frozenset[tuple[int, int]]) -> None:
        """Block the links from the first to the second node of each pair; open all others."""
        self._blocked = links

    def cut(self, links: frozenset[tuple[int, int]]) -> None:
        """Block further links."""
        self._blocked |= links

    def clear_up(self) -> None:
        """End all faults."""
        self._blocked = frozenset()
        self.weather = replace(self.weather, lost=0.0, twice=0.0, slow=0.0, delay_ms=1.0)

    # Servers and requests

    def listen(self, endpoint: SocketAddress, server: Server) -> None:
        self._servers[endpoint] = server

    def send(
        self,
        sender: Process,
        to: SocketAddress,
        request: Request,
        timeout_ms: float,
        done: Callable[[Outcome], None],
    ) -> None:
        """Send a request; `done` receives the outcome in a later event of the sender."""
        self._witness.on_request_leaves(sender.node_id, request)
        exchange = _Exchange(sender, to, request, timeout_ms, done)
        late_ms = self._random.uniform(0.0, self.late_timeouts) * timeout_ms if self.late_timeouts else 0.0
        exchange.timer = self._world.schedule(timeout_ms + late_ms, exchange.end, _FAILED, process=sender)
        self._dispatch(sender.node_id, self._server_id(to), self._arrive, exchange)

    def _dispatch(self, source: int, target: int, arrive: Callable[..., object], *args: object) -> None:
        if (source, target) in self._blocked:
            return
        weather, random = self.weather, self._random
        if weather.lost and random.random() < weather.lost:
            return
        self._world.schedule(self._delay(), arrive, *args)
        if weather.twice and random.random() < weather.twice:
            self._world.schedule(self._delay(), arrive, *args)

    def _delay(self) -> float:
        weather, random = self.weather, self._random
        mean = weather.slow_ms if weather.slow and random.random() < weather.slow else weather.delay_ms
        return 0.1 + random.expovariate(1.0 / mean)

    def _server_id(self, endpoint: SocketAddress) -> int:
        server = self._servers.get(endpoint)
        return -1 if server is None else server.process.node_id

    def _arrive(self, exchange: _Exchange) -> None:
        server = self._servers.get(exchange.to)
        if server is None or not server.process.is_alive:
            self._world.schedule(_REFUSED_AFTER_MS, exchange.end, _REFUSED, process=exchange.sender)
            return
        process = server.process
        if process.stalled_until_ms > self._world.now_ms:
            self._world.schedule(process.stalled_until_ms - self._world.now_ms, self._arrive, exchange)
            return
        self._world.run(process, self._handle, exchange, server)

    def _handle(self, exchange: _Exchange, server: Server) -> None:
        sender_id, receiver_id, request = exchange.sender.node_id, server.process.node_id, exchange.request

        def answer(response: Response) -> None:
            self._witness.on_response_leaves(receiver_id, request, response)
            if self.in_bytes:
                response = as_answered(request, response, exchange.timeout_ms)
            self._dispatch(receiver_id, sender_id, self._arrive_back, exchange, response)

        self._witness.on_request_arrives(receiver_id, request)
        server.receive(as_received(request, exchange.timeout_ms) if self.in_bytes else request, answer)

    def _arrive_back(self, exchange: _Exchange, response: Response) -> None:
        sender = exchange.sender
        if not exchange.is_open or not sender.is_alive:
            return
        if sender.stalled_until_ms > self._world.now_ms:
            self._world.schedule(sender.stalled_until_ms - self._world.now_ms, self._arrive_back, exchange, response)
            return
        self._witness.on_response_arrives(sender.node_id, exchange.request, response)
        self._world.run(sender, exchange.end, response)


_FAILED = SendFailure(ErrorCode.BROKER_NOT_AVAILABLE)
_REFUSED = SendFailure(ErrorCode.BROKER_NOT_AVAILABLE, is_refusal=True)
