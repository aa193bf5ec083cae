"""A transport in memory and the collaborators of a connection, to test it without sockets, loop or time."""

import asyncio
import struct
from collections.abc import Callable
from typing import Any

from broker.logs import EventLog
from broker.net.backlog import RequestBacklog
from broker.net.connection import AcceptedConnection
from broker.net.deferred_writes import DeferredWrites
from broker.net.idle import IdleOrder
from broker.net.rate_limited_log import RateLimitedLog
from broker.net.receiver import ReceiveArena
from broker.net.request import ConnectionInfo, Dispatch, EncodedResponse, Request
from broker.net.server_resources import ServerResources
from broker.net.stats import ListenerStats
from broker.net.turns import Turns, never
from protocol.primitives import Buffer
from tests.support.fakes.clock import ManualClock

FRAME_MAX = 1_000_000


def frame(number: int, body: bytes = b"") -> bytes:
    """Return a Metadata 1 request with correlation id `number`, size prefix included."""
    content = struct.pack(">hhih", 3, 1, number, 4) + b"test" + body
    return struct.pack(">i", len(content)) + content


def answer_to(request: Request, body: bytes = b"") -> list[Buffer]:
    """Return a response with the correlation id of its request."""
    return [struct.pack(">ii", 4 + len(body), request.header.correlation_id), body]


def numbers_in(stream: bytes) -> list[int]:
    """Return the correlation ids of the responses in `stream`."""
    numbers, position = [], 0
    while position < len(stream):
        size, number = struct.unpack_from(">ii", stream, position)
        numbers.append(number)
        position += 4 + size
    return numbers


class FakeTransport(asyncio.Transport):
    """Keeps written data. With `is_stuck` the peer reads nothing, and the protocol is paused as on a real transport."""

    def __init__(self) -> None:
        super().__init__()
        self.protocol: AcceptedConnection | None = None
        self.sent: list[Buffer] = []
        self.unsent_bytes = 0
        self.is_stuck = False
        self.reads = True
        self.closing = False
        self.aborted = False
        self.calls: list[str] = []
        self._high = 1 << 16

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        self._high = high or 0

    def get_write_buffer_size(self) -> int:
        return self.unsent_bytes

    def write(self, data: Buffer) -> None:
        self.writelines([data])

    def writelines(self, list_of_data: Any) -> None:
        assert not self.aborted
        for data in list_of_data:
            self.sent.append(data)
            if self.is_stuck:
                self.unsent_bytes += len(data)
        assert self.protocol is not None
        if self.unsent_bytes > self._high:
            self.protocol.pause_writing()

    def resume_peer(self) -> None:
        """Read everything as the peer."""
        self.is_stuck = False
        self.unsent_bytes = 0
        assert self.protocol is not None
        self.protocol.resume_writing()

    def is_reading(self) -> bool:
        return self.reads

    def pause_reading(self) -> None:
        assert self.reads
        self.reads = False
        self.calls.append("pause")

    def resume_reading(self) -> None:
        assert not self.reads
        self.reads = True
        self.calls.append("resume")

    def is_closing(self) -> bool:
        return self.closing

    def close(self) -> None:
        self.closing = True

    def abort(self) -> None:
        self.closing = self.aborted = True


class ManualTimers:
    """Keeps callbacks until the test runs them."""

    def __init__(self) -> None:
        self.soon: list[Callable[[], object]] = []
        self.later: list[tuple[float, Callable[[], object]]] = []

    def call_soon(self, callback: Callable[[], object]) -> None:
        self.soon.append(callback)

    def call_later(self, delay: float, callback: Callable[[], object]) -> None:
        self.later.append((delay, callback))

    def run_soon(self) -> None:
        """Run the callbacks of the next turn of the loop."""
        callbacks, self.soon = self.soon, []
        for callback in callbacks:
            callback()


