"""Turns of connections whose requests arrive together: requests that yield are begun after the others.

The event loop reads one socket after another, and a request is begun as soon as its frame is complete. Under load the
order of the sockets would decide the order of the work. A request that yields waits until the loop has read every
socket that was ready. After that a few connections get their turn, and the loop reads again.

A turn serves at least as many connections as other requests were begun since the last turn, or since the first of the
connections began to wait. Requests that yield keep at least half of the requests of a busy loop, whatever the others
do.
"""

from collections import deque
from collections.abc import Callable
from typing import Protocol

from broker.net.loop_timers import EventLoopTimers
from broker.net.request import Request

CONNECTIONS_PER_TURN = 4
"""At least as many waiting connections get their turn before the loop reads again."""


class WaitingConnection(Protocol):
    """A connection that waits for its turn."""

    def on_turn(self) -> None:
        """Begin the requests that are parked now."""
        ...


def never(_request: Request) -> bool:
    """Let no request yield."""
    return False


class Turns:
    """The connections that wait for their turn. `yields` tells whether a request lets other connections go first."""

    __slots__ = ("_current", "_is_scheduled", "_loop", "_others", "_waiting", "_yields")

    def __init__(self, loop: EventLoopTimers, yields: Callable[[Request], bool]) -> None:
        self._loop = loop
        self._yields = yields
        self._waiting: deque[WaitingConnection] = deque()
        self._current: WaitingConnection | None = None
        self._others = 0  # requests that did not yield, since the last turn or the first wait after it
        self._is_scheduled = False

    def waits(self, request: Request, connection: WaitingConnection) -> bool:
        """Whether the connection has to wait before it begins `request`; its `on_turn` is called once then."""
        if not self._yields(request):
            self._others += 1
            return False
        if self._current is connection:
            return False
        if not self._is_scheduled:
            self._others = 0
            self._schedule()
        self._waiting.append(connection)
        return True

    def _schedule(self) -> None:
        self._is_scheduled = True
        self._loop.call_soon(self._run)

    def _run(self) -> None:
        self._is_scheduled = False
        count = min(max(CONNECTIONS_PER_TURN, self._others), len(self._waiting))
        self._others = 0
        try:
            for _ in range(count):
                self._current = connection = self._waiting.popleft()
                connection.on_turn()
        finally:
            self._current = None
            if self._waiting and not self._is_scheduled:
                self._schedule()
