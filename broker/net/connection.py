"""One client connection: frames in, answers out in the same order, and pressure passed on in both directions.

Theory of operation
-------------------
Whole frames go into `_parked`, and `_pump` begins them one after another for as long as nothing *holds* the connection.
Usually nothing does: the handler answers at once, and a frame is parked, begun and answered within one wake-up of the
loop, with one write for all of them and neither task nor future.

A handler that has to wait returns an awaitable. Its answer gets a slot in `_answers`; answers that come later line up
behind it, since Kafka's clients match answers to requests by order. Until it is answered, the request holds those
behind it (`Hold.REQUEST`): Kafka processes one request of a connection at a time, and clients rely on effects happening
in the order of sending. Kafka mutes the whole channel for that; we hold only until `Request.effects_applied()`, so
that a pipelining producer with acks=all does not wait a round trip to the followers per request. A fetch that waits
for data never says so and blocks what comes after it, as in Kafka.

The other holds: the peer does not read its answers (`WRITE`), too many answers wait for an earlier one (`ANSWERS`), a
quota mutes the connection (`MUTE`), other connections are to have their turn (`TURN`), this one is about to close
(`ENDING`). A held connection reads on only until a few requests are parked, or the server's backlog is full; then TCP
slows the peer down.

Nothing here allocates on a peer's word, has a timer per connection, or lasts longer than `connections.max.idle.ms`
without progress: a whole frame received or an answer taken. Dripping bytes is not progress.

It does not know what a request means, and no listener.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial
from typing import Protocol

from broker.clock import Clock
from broker.logs import EventLog
from broker.net.backlog import RequestBacklog
from broker.net.idle import IdleOrder
from broker.net.rate_limited_log import RateLimitedLog
from broker.net.receiver import FrameReceiver, ReceiveArena
from broker.net.request import CloseConnection, ConnectionInfo, EncodedResponse, OpenPipeline, Request
from broker.net.response_order import ResponseOrder, Slot
from broker.net.response_writer import ResponseWriter
from broker.net.stats import ListenerStats
from protocol.errors import DecodeError
from protocol.headers import decode_request_header

__all__ = ["AcceptedConnection", "CloseConnection", "ConnectionInfo", "Request", "ServerResources"]

PARKED_REQUESTS_MAX = 32  # a held connection reads ahead this far: enough to go on at once, little to keep
PARKED_BYTES_MAX = 256 * 1024
BEGUN_PER_TURN = 64  # requests; then the other connections have their turn: 64 KB can hold thousands of tiny ones
UNANSWERED_MAX = 128  # answers in flight with acks=all; the Java client allows itself 5
WRITE_HIGH_BYTES = 64 * 1024  # unsent beyond this, the connection begins no request: one answer is the most it holds

log = EventLog("broker.net")

PEER_CLOSED = CloseConnection("closed by the peer")
CANCELLED = CloseConnection("its request was cancelled")


class Hold:
    """Why a connection begins no further request; bits of one integer."""

    REQUEST = 1
    WRITE = 2
    ANSWERS = 4
    MUTE = 8
    TURN = 16
    ENDING = 32


class EventLoopTimers(Protocol):
    """The part of an event loop that starts things later."""

    def call_soon(self, callback: Callable[[], object]) -> object:
        """Run `callback` in the next turn of the loop."""
        ...

    def call_later(self, delay: float, callback: Callable[[], object]) -> object:
        """Run `callback` after `delay` seconds."""
        ...


@dataclass(slots=True, eq=False)
class ServerResources:
    """What all connections of a server share."""

    open_pipeline: OpenPipeline
    clock: Clock
    timers: EventLoopTimers
    arena: ReceiveArena
    backlog: RequestBacklog
    idle: IdleOrder["AcceptedConnection"]
    warnings: RateLimitedLog
    frame_bytes_max: int


class AcceptedConnection(asyncio.BufferedProtocol):
    """The protocol of an accepted connection; made when its transport exists, complete from the start.

    `on_closed` is called exactly once, when the transport is gone.
    """

    __slots__ = (
        "_answers",
        "_commons",
        "_dispatch",
        "_holder",
        "_holds",
        "_is_reading",
        "_mutes",
        "_on_closed",
        "_parked",
        "_parked_bytes",
        "_receiver",
        "_reported_bytes",
        "_reported_parked",
        "_sees_end",
        "_transport",
        "_unsent_when_expired",
        "_writer",
        "info",
        "stats",
    )

    def __init__(
        self,
        transport: asyncio.Transport,
        info: ConnectionInfo,
        commons: ServerResources,
        stats: ListenerStats,
        on_closed: Callable[["AcceptedConnection"], None],
    ) -> None:
        self.info = info
        self.stats = stats
        self._transport = transport
        self._commons = commons
        self._dispatch = commons.open_pipeline(info)
        self._on_closed = on_closed
        self._receiver = FrameReceiver(commons.arena, commons.frame_bytes_max, self._may_claim)
        self._parked: deque[Request | CloseConnection] = deque()
        self._parked_bytes = 0
        self._answers = ResponseOrder()
        self._writer = ResponseWriter(transport, stats)
        self._holder: Request | None = None
        self._holds = 0
        self._mutes = 0  # running timers
        self._reported_parked = 0  # what the backlog counts for this connection
        self._reported_bytes = 0
        self._is_reading = True
        self._sees_end = False  # a CloseConnection is parked: nothing after it counts
        self._unsent_when_expired = 0
        transport.set_write_buffer_limits(high=WRITE_HIGH_BYTES)
        commons.idle.touch(self, commons.clock.monotonic_ms())

    # What the transport calls.

    def get_buffer(self, sizehint: int) -> memoryview:
        """Where the transport puts the next bytes."""
        return self._receiver.buffer()

    def buffer_updated(self, nbytes: int) -> None:
        """Handle all frames that are whole now."""
        self.stats.bytes_in += nbytes
        self._take(self._receiver.received(nbytes))

    def eof_received(self) -> bool:
        """The peer sends no more: finish what it has sent, as Kafka does, which would not have seen the end yet.

        What only waits for something to happen is hurried: a client that is gone is not to leave its socket here for
        as long as its fetch may take.
        """
        if not self._sees_end:
            self._park_end(PEER_CLOSED)
        self._pump()
        return not self._transport.is_closing()

    def pause_writing(self) -> None:
        """The peer does not keep up with its answers."""
        self._holds |= Hold.WRITE

    def resume_writing(self) -> None:
        """The peer has caught up."""
        self._holds &= ~Hold.WRITE
        self._commons.idle.touch(self, self._commons.clock.monotonic_ms())
        self._pump()

    def connection_lost(self, exc: Exception | None) -> None:
        """The transport is gone: nobody waits for the open answers any more."""
        self._holds |= Hold.ENDING
        self._parked.clear()
        self._parked_bytes = 0
        self._answers.cut()
        self._receiver.abandon()
        self._settle()
        self._commons.backlog.forget(self)
        self._commons.idle.remove(self)
        self.info.closed()
        self._on_closed(self)

    # What requests, the backlog and the server call.

    def on_effects_applied(self, request: Request) -> None:
        """Begin later requests, though not inside the handler that says so."""
        if self._holder is request:
            self._release(request)
            self._commons.timers.call_soon(self._pump)

    def on_room(self) -> None:
        """The server has room for requests again."""
        if self._receiver.starved:
            self._take(self._receiver.retry())
        else:
            self._regulate()

    def finish(self) -> None:
        """Begin nothing more, answer what has begun, then close."""
        self._holds |= Hold.ENDING
        self._parked.clear()
        self._parked_bytes = 0
        self._receiver.abandon()
        self._pump()
        if not self._answers:
            self._transport.close()

    def abort(self) -> None:
        """Close at once, whatever is unsent."""
        self._transport.abort()

    def close_if_stuck(self, now_ms: float) -> bool:
        """After too long without progress: close, unless the peer has taken some of its answers since the last call."""
        unsent = self._transport.get_write_buffer_size()
        if unsent and unsent != self._unsent_when_expired:
            self._unsent_when_expired = unsent
            self._commons.idle.touch(self, now_ms)
            return False
        self._transport.abort()
        return True

    # From frames to handlers.

    def _may_claim(self) -> bool:
        return not self._commons.backlog.is_full()

    def _take(self, frames: list[memoryview]) -> None:
        """Park what has arrived, then begin what may begin."""
        if self._sees_end or self._holds & Hold.ENDING:
            return
        if frames:
            self._park(frames)
        failure = self._receiver.failure
        if failure is not None and not self._sees_end:
            self._park_end(failure)
        self._pump()

    def _park(self, frames: list[memoryview]) -> None:
        clock = self._commons.clock
        now_ms, wall_ms = clock.monotonic_ms(), clock.now_ms()
        self._commons.idle.touch(self, now_ms)
        self.stats.requests += len(frames)
        for frame in frames:
            try:
                header, start = decode_request_header(frame)
            except DecodeError as error:
                self._park_end(CloseConnection(str(error)))
                return
            size = len(frame)
            self._parked_bytes += size
            self._parked.append(Request(header, frame[start:], self.info, wall_ms, size, now_ms, self))

    def _park_end(self, reason: CloseConnection) -> None:
        self._sees_end = True
        self._parked.append(reason)
        if self._holder is not None:
            self._holder.on_input_ended()

    def _pump(self) -> None:
        """Begin what is parked while nothing holds, write what came of it, and see whether to read on."""
        parked = self._parked
        last = len(parked) - BEGUN_PER_TURN
        while parked and not self._holds:
            if len(parked) == last:
                self._holds |= Hold.TURN
                self._commons.timers.call_soon(self._next_turn)
                break
            request = parked.popleft()
            if isinstance(request, CloseConnection):
                self._hang_up(request)
                break
            self._parked_bytes -= request.size
            self._begin(request)
        self._writer.flush()
        self._regulate()

    def _next_turn(self) -> None:
        self._holds &= ~Hold.TURN
        self._pump()

    def _begin(self, request: Request) -> None:
        try:
            answer = self._dispatch(request)
        except (CloseConnection, DecodeError) as error:
            self._hang_up(error)
        except Exception as error:  # noqa: BLE001  a bug in one handler: logged, and this connection's end only
            self._hang_up(error)
        else:
            if answer is None or isinstance(answer, list):
                self._answer(request, answer)
            else:
                self._wait_for(request, answer)

    def _answer(self, request: Request, answer: EncodedResponse) -> None:
        if self._answers:
            self._answers.append(Slot(request, answer=answer))
            self._hold_if_withholding()
        elif answer is not None:
            self._writer.add(answer)
        self._mute_if_asked()

    # Answers that come later.

    def _wait_for(self, request: Request, answer: Awaitable[EncodedResponse]) -> None:
        slot = Slot(request, asyncio.ensure_future(answer))
        self._answers.append(slot)
        if not request.is_applied:
            self._holder = request
            self._holds |= Hold.REQUEST
            if self._sees_end:
                request.on_input_ended()
        assert slot.future is not None
        slot.future.add_done_callback(partial(self._on_done, slot))
        self._hold_if_withholding()

    def _on_done(self, slot: Slot, future: "asyncio.Future[EncodedResponse]") -> None:
        """A handler that had to wait has come to its end."""
        slot.request.on_answered()
        if slot.is_cut:
            self._log_late_failure(future)
            return
        self._release(slot.request)
        error = CANCELLED if future.cancelled() else future.exception()
        if error is None:
            self._answers.fill(slot, future.result())
            self._mute_if_asked()
        else:
            self._answers.cut(slot)
            self._hang_up(error)
        for answer in self._answers.take_ready():
            self._writer.add(answer)
        self._hold_if_withholding()
        self._pump()
        if self._holds & Hold.ENDING and not self._answers:
            self._transport.close()

    def _release(self, request: Request) -> None:
        if self._holder is request:
            self._holder = None
            self._holds &= ~Hold.REQUEST

    def _hold_if_withholding(self) -> None:
        answers = self._answers
        if len(answers) >= UNANSWERED_MAX or answers.withheld_bytes > WRITE_HIGH_BYTES:
            self._holds |= Hold.ANSWERS
        else:
            self._holds &= ~Hold.ANSWERS

    # Endings.

    def _mute_if_asked(self) -> None:
        """A request is done, whether or not its answer could leave yet; what its quota asks for begins now."""
        if self.info.mute_ms > 0:
            self._holds |= Hold.MUTE
            self._mutes += 1
            self._commons.timers.call_later(self.info.mute_ms / 1000, self._unmute)
            self.info.mute_ms = 0.0

    def _unmute(self) -> None:
        self._mutes -= 1
        if not self._mutes:  # of several mutes the longest counts
            self._holds &= ~Hold.MUTE
            self._pump()

    def _hang_up(self, error: BaseException) -> None:
        """Close in order: what came before is answered, what came after is dropped."""
        peer = f"{self.info.peer_host}:{self.info.peer_port}"
        if error is PEER_CLOSED:
            log.debug("connection closed by its peer", peer=peer, listener=self.info.listener)
        elif isinstance(error, CloseConnection | DecodeError):
            now_ms = self._commons.clock.monotonic_ms()
            self._commons.warnings.report(
                "closed a connection", now_ms, reason=error, peer=peer, listener=self.info.listener
            )
        else:
            log.error("a request handler failed; closing the connection", error, peer=peer)
        self.finish()

    def _log_late_failure(self, future: "asyncio.Future[EncodedResponse]") -> None:
        """A handler whose peer is gone was cancelled; anything else that it raised is still worth knowing."""
        error = None if future.cancelled() else future.exception()
        if error is not None and not isinstance(error, CloseConnection | DecodeError):
            log.error("a request handler failed after its connection was closed", error)

    # Pressure.

    def _regulate(self) -> None:
        """Tell the backlog what is held here, and read on only while there is room for more."""
        self._settle()
        may_read = self._may_read()
        if may_read is not self._is_reading:
            self._is_reading = may_read
            if may_read:
                self._transport.resume_reading()
            else:
                self._transport.pause_reading()
        if not may_read and not self._holds & Hold.ENDING and self._commons.backlog.is_full():
            self._commons.backlog.wait(self)

    def _settle(self) -> None:
        parked = len(self._parked)
        size = self._parked_bytes + self._answers.open_bytes + self._receiver.claimed_bytes
        more_parked, more_bytes = parked - self._reported_parked, size - self._reported_bytes
        if more_parked or more_bytes:
            self._reported_parked, self._reported_bytes = parked, size
            self._commons.backlog.adjust(more_parked, more_bytes)

    def _may_read(self) -> bool:
        if self._holds & Hold.ENDING or self._sees_end or self._receiver.starved:
            return False
        if not self._parked:
            return True
        # Once stopped, reading waits until half is done: stopping and starting for each request would cost more.
        bound = PARKED_REQUESTS_MAX if self._is_reading else PARKED_REQUESTS_MAX // 2
        return (
            len(self._parked) < bound and self._parked_bytes < PARKED_BYTES_MAX and not self._commons.backlog.is_full()
        )
