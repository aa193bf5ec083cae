"""One client connection: request frames in, responses out in the same order, back-pressure in both directions.

Theory of operation
-------------------
Whole frames go into `_parked`. `_pump` begins them one after another for as long as no *hold* is set. Usually none is:
the handler responds at once, and a frame is parked, begun and answered within one wake-up of the loop, with one write
for all frames (`deferred_writes.py` says when) and neither task nor future.

A handler that has to wait returns an awaitable. Its response gets a slot in `_responses`, and later responses queue
behind it, because Kafka's clients match responses to requests by order. Until the response is there, the request holds
the requests behind it (`Hold.REQUEST`): Kafka processes one request of a connection at a time, and clients rely on
effects in the order of sending. Kafka mutes the whole channel for that. This connection holds only until
`Request.effects_applied()`, so that a pipelining producer with acks=all does not pay a round trip to the followers per
request. A fetch that waits for data never calls it and blocks the requests behind it, as in Kafka.

The other holds: the peer does not read its responses (`WRITE`), too many responses wait for an earlier one
(`RESPONSES`), a quota mutes the connection (`MUTE`), other connections get their turn (`TURN`, `turns.py`), the
connection is about to close (`ENDING`). A held connection reads on until a few requests are parked or the server's
backlog is full. Then TCP slows the peer down. A muted connection reads nothing, as in Kafka, and its parked requests
take no place in the backlog.

No code here allocates on a peer's word or keeps a timer per connection. No connection lasts longer than
`connections.max.idle.ms` without progress, which is a whole frame received or a response taken. Single bytes are no
progress.

This file does not know what a request means, and no listener.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Final

from broker.direct_future import DirectFuture, when_done
from broker.logs import EventLog
from broker.net.receiver import FrameReceiver
from broker.net.request import (
    ANONYMOUS,
    RAW_TOKEN_VERSION,
    CloseConnection,
    ConnectionInfo,
    EncodedResponse,
    LoginRefused,
    Request,
)
from broker.net.response_order import ResponseOrder, ResponseSlot
from broker.net.response_writer import ResponseWriter
from broker.net.server_resources import ServerResources
from broker.net.stats import ListenerStats
from protocol.api_keys import ApiKey
from protocol.errors import DecodeError
from protocol.headers import RequestHeader, decode_request_header

__all__ = ["AcceptedConnection", "CloseConnection", "ConnectionInfo", "Request"]

PARKED_REQUESTS_MAX = 32  # read ahead by a held connection: enough to continue at once, little to keep
PARKED_BYTES_MAX = 256 * 1024
REQUESTS_PER_TURN = 64  # then other connections get their turn: 64 KB can hold thousands of tiny requests
UNANSWERED_MAX = 128  # responses pending with acks=all; the Java client limits itself to 5
WRITE_HIGH_BYTES = 64 * 1024  # with more unsent, the connection begins no request: it holds one response at most

log = EventLog("broker.net")

_RAW_TOKEN = RequestHeader(ApiKey.SASL_AUTHENTICATE, RAW_TOKEN_VERSION, 0, None)
PEER_CLOSED = CloseConnection("closed by the peer")
CANCELLED = CloseConnection("sent a request whose handler was cancelled")


class Hold:
    """Reasons why a connection begins no further request; bits of one integer."""

    REQUEST: Final = 1
    WRITE: Final = 2
    RESPONSES: Final = 4
    MUTE: Final = 8
    TURN: Final = 16
    ENDING: Final = 32


class AcceptedConnection(asyncio.BufferedProtocol):
    """The protocol of an accepted connection, made complete once its transport exists.

    `on_closed` is called exactly once, when the transport is gone.
    """

    __slots__ = (
        "_dispatch",
        "_holder",
        "_holds",
        "_input_ended",
        "_is_reading",
        "_mutes",
        "_on_closed",
        "_parked",
        "_parked_bytes",
        "_receiver",
        "_reported_bytes",
        "_reported_parked",
        "_responses",
        "_shared",
        "_traced",
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
        shared: ServerResources,
        stats: ListenerStats,
        on_closed: Callable[["AcceptedConnection"], None],
    ) -> None:
        self.info = info
        self.stats = stats
        self._transport = transport
        self._shared = shared
        self._dispatch = shared.open_pipeline(info)
        self._on_closed = on_closed
        self._receiver = FrameReceiver(shared.arena, shared.frame_bytes_max, self._may_claim)
        if not info.is_authenticated:
            self._receiver.limit(shared.unauthenticated_frame_bytes_max, "sasl.server.max.receive.size")
            info.when_authenticated(self._on_authenticated)
            shared.unauthenticated.touch(self, shared.clock.monotonic_ms())
        self._parked: deque[Request | CloseConnection] = deque()
        self._parked_bytes = 0
        self._responses = ResponseOrder()
        self._writer = ResponseWriter(transport, stats)
        self._holder: Request | None = None
        self._holds = 0
        self._mutes = 0  # running timers
        self._reported_parked = 0  # counted in the backlog for this connection
        self._reported_bytes = 0
        self._is_reading = True
        self._input_ended = False  # a CloseConnection is parked: later frames are ignored
        self._unsent_when_expired = 0
        self._traced: list[Request] = []  # requests with a trace whose responses were handed to the writer
        transport.set_write_buffer_limits(high=WRITE_HIGH_BYTES)
        shared.idle.touch(self, shared.clock.monotonic_ms())

    # Calls of the transport.

    def get_buffer(self, sizehint: int) -> memoryview:
        """Return the memory for the next bytes."""
        return self._receiver.buffer()

    def buffer_updated(self, nbytes: int) -> None:
        """Handle all frames that are complete now."""
        self.stats.bytes_in += nbytes
        self._take(self._receiver.received(nbytes))

    def eof_received(self) -> bool:
        """Finish the requests that the peer sent before it closed its side, as Kafka does.

        Requests that wait for an event are told: a fetch must not keep the socket of a client that is gone.
        """
        if not self._input_ended:
            self._park_close(PEER_CLOSED)
        self._pump()
        return not self._transport.is_closing()

    def pause_writing(self) -> None:
        """Begin no request while the peer does not read its responses."""
        self._holds |= Hold.WRITE

    def resume_writing(self) -> None:
        """Continue, because the peer has read its responses."""
        self._holds &= ~Hold.WRITE
        self._shared.idle.touch(self, self._shared.clock.monotonic_ms())
        self._pump()

    def connection_lost(self, exc: Exception | None) -> None:
        """Drop all pending responses: the transport is gone."""
        self._holds |= Hold.ENDING
        self._is_reading = False  # a turn that comes later asks nothing of the transport
        self._parked.clear()
        self._parked_bytes = 0
        self._responses.drop_from()
        self._end_traces("connection closed")
        self._receiver.abandon()
        self._report_to_backlog()
        self._shared.backlog.forget(self)
        self._shared.idle.remove(self)
        self._shared.unauthenticated.remove(self)
        self.info.closed()
        self._on_closed(self)

    # Calls of requests, the backlog and the server.

    def on_effects_applied(self, request: Request) -> None:
        """Begin later requests in the next turn of the loop, not inside the handler that calls this."""
        if self._holder is request:
            self._release(request)
            self._shared.timers.call_soon(self._pump)

    def write_responses(self) -> None:
        """Write the responses that waited for others, unless the connection was aborted meanwhile."""
        if not self._transport.is_closing():
            self._writer.flush()

    def on_turn(self) -> None:
        """Begin the requests that are parked: other connections had their turn."""
        self._holds &= ~Hold.TURN
        self._pump()

    def on_room(self) -> None:
        """Continue reading, because the server has room for requests again."""
        if self._receiver.starved:
            self._take(self._receiver.retry())
        else:
            self._regulate_reading()

    def finish(self) -> None:
        """Begin no further request, response the requests under way, then close."""
        self._holds |= Hold.ENDING
        self._parked.clear()
        self._parked_bytes = 0
        self._receiver.abandon()
        self._pump()
        if not self._responses:
            self._transport.close()

    def abort(self) -> None:
        """Close at once and drop unsent responses."""
        self._transport.abort()

    def close_if_stuck(self, now_ms: float) -> bool:
        """Close a connection without progress, unless the peer read some of its responses since the last call."""
        unsent = self._transport.get_write_buffer_size()
        if unsent and unsent != self._unsent_when_expired:
            self._unsent_when_expired = unsent
            self._shared.idle.touch(self, now_ms)
            return False
        self._transport.abort()
        return True

    # Frames and handlers.

    def _may_claim(self) -> bool:
        return not self._shared.backlog.is_full()

    def _take(self, frames: list[memoryview]) -> None:
        """Park the frames that have arrived, then begin the requests that may begin."""
        if self._input_ended or self._holds & Hold.ENDING:
            return
        now_ms = self._shared.clock.monotonic_ms()
        if frames:
            self._park(frames, now_ms)
        if self._receiver.failure is not None and not self._input_ended:
            self._park_close(self._receiver.failure)
        self._pump(now_ms)

    def _park(self, frames: list[memoryview], now_ms: float) -> None:
        wall_ms = self._shared.clock.now_ms()
        self._shared.idle.touch(self, now_ms)
        self.stats.requests += len(frames)
        for frame in frames:
            try:
                header, start = (_RAW_TOKEN, 0) if self.info.takes_raw_tokens else decode_request_header(frame)
            except DecodeError as error:
                self._park_close(CloseConnection(str(error)))
                return
            size = len(frame)
            self._parked_bytes += size
            self._parked.append(Request(header, frame[start:], self.info, wall_ms, size, now_ms, self))

    def _park_close(self, reason: CloseConnection) -> None:
        self._input_ended = True
        self._parked.append(reason)
        if self._holder is not None:
            self._holder.on_input_ended()

    def _pump(self, read_ms: float = -1.0) -> None:
        """Begin parked requests while there is no hold, write their responses, and decide whether to read on.

        `read_ms` is the time at which requests were read; their responses may wait for the end of the loop's turn.
        """
        parked, turns = self._parked, self._shared.turns
        last = len(parked) - REQUESTS_PER_TURN
        while parked and not self._holds:
            if len(parked) == last:
                self._holds |= Hold.TURN
                self._shared.timers.call_soon(self.on_turn)
                break
            request = parked[0]
            if isinstance(request, CloseConnection):
                parked.popleft()
                self._close_in_order(request)
                break
            if turns.waits(request, self):
                self._holds |= Hold.TURN
                break
            parked.popleft()
            self._parked_bytes -= request.size
            self._begin(request)
        if read_ms < 0 or self._traced or self._holds & Hold.ENDING:
            self._writer.flush()
        elif self._writer.has_responses:
            self._shared.writes.add(self, read_ms)
        if self._traced and not self._holds & Hold.WRITE:
            self._end_traces("answered")
        self._regulate_reading()

    def _begin(self, request: Request) -> None:
        try:
            response = self._dispatch(request)
        except (CloseConnection, DecodeError) as error:
            self._close_in_order(error)
        except Exception as error:  # noqa: BLE001  a bug in one handler: logged, and this connection's end only
            self._close_in_order(error)
        else:
            if response is None or isinstance(response, list):
                self._respond(request, response)
            else:
                self._wait_for(request, response)

    def _respond(self, request: Request, response: EncodedResponse) -> None:
        if self._responses:
            self._responses.append(ResponseSlot(request, response=response))
            self._hold_if_withheld()
        elif response is not None:
            self._writer.add(response)
            if request.trace is not None:
                self._traced.append(request)
        self._mute_if_asked()

    # Responses that are not ready at once.

    def _wait_for(self, request: Request, response: Awaitable[EncodedResponse]) -> None:
        slot = ResponseSlot(request, asyncio.ensure_future(response))
        self._responses.append(slot)
        if not request.is_applied:
            self._holder = request
            self._holds |= Hold.REQUEST
            if self._input_ended:
                request.on_input_ended()
        assert slot.future is not None
        when_done(slot.future, partial(self._on_done, slot))
        self._hold_if_withheld()
        self._mute_if_asked()

    def _on_done(self, slot: ResponseSlot, future: "asyncio.Future[EncodedResponse]") -> None:
        """Take the outcome of a handler that had to wait."""
        slot.request.on_answered()
        if slot.is_dropped:
            if slot.request.trace is not None:
                slot.request.trace.finish(slot.request, "connection closed")
            self._log_late_failure(future)
            return
        self._release(slot.request)
        error = CANCELLED if future.cancelled() else future.exception()
        if error is None:
            self._responses.fill(slot, future.result())
            self._mute_if_asked()
        else:
            self._responses.drop_from(slot)
            self._close_in_order(error)
        for ready in self._responses.take_ready():
            if ready.response is not None:
                self._writer.add(ready.response)
            if ready.request.trace is not None:
                self._traced.append(ready.request)
        self._hold_if_withheld()
        if isinstance(future, DirectFuture) and self._would_begin_requests():
            self._writer.flush()
            self._shared.timers.call_soon(self._pump)
        else:
            self._pump()
        if self._holds & Hold.ENDING and not self._responses:
            self._transport.close()

    def _would_begin_requests(self) -> bool:
        """Whether `_pump` may begin requests, which must not happen inside the work that sets a result."""
        return bool(self._parked) or not self._is_reading or self._shared.backlog.has_waiters

    def _release(self, request: Request) -> None:
        if self._holder is request:
            self._holder = None
            self._holds &= ~Hold.REQUEST

    def _hold_if_withheld(self) -> None:
        responses = self._responses
        if len(responses) >= UNANSWERED_MAX or responses.withheld_bytes > WRITE_HIGH_BYTES:
            self._holds |= Hold.RESPONSES
        else:
            self._holds &= ~Hold.RESPONSES

    # Authentication, muting and closing.

    def _on_authenticated(self, is_first: bool) -> None:
        if is_first:
            self._shared.unauthenticated.remove(self)
            self._receiver.limit(self._shared.frame_bytes_max, "socket.request.max.bytes")
            self.stats.authenticated += 1
        else:
            self.stats.reauthenticated += 1

    def _mute_if_asked(self) -> None:
        """Begin the mute that a quota set, even if the response of the request cannot leave yet."""
        if self.info.mute_ms > 0:
            self._holds |= Hold.MUTE
            if not self._mutes:
                self.info.muted_from_ms = self._shared.clock.monotonic_ms()
            self._mutes += 1
            self._shared.timers.call_later(self.info.mute_ms / 1000, self._unmute)
            self.info.mute_ms = 0.0

    def _unmute(self) -> None:
        self._mutes -= 1
        if not self._mutes:  # the longest of several mutes counts
            self._holds &= ~Hold.MUTE
            self.info.muted_until_ms = self._shared.clock.monotonic_ms()
            self._pump()

    def _close_in_order(self, error: BaseException) -> None:
        """Close in order: earlier requests are answered, later ones are dropped."""
        peer = f"{self.info.peer_host}:{self.info.peer_port}"
        if error is PEER_CLOSED:
            log.debug("connection closed by its peer", peer=peer, listener=self.info.listener)
        elif isinstance(error, CloseConnection | DecodeError):
            now_ms = self._shared.clock.monotonic_ms()
            info = self.info
            known = {} if info.principal == ANONYMOUS else {"principal": info.principal}
            self._shared.warnings.report(
                "closed a connection", now_ms, reason=error, peer=peer, listener=info.listener, **known
            )
        else:
            log.error("request handler failed; the connection is closed", error, peer=peer)
        if isinstance(error, LoginRefused):
            self.stats.failed_authentications += 1
            if error.last_response is not None and not self._responses:
                self._writer.add(error.last_response)
        self.finish()

    def _end_traces(self, outcome: str) -> None:
        """End the traces of requests whose responses the transport has taken, or will never take."""
        traced, self._traced = self._traced, []
        for request in traced:
            if request.trace is not None:
                request.trace.finish(request, outcome)

    def _log_late_failure(self, future: "asyncio.Future[EncodedResponse]") -> None:
        """Log the failure of a handler whose connection is gone; its cancellation is expected."""
        error = None if future.cancelled() else future.exception()
        if error is not None and not isinstance(error, CloseConnection | DecodeError):
            log.error("request handler failed after its connection was closed", error)

    # Back-pressure.

    def _regulate_reading(self) -> None:
        """Report to the backlog, and read on only while there is room."""
        self._report_to_backlog()
        may_read = self._may_read()
        if may_read is not self._is_reading:
            self._is_reading = may_read
            if may_read:
                self._transport.resume_reading()
            else:
                self._transport.pause_reading()
        if not may_read and not self._holds & Hold.ENDING and self._shared.backlog.is_full():
            self._shared.backlog.wait(self)

    def _report_to_backlog(self) -> None:
        # A muted client must not take the places of others for the time that its quota makes it wait.
        parked = 0 if self._holds & Hold.MUTE else len(self._parked)
        size = self._parked_bytes + self._responses.open_bytes + self._receiver.claimed_bytes
        more_parked, more_bytes = parked - self._reported_parked, size - self._reported_bytes
        if more_parked or more_bytes:
            self._reported_parked, self._reported_bytes = parked, size
            self._shared.backlog.adjust(more_parked, more_bytes)

    def _may_read(self) -> bool:
        if self._holds & (Hold.ENDING | Hold.MUTE) or self._input_ended or self._receiver.starved:
            return False
        if not self._parked:
            return True
        # Once stopped, reading waits until half is done: stopping and starting for each request would cost more.
        bound = PARKED_REQUESTS_MAX if self._is_reading else PARKED_REQUESTS_MAX // 2
        return (
            len(self._parked) < bound and self._parked_bytes < PARKED_BYTES_MAX and not self._shared.backlog.is_full()
        )
