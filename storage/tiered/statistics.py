"""Counts of requests to the object store and of cache look-ups, for metrics. All objects are thread-safe."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import field, replace
from time import monotonic

from protocol.lazy_dataclass import lazy_dataclass
from storage.tiered.errors import ObjectNotFound, ObjectStoreError, StoreThrottled


@lazy_dataclass(slots=True)
class RequestCounts:
    """Requests of one operation since the start; each attempt counts. `total_s` is the time until the response."""

    requests: int = 0
    errors: int = 0
    throttled: int = 0
    total_s: float = 0.0
    max_s: float = 0.0


class StoreStatistics:
    """Requests by operation of the store's API, and bytes of object contents."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counts: dict[str, RequestCounts] = {}
        self._sent_bytes = 0
        self._received_bytes = 0

    @contextmanager
    def request(self, operation: str, sent_bytes: int = 0) -> Iterator[None]:
        """Count one attempt. A missing object is an answer; `sent_bytes` count when the attempt succeeds."""
        began, error = monotonic(), None
        try:
            yield
        except ObjectStoreError as caught:
            error = caught
            raise
        finally:
            elapsed = monotonic() - began
            with self._lock:
                counts = self._counts.setdefault(operation, RequestCounts())
                counts.requests += 1
                counts.total_s += elapsed
                counts.max_s = max(counts.max_s, elapsed)
                if error is None:
                    self._sent_bytes += sent_bytes
                elif isinstance(error, StoreThrottled):
                    counts.throttled += 1
                elif not isinstance(error, ObjectNotFound):
                    counts.errors += 1

    def received(self, size_bytes: int) -> None:
        with self._lock:
            self._received_bytes += size_bytes

    @property
    def sent_bytes(self) -> int:
        return self._sent_bytes

    @property
    def received_bytes(self) -> int:
        return self._received_bytes

    def counts(self) -> dict[str, RequestCounts]:
        """Return a copy of the counts by operation."""
        with self._lock:
            return {operation: replace(counts) for operation, counts in self._counts.items()}


class CacheStatistics:
    """Look-ups in a cache: `hits`, `misses`, and `evictions` of entries that expired or made room."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.hits = 0
        self.misses = 0
        self.evictions = 0

    def looked_up(self, *, is_hit: bool) -> None:
        with self._lock:
            self.hits += is_hit
            self.misses += not is_hit

    def evicted(self) -> None:
        with self._lock:
            self.evictions += 1


@lazy_dataclass(frozen=True, slots=True)
class RemoteStorageStatistics:
    """The statistics of one node's remote storage."""

    store: StoreStatistics = field(default_factory=StoreStatistics)
    chunks: CacheStatistics = field(default_factory=CacheStatistics)
