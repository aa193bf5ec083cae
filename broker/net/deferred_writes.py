"""Responses of requests that arrived together are written together.

A write enters the kernel, which delivers the bytes and wakes a client that waits for them. Where each of many
connections has one request in flight, a write after each request costs a third of the broker's processor time: the
kernel's work displaces the broker's code and data from the caches, and the client wakes once per response. A connection
therefore handles the requests that it has read, and leaves the write to the end of the loop's turn.

Latency is bounded. The first response of a turn is written at once, so a client that is alone waits for nothing. The
others wait until the loop has read every socket that was ready, until `limit` connections wait, or for WAIT_MAX_MS and
one request.
"""

from collections import deque
from typing import Final, Protocol

from broker.net.loop_timers import EventLoopTimers

CONNECTIONS_MAX: Final = 32
"""Connections whose responses wait for each other."""
WAIT_MAX_MS: Final = 1.0


class WritingConnection(Protocol):
    """A connection with responses that are not written yet."""

    def write_responses(self) -> None:
        """Write the responses that are ready, unless the connection is closed by now."""
        ...


class DeferredWrites:
    """The connections of a server whose responses wait for each other. A `limit` of 1 defers nothing."""

    __slots__ = ("_has_turn", "_limit", "_loop", "_since_ms", "_waiting")

    def __init__(self, loop: EventLoopTimers, limit: int = CONNECTIONS_MAX) -> None:
        self._loop = loop
        self._limit = limit
        self._waiting: deque[WritingConnection] = deque()
        self._since_ms = 0.0
        self._has_turn = False  # a response was written in this turn, and `_end_turn` is scheduled

    def add(self, connection: WritingConnection, read_ms: float) -> None:
        """Write the responses of a connection now or at the end of the turn. Its requests were read at `read_ms`."""
        if self._limit <= 1:
            connection.write_responses()
        elif not self._has_turn:
            self._schedule()
            connection.write_responses()
        else:
            if not self._waiting:
                self._since_ms = read_ms
            self._waiting.append(connection)
            if len(self._waiting) >= self._limit or read_ms - self._since_ms >= WAIT_MAX_MS:
                self._write()

    def _schedule(self) -> None:
        self._has_turn = True
        self._loop.call_soon(self._end_turn)

    def _end_turn(self) -> None:
        self._has_turn = False
        self._write()

    def _write(self) -> None:
        waiting = self._waiting
        try:
            while waiting:
                waiting.popleft().write_responses()
        finally:
            if waiting and not self._has_turn:  # a write failed: the others follow in the next turn
                self._schedule()
