"""Metrics of the object store behind remote storage: requests, bytes, and the caches of chunks and indexes."""

from collections.abc import Callable, Iterable, Mapping
from typing import Protocol

from broker.metrics.family import Family, Sample, counter

_STORE = "ottla_remote_store_"


class Requests(Protocol):
    """Requests of one operation; see `storage.tiered.statistics.RequestCounts`."""

    requests: int
    errors: int
    throttled: int
    total_s: float
    max_s: float


class StoreFigures(Protocol):
    """Requests to an object store; see `storage.tiered.statistics.StoreStatistics`."""

    @property
    def sent_bytes(self) -> int: ...

    @property
    def received_bytes(self) -> int: ...

    def counts(self) -> Mapping[str, Requests]:
        """Return the counts by operation."""
        ...


class CacheFigures(Protocol):
    """Look-ups in a cache, and evicted entries."""

    hits: int
    misses: int
    evictions: int


def store_families(store: StoreFigures) -> list[Family]:
    """Return requests, errors, throttled requests, times by operation of the store's API, and bytes."""

    def by_operation(name: str, text: str, value: Callable[[Requests], float]) -> Family:
        def read() -> Iterable[Sample]:
            return [Sample(value(each), {"operation": operation}) for operation, each in store.counts().items()]

        return Family(f"{_STORE}{name}_total", text, "counter", read)

    def times() -> Iterable[Sample]:
        for operation, each in store.counts().items():
            yield Sample(each.requests, {"operation": operation}, "_count")
            yield Sample(each.total_s, {"operation": operation}, "_sum")

    def longest() -> Iterable[Sample]:
        return [Sample(each.max_s, {"operation": operation}) for operation, each in store.counts().items()]

    def transferred() -> Iterable[Sample]:
        return [
            Sample(store.sent_bytes, {"direction": "sent"}),
            Sample(store.received_bytes, {"direction": "received"}),
        ]

    return [
        by_operation("requests", "Requests to the object store; each attempt counts", lambda each: each.requests),
        by_operation("errors", "Requests that failed, throttled ones not counted", lambda each: each.errors),
        by_operation("throttled", "Requests that the store refused for their rate", lambda each: each.throttled),
        Family(f"{_STORE}request_seconds", "Time from a request to the store's response", "summary", times),
        Family(f"{_STORE}request_seconds_max", "Longest time of a request since the start", "gauge", longest),
        Family(f"{_STORE}bytes_total", "Bytes of object contents, by direction", "counter", transferred),
    ]


def cache_families(name: str, what: str, cache: CacheFigures) -> list[Family]:
    """Return hits, misses and evictions of a cache; `name` is its part of the metrics' names."""
    prefix = f"ottla_remote_{name}_cache_"
    return [
        counter(f"{prefix}hits_total", f"Reads of {what} that the cache answered", lambda: cache.hits),
        counter(f"{prefix}misses_total", f"Reads of {what} that went to remote storage", lambda: cache.misses),
        counter(f"{prefix}evictions_total", f"Evictions of {what} that expired or made room", lambda: cache.evictions),
    ]
