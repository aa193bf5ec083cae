"""Accepted sockets wait for the set-up of their connections, which takes several times as long as the accept itself.

The kernel keeps `socket.listen.backlog.size` connections that are not accepted yet (50, as in Kafka), and drops further
SYNs; their clients try again after one second, then after two, four and so on. If the loop set up 64 connections before
it accepts again, the clients that return to a restarted broker would overflow that queue. A turn of the loop therefore
sets up a few connections only, and the sockets that are accepted meanwhile wait in memory.
"""

from collections import deque
from collections.abc import Callable
from typing import Final

from broker.net.loop_timers import EventLoopTimers

OPENED_PER_TURN: Final = 4
"""Connections that are set up in one turn of the loop, about half a millisecond."""
WAITING_MAX: Final = 1_000
"""Accepted sockets that wait for their set-up; with more, accepting pauses."""


class Openings:
    """The accepted sockets of a server whose connections are not set up yet.

    `on_room` is called when fewer than WAITING_MAX wait again.
    """

    __slots__ = ("_has_turn", "_loop", "_on_room", "_room", "_waiting")

    def __init__(self, loop: EventLoopTimers, on_room: Callable[[], None]) -> None:
        self._loop = loop
        self._on_room = on_room
        self._waiting: deque[Callable[[], object]] = deque()
        self._room = OPENED_PER_TURN  # connections that may still be set up in this turn
        self._has_turn = False

    def is_full(self) -> bool:
        """Whether accepting has to pause."""
        return len(self._waiting) >= WAITING_MAX

    def add(self, set_up: Callable[[], object]) -> None:
        """Call `set_up` now, or in a later turn of the loop if this one has set up enough."""
        if self._room:
            self._room -= 1
            self._schedule()
            set_up()
        else:
            self._waiting.append(set_up)

    def _schedule(self) -> None:
        if not self._has_turn:
            self._has_turn = True
            self._loop.call_soon(self._on_turn)

    def _on_turn(self) -> None:
        self._has_turn = False
        was_full = self.is_full()
        self._room = OPENED_PER_TURN
        while self._waiting and self._room:
            self.add(self._waiting.popleft())
        if was_full and not self.is_full():
            self._on_room()