class Broker:
    """Handles requests as a test configures it, and remembers the begun ones.

    `later` names the requests that are answered by a future in `futures`, which `new_future` makes.
    """

    def __init__(self, new_future: Callable[[], "asyncio.Future[EncodedResponse]"] | None = None) -> None:
        self._new_future = new_future or (lambda: asyncio.get_running_loop().create_future())
        self.begun: list[int] = []
        self.requests: dict[int, Request] = {}
        self.futures: dict[int, asyncio.Future[EncodedResponse]] = {}
        self.later: set[int] = set()
        self.patient: set[int] = set()
        """Requests of `later` that end their wait when their input ends."""
        self.applied: set[int] = set()
        self.silent: set[int] = set()
        self.failing: dict[int, Exception] = {}
        self.bodies: dict[int, bytes] = {}
        self.mutes: dict[int, float] = {}
        self._news = asyncio.Event()

    def __call__(self, request: Request) -> "EncodedResponse | asyncio.Future[EncodedResponse]":
        number = request.header.correlation_id
        self.begun.append(number)
        self._news.set()
        self.requests[number] = request
        request.connection.mute_ms = self.mutes.get(number, 0.0)
        if number in self.failing:
            raise self.failing[number]
        if number in self.applied:
            request.effects_applied()
        if number in self.later or number in self.applied:
            self.futures[number] = self._new_future()
            if number in self.patient:
                request.when_input_ended(lambda: self.futures[number].set_result(self.answer(number)))
            return self.futures[number]
        return None if number in self.silent else self.answer(number)

    async def has_begun(self, number: int) -> None:
        """Wait until a request has begun."""
        while number not in self.begun:
            self._news.clear()
            await self._news.wait()

    def answer(self, number: int) -> list[Buffer]:
        """Return the response to a request."""
        return answer_to(self.requests[number], self.bodies.get(number, b""))

    async def finish(self, *numbers: int) -> None:
        """Answer waiting requests in this order, and run the loop until the responses are delivered."""
        for number in numbers:
            self.futures[number].set_result(self.answer(number))
        await asyncio.sleep(0)


class ConnectionHarness:
    """Builds connections that share their resources."""

    def __init__(
        self,
        broker: Dispatch,
        *,
        parked_max: int = 500,
        bytes_max: int = -1,
        idle_ms: int = 1000,
        yields: Callable[[Request], bool] = never,
        writes_together: int = 1,
    ) -> None:
        self.clock = ManualClock()
        self.timers = ManualTimers()
        self.idle: IdleOrder[AcceptedConnection] = IdleOrder(idle_ms)
        self.backlog = RequestBacklog(parked_max, bytes_max)
        self.closed: list[AcceptedConnection] = []
        self._commons = ServerResources(
            open_pipeline=lambda _connection: broker,
            clock=self.clock,
            timers=self.timers,
            turns=Turns(self.timers, yields),
            writes=DeferredWrites(self.timers, writes_together),
            arena=ReceiveArena(),
            backlog=self.backlog,
            idle=self.idle,
            unauthenticated=IdleOrder(-1),
            warnings=RateLimitedLog(EventLog("broker.net")),
            frame_bytes_max=FRAME_MAX,
            unauthenticated_frame_bytes_max=FRAME_MAX // 2,
        )

    def connect(self, port: int = 50_000) -> "Peer":
        """Open a new connection."""
        transport = FakeTransport()
        info = ConnectionInfo("id", "PLAINTEXT", "10.0.0.1", port)
        transport.protocol = AcceptedConnection(transport, info, self._commons, ListenerStats(), self.closed.append)
        return Peer(transport, transport.protocol)


class Peer:
    """The other end of a connection."""

    def __init__(self, transport: FakeTransport, connection: AcceptedConnection) -> None:
        self.transport = transport
        self.connection = connection

    def send(self, data: bytes) -> int:
        """Feed `data` to the connection as far as it reads; return the number of bytes."""
        sent = 0
        while sent < len(data) and self.transport.reads and not self.transport.closing:
            room = self.connection.get_buffer(-1)
            assert len(room)
            part = data[sent : sent + len(room)]
            room[: len(part)] = part
            self.connection.buffer_updated(len(part))
            sent += len(part)
        return sent

    def hang_up(self) -> None:
        """Close this side in order."""
        if not self.connection.eof_received():
            self.transport.close()

    def vanish(self) -> None:
        """Break the connection."""
        self.transport.closing = True
        self.connection.connection_lost(ConnectionResetError())

    @property
    def received(self) -> bytes:
        """All bytes written to this peer."""
        return b"".join(self.transport.sent)

    @property
    def answers(self) -> list[int]:
        """The correlation ids of the responses to this peer, in order."""
        return numbers_in(self.received)
