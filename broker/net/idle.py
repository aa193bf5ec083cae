"""Which connections have been silent for too long: `connections.max.idle.ms`.

One ordered table for all connections instead of a timer for each: activity moves an entry to the end, so that the
silent ones gather at the front and looking for them costs nothing while there are none.
"""

from collections import OrderedDict
from collections.abc import Iterator
from typing import Generic, TypeVar

C = TypeVar("C")


class IdleOrder(Generic[C]):
    """Connections in the order of their last activity. Times are milliseconds of a clock that never goes back."""

    __slots__ = ("_last_active", "_max_idle_ms")

    def __init__(self, max_idle_ms: int) -> None:
        self._max_idle_ms = max_idle_ms  # negative: never
        self._last_active: OrderedDict[C, float] = OrderedDict()

    def __len__(self) -> int:
        return len(self._last_active)

    def __iter__(self) -> Iterator[C]:
        """The connections, longest silent first."""
        return iter(self._last_active)

    def touch(self, connection: C, now_ms: float) -> None:
        """Note a sign of life, or a new connection."""
        self._last_active[connection] = now_ms
        self._last_active.move_to_end(connection)

    def remove(self, connection: C) -> None:
        """Forget a connection."""
        self._last_active.pop(connection, None)

    def expired(self, now_ms: float) -> list[C]:
        """The connections without a sign of life for longer than allowed. They stay in the order until removed."""
        if self._max_idle_ms < 0:
            return []
        found = []
        for connection, last_active in self._last_active.items():
            if now_ms - last_active <= self._max_idle_ms:
                break
            found.append(connection)
        return found
