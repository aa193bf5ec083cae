"""An LRU cache bounded by size and by the time since an entry was last used, over `cachetools.TTLCache`.

The time to live of a `TTLCache` starts when an entry is stored; here every use starts it again, as
`fetch.chunk.cache.retention.ms` and its siblings promise. For one thread at a time, like cachetools itself.
"""

import math
from collections.abc import Callable, Hashable
from typing import TypeVar

from cachetools import TTLCache

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class IdleCache(TTLCache[K, V, float]):
    """A cache of at most `max_size` (None: unbounded) whose entries expire `max_idle_ms` after their last use."""

    def __init__(
        self,
        max_size: int | None,
        max_idle_ms: int | None,
        now_ms: Callable[[], float],
        *,
        size_of: Callable[[V], int] = lambda value: 1,
        on_evicted: Callable[[K], None] = lambda key: None,
    ) -> None:
        """`on_evicted` receives the key of each entry that expired or made room, before the call returns."""
        self._on_evicted = on_evicted
        super().__init__(
            math.inf if max_size is None else max_size,
            math.inf if max_idle_ms is None else max_idle_ms,
            now_ms,
            size_of,
        )

    def use(self, key: K) -> V | None:
        """Return the value of `key` and restart its idle time; None if it is absent or has expired."""
        self.expire()
        value = self.get(key)
        if value is not None:
            self[key] = value
        return value

    def put(self, key: K, value: V) -> None:
        """Store a value, unless it is larger than the whole cache."""
        self.pop(key, None)
        if self.getsizeof(value) <= self.maxsize:
            self[key] = value

    def popitem(self) -> tuple[K, V]:
        """Remove the entry that was used least recently."""
        key, value = super().popitem()
        self._on_evicted(key)
        return key, value

    def expire(self, time: float | None = None) -> list[tuple[K, V]]:
        """Remove and return the expired entries."""
        expired = super().expire(time)
        for key, _ in expired:
            self._on_evicted(key)
        return expired
