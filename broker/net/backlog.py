"""Requests that one server has received and not yet answered: `queued.max.requests`, `queued.max.request.bytes`.

This file owns the counts and the queue of connections that wait for room. It does not know what a connection is.
"""

from typing import Protocol


class Waiter(Protocol):
    """A connection that stopped reading for want of room."""

    def on_room(self) -> None:
        """Try again: there may be room. A waiter that finds none waits anew."""
        ...


class RequestBacklog:
    """The requests of all connections that occupy memory: arriving, parked, or unanswered.

    Kafka bounds the queue in front of its handler threads. Handlers here run as soon as a frame is complete, so only
    requests behind an earlier one of the same connection queue up: `parked`. A frame is accepted while there is any
    room at all and may then exceed the bound, as in Kafka: a frame larger than the bound could never pass otherwise.
    """

    __slots__ = ("_bytes_max", "_is_admitting", "_parked_max", "_waiters", "bytes", "parked")

    def __init__(self, parked_max: int, bytes_max: int) -> None:
        self._parked_max = parked_max
        self._bytes_max = bytes_max
        self._waiters: dict[Waiter, None] = {}  # in order of arrival
        self._is_admitting = False
        self.parked = 0
        self.bytes = 0

    def is_full(self) -> bool:
        """Whether connections should leave further requests in their sockets."""
        return self.parked >= self._parked_max or 0 <= self._bytes_max <= self.bytes

    @property
    def has_waiters(self) -> bool:
        """Whether connections wait for room."""
        return bool(self._waiters)

    @property
    def bytes_left(self) -> int:
        """The rest of `queued.max.request.bytes`; -1 when it sets no bound."""
        return -1 if self._bytes_max < 0 else max(0, self._bytes_max - self.bytes)

    def adjust(self, parked: int, size: int) -> None:
        """Add the change of one connection's requests, then admit waiters while there is room."""
        self.parked += parked
        self.bytes += size
        if self._waiters and not self._is_admitting:
            self._admit()

    def _admit(self) -> None:
        # Admitted waiters report changes of their own; without the flag that would recurse once per waiter.
        self._is_admitting = True
        try:
            while self._waiters and not self.is_full():
                waiter = next(iter(self._waiters))
                del self._waiters[waiter]
                waiter.on_room()
        finally:
            self._is_admitting = False

    def wait(self, waiter: Waiter) -> None:
        """Queue up; `waiter.on_room()` is called once, unless `forget` comes first."""
        self._waiters[waiter] = None

    def forget(self, waiter: Waiter) -> None:
        """Leave the queue."""
        self._waiters.pop(waiter, None)
