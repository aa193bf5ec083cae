"""A mapping bounded by weight and by idle time: what was used least recently goes first.

Bookkeeping only, for one thread at a time. What is not used for too long goes when somebody looks next.
"""

from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterator
from dataclasses import dataclass
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


@dataclass(slots=True)
class _Entry(Generic[V]):
    value: V
    weight: int
    used_ms: float


class WeightedLru(Generic[K, V]):
    """`max_weight` and `max_idle_ms` None are without bound. `gone` is told of each entry that had to go."""

    def __init__(
        self,
        max_weight: int | None,
        max_idle_ms: int | None,
        now_ms: Callable[[], float],
        gone: Callable[[K, V], None] = lambda key, value: None,
    ) -> None:
        self._max_weight = max_weight
        self._max_idle_ms = max_idle_ms
        self._now_ms = now_ms
        self._gone = gone
        self._entries: OrderedDict[K, _Entry[V]] = OrderedDict()  # least recently used first
        self.weight = 0

    def __len__(self) -> int:
        return len(self._entries)

    def __contains__(self, key: K) -> bool:
        """Does not count as a use."""
        return key in self._entries

    def __iter__(self) -> Iterator[K]:
        return iter(self._entries)

    def get(self, key: K) -> V | None:
        self._expire()
        entry = self._entries.get(key)
        if entry is None:
            return None
        entry.used_ms = self._now_ms()
        self._entries.move_to_end(key)
        return entry.value

    def put(self, key: K, value: V, weight: int) -> None:
        """In the place of what was there. What is heavier than all that may be here goes at once."""
        self.pop(key)
        self._entries[key] = _Entry(value, weight, self._now_ms())
        self.weight += weight
        self._expire()
        while self._max_weight is not None and self.weight > self._max_weight:
            self._drop_first()

    def pop(self, key: K) -> V | None:
        """Takes an entry out, of which `gone` is not told."""
        entry = self._entries.pop(key, None)
        if entry is None:
            return None
        self.weight -= entry.weight
        return entry.value

    def _expire(self) -> None:
        if self._max_idle_ms is None:
            return
        oldest_ms = self._now_ms() - self._max_idle_ms
        while self._entries and next(iter(self._entries.values())).used_ms < oldest_ms:
            self._drop_first()

    def _drop_first(self) -> None:
        key, entry = self._entries.popitem(last=False)
        self.weight -= entry.weight
        self._gone(key, entry.value)
