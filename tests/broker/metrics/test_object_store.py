"""Metrics of the object store and of the caches before it."""

from collections.abc import Sequence

import pytest

from broker.metrics.family import Family
from broker.metrics.object_store import cache_families, store_families
from storage.tiered.errors import ObjectNotFound, StoreThrottled, StoreUnavailable
from storage.tiered.statistics import CacheStatistics, StoreStatistics


def values(families: Sequence[Family]) -> dict[str, float]:
    """Return each value by name and label values; times are left out."""
    return {
        " ".join((family.name + sample.suffix, *sample.labels.values())): sample.value
        for family in families
        for sample in family.read()
        if "seconds" not in family.name or sample.suffix == "_count"
    }


def test_requests_are_counted_by_operation_and_outcome() -> None:
    store = StoreStatistics()
    with store.request("put_object", sent_bytes=70):
        pass
    for error in (StoreUnavailable("down"), StoreThrottled("slow down")):
        with pytest.raises(StoreUnavailable), store.request("put_object", sent_bytes=70):
            raise error
    with pytest.raises(ObjectNotFound), store.request("get_object"):
        raise ObjectNotFound("gone")
    store.received(5)
    assert values(store_families(store)) == {
        "ottla_remote_store_requests_total put_object": 3,
        "ottla_remote_store_requests_total get_object": 1,
        "ottla_remote_store_errors_total put_object": 1,
        "ottla_remote_store_errors_total get_object": 0,
        "ottla_remote_store_throttled_total put_object": 1,
        "ottla_remote_store_throttled_total get_object": 0,
        "ottla_remote_store_request_seconds_count put_object": 3,
        "ottla_remote_store_request_seconds_count get_object": 1,
        "ottla_remote_store_bytes_total sent": 70,
        "ottla_remote_store_bytes_total received": 5,
    }


def test_look_ups_of_a_cache_are_counted() -> None:
    cache = CacheStatistics()
    for is_hit in (True, False, True):
        cache.looked_up(is_hit=is_hit)
    cache.evicted()
    assert values(cache_families("chunk", "chunks", cache)) == {
        "ottla_remote_chunk_cache_hits_total": 2,
        "ottla_remote_chunk_cache_misses_total": 1,
        "ottla_remote_chunk_cache_evictions_total": 1,
    }
