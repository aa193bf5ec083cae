"""Idle connections: `connections.max.idle.ms`; and connections that have not authenticated, by their age.

One ordered table for all connections replaces a timer for each. Activity moves an entry to the end, so that idle
connections gather at the front, and a check without idle connections is free.
"""

from collections import OrderedDict
from collections.abc import Iterator
from typing import Generic, TypeVar

C = TypeVar("C")


class IdleOrder(Generic[C]):
    """Connections in the order of their last activity. Times are milliseconds of a monotonic clock."""

    __slots__ = ("_last_active", "_max_idle_ms")

    def __init__(self, max_idle_ms: int) -> None:
        self._max_idle_ms = max_idle_ms  # negative for no limit
        self._last_active: OrderedDict[C, float] = OrderedDict()

    def __len__(self) -> int:
        return len(self._last_active)

    def __iter__(self) -> Iterator[C]:
        """Return the connections, longest idle first."""
        return iter(self._last_active)

    def touch(self, connection: C, now_ms: float) -> None:
        """Record activity, or a new connection."""
        self._last_active[connection] = now_ms
        self._last_active.move_to_end(connection)

    def remove(self, connection: C) -> None:
        """Remove a connection."""
        self._last_active.pop(connection, None)

    def expired(self, now_ms: float) -> list[C]:
        """Return the connections that were idle for longer than allowed. They stay in the order until removed."""
        if self._max_idle_ms < 0:
            return []
        found = []
        for connection, last_active in self._last_active.items():
            if now_ms - last_active <= self._max_idle_ms:
                break
            found.append(connection)
        return found
