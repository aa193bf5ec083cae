"""Results of remote reads, kept until a request fetches them; bounded in bytes and in age.

One read may bring several results that share memory. The memory counts once, for as long as any of its results is kept.
Delivered results are evicted first.
"""

from collections import OrderedDict
from collections.abc import Mapping
from functools import partial
from typing import Generic, TypeVar

from broker.runtime.loop.waiters import Deadline, Deadlines
from protocol.lazy_dataclass import lazy_dataclass

K = TypeVar("K")
V = TypeVar("V")


@lazy_dataclass(slots=True, eq=False)
class _Memory:
    """Memory that several results share: `kept` counts the results, `awaiting` those that are not delivered."""

    size_bytes: int
    kept: int
    awaiting: int


@lazy_dataclass(slots=True, eq=False)
class _Kept(Generic[V]):
    value: V
    memory: _Memory
    deadline: Deadline
    is_delivered: bool = False


class KeptResults(Generic[K, V]):
    """Results by the keys of their reads."""

    def __init__(self, deadlines: Deadlines) -> None:
        self._deadlines = deadlines
        self._kept: OrderedDict[K, _Kept[V]] = OrderedDict()  # in the order of eviction
        self.size_bytes = 0
        """Memory of all kept results."""
        self.awaiting_bytes = 0
        """Memory that has results which are not delivered."""

    def get(self, key: K) -> V | None:
        kept = self._kept.get(key)
        return None if kept is None else kept.value

    def __contains__(self, key: K) -> bool:
        return key in self._kept

    def put(self, results: Mapping[K, V], size_bytes: int, kept_ms: int, max_bytes: int) -> None:
        """Keep results that share memory of `size_bytes` for `kept_ms`.

        Older results are evicted beyond `max_bytes`; the results of one read are kept however large they are.
        """
        memory = _Memory(size_bytes, 0, 0)
        self.size_bytes += size_bytes
        self.awaiting_bytes += size_bytes
        for key, value in results.items():
            self._drop(key)
            self._kept[key] = _Kept(value, memory, self._deadlines.after_ms(kept_ms, partial(self._drop, key)))
            memory.kept += 1
            memory.awaiting += 1
        while self.size_bytes > max_bytes and len(self._kept) > memory.kept:
            self._drop(next(iter(self._kept)))

    def delivered(self, key: K, value: V, kept_ms: int) -> None:
        """Note that a response contains a result; keep the result for `kept_ms` at most, and evict it first."""
        kept = self._kept.get(key)
        if kept is None or kept.value is not value:
            return
        self._kept.move_to_end(key, last=False)
        kept.deadline.cancel()
        kept.deadline = self._deadlines.after_ms(kept_ms, partial(self._drop, key))
        self._note_delivered(kept)

    def clear(self) -> None:
        """Drop all results."""
        for key in tuple(self._kept):
            self._drop(key)

    def _drop(self, key: K) -> None:
        kept = self._kept.pop(key, None)
        if kept is None:
            return
        kept.deadline.cancel()
        self._note_delivered(kept)
        kept.memory.kept -= 1
        if not kept.memory.kept:
            self.size_bytes -= kept.memory.size_bytes

    def _note_delivered(self, kept: _Kept[V]) -> None:
        if kept.is_delivered:
            return
        kept.is_delivered = True
        kept.memory.awaiting -= 1
        if not kept.memory.awaiting:
            self.awaiting_bytes -= kept.memory.size_bytes
