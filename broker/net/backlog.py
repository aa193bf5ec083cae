"""What one server has received and not yet answered: `queued.max.requests` and `queued.max.request.bytes`.

This file owns the counts and the line of connections that wait for room. It does not know what a connection is.
"""

from typing import Protocol


class Waiter(Protocol):
    """Somebody who stopped reading for want of room."""

    def on_room(self) -> None:
        """There may be room again; whoever still finds none waits anew."""
        ...


class RequestBacklog:
    """The requests of all connections that occupy memory: arriving, waiting for their turn, or unanswered.

    Kafka bounds the queue in front of its handler threads. Handlers here run as soon as a frame is whole, so what
    queues is what waits behind an earlier request of the same connection: `parked`. A frame is taken in as long as
    there is any room at all, and may then exceed the bound, as in Kafka: one larger than the bound could never pass.
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
        """Whether what can wait in its socket should wait there."""
        return self.parked >= self._parked_max or 0 <= self._bytes_max <= self.bytes

    @property
    def bytes_left(self) -> int:
        """What `queued.max.request.bytes` still allows; -1 when it sets no bound."""
        return -1 if self._bytes_max < 0 else max(0, self._bytes_max - self.bytes)

    def adjust(self, parked: int, size: int) -> None:
        """Add the change in one connection's holdings, then let those in who wait for room that there is now."""
        self.parked += parked
        self.bytes += size
        if self._waiters and not self._is_admitting:
            self._admit()

    def _admit(self) -> None:
        # Those let in report changes of their own; without the flag that would recurse once per waiter.
        self._is_admitting = True
        try:
            while self._waiters and not self.is_full():
                waiter = next(iter(self._waiters))
                del self._waiters[waiter]
                waiter.on_room()
        finally:
            self._is_admitting = False

    def wait(self, waiter: Waiter) -> None:
        """Stand in line; `waiter.on_room()` is called once, unless `forget` comes first."""
        self._waiters[waiter] = None

    def forget(self, waiter: Waiter) -> None:
        """Leave the line."""
        self._waiters.pop(waiter, None)
