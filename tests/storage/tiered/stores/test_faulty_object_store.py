"""The fault-injecting store injects exactly the requested faults."""

from collections.abc import Callable, Iterator

import pytest

from protocol.primitives import Buffer
from storage.tiered.errors import ObjectNotFound, StoreThrottled, StoreUnavailable
from tests.support.fakes.faulty_object_store import STRIKES, FaultKind, FaultyObjectStore, Injected
from tests.support.fakes.memory_object_store import MemoryObjectStore


@pytest.fixture
def inner() -> MemoryObjectStore:
    made = MemoryObjectStore(piece_bytes=4)
    made.put("a", [b"0123456789"])
    return made


@pytest.fixture
def store(inner: MemoryObjectStore) -> FaultyObjectStore:
    return FaultyObjectStore(inner)


def content(store: FaultyObjectStore, key: str) -> bytes:
    return b"".join(store.get(key))


def keys(store: FaultyObjectStore, prefix: str = "") -> list[str]:
    return [info.key for info in store.list(prefix)]


def every_operation(store: FaultyObjectStore) -> list[Callable[[], object]]:
    return [
        lambda: store.put("b", [b"x"]),
        lambda: list(store.get("a")),
        lambda: list(store.list("")),
        lambda: store.delete(["a"]),
    ]


@pytest.mark.parametrize(
    ("kind", "error"), [(FaultKind.UNAVAILABLE, StoreUnavailable), (FaultKind.THROTTLED, StoreThrottled)]
)
def test_refused_operation_has_no_effect(
    inner: MemoryObjectStore, store: FaultyObjectStore, kind: FaultKind, error: type[Exception]
) -> None:
    store.fail(kind, times=4)
    for operation in every_operation(store):
        with pytest.raises(error):
            operation()
    assert inner.keys() == ["a"]
    assert store.planned_count == 0
    assert [injected.operation for injected in store.injected] == ["put", "get", "list", "delete"]


def test_fault_is_limited_to_operation_key_and_skip_count(store: FaultyObjectStore) -> None:
    store.fail(FaultKind.UNAVAILABLE, "put", key_part=".log", skip=1)
    store.put("x.log", [b"1"])
    store.put("x.indexes", [b"1"])
    with pytest.raises(StoreUnavailable):
        store.put("y.log", [b"1"])
    store.put("y.log", [b"1"])
    assert keys(store) == ["a", "x.indexes", "x.log", "y.log"]


def test_timeout_after_success_applies_the_operation(inner: MemoryObjectStore, store: FaultyObjectStore) -> None:
    store.fail(FaultKind.TIMEOUT_AFTER_SUCCESS, times=2)
    with pytest.raises(StoreUnavailable):
        store.put("b", [b"x"])
    assert inner.keys() == ["a", "b"]
    with pytest.raises(StoreUnavailable):
        store.delete(["a"])
    assert inner.keys() == ["b"]


def test_partial_upload_reads_parts_and_stores_nothing(inner: MemoryObjectStore, store: FaultyObjectStore) -> None:
    taken = []

    def parts() -> Iterator[Buffer]:
        for part in (b"one", b"two", b"three"):
            taken.append(part)
            yield part

    store.fail(FaultKind.PARTIAL_UPLOAD)
    with pytest.raises(StoreUnavailable):
        store.put("b", parts())
    assert taken == [b"one"]
    assert inner.keys() == ["a"]


def test_partial_delete_deletes_some_keys(inner: MemoryObjectStore, store: FaultyObjectStore) -> None:
    store.put("b", [b"x"])
    store.fail(FaultKind.PARTIAL_DELETE)
    with pytest.raises(StoreUnavailable):
        store.delete(["a", "b"])
    assert inner.keys() == ["b"]


def test_short_body_ends_in_an_error(store: FaultyObjectStore) -> None:
    store.fail(FaultKind.SHORT_BODY)
    pieces = store.get("a")
    assert next(pieces) == b"01"
    with pytest.raises(StoreUnavailable):
        next(pieces)
    assert content(store, "a") == b"0123456789"


def test_corruption_flips_one_bit_of_the_response(inner: MemoryObjectStore, store: FaultyObjectStore) -> None:
    store.fail(FaultKind.CORRUPT_BYTES)
    read = content(store, "a")
    different = [(one ^ other).bit_count() for one, other in zip(read, b"0123456789", strict=True)]
    assert sum(different) == 1
    assert inner.content("a") == b"0123456789"


def test_lost_object_stays_lost(store: FaultyObjectStore) -> None:
    store.fail(FaultKind.LOST_OBJECT)
    for _ in range(2):
        with pytest.raises(ObjectNotFound):
            store.get("a")
    assert keys(store) == []


def test_stale_list_is_a_former_listing(inner: MemoryObjectStore) -> None:
    seen = set()
    for seed in range(30):
        inner.put("a", [b"0123456789"])
        inner.delete(["b", "c"])
        store = FaultyObjectStore(inner, seed)
        store.put("b", [b"x"])
        store.delete(["a"])
        store.put("c", [b"x"])
        store.fail(FaultKind.STALE_LIST)
        seen.add(tuple(keys(store)))
        assert keys(store) == ["b", "c"]
    assert seen == {("b",), ("a", "b"), ("a",)}


def test_stale_list_respects_its_prefix(store: FaultyObjectStore) -> None:
    store.put("p/1", [b"x"])
    store.put("q/1", [b"x"])
    store.delete(["p/1", "q/1"])
    store.fail(FaultKind.STALE_LIST, times=20)
    assert {key for _ in range(20) for key in keys(store, "p/")} <= {"p/1"}


def test_slow_operation_calls_the_tests_pause(inner: MemoryObjectStore) -> None:
    pauses = []
    store = FaultyObjectStore(inner, pause=lambda: pauses.append(inner.keys()))
    store.fail(FaultKind.SLOW, "put")
    store.put("b", [b"x"])
    assert pauses == [["a"]]
    assert inner.keys() == ["a", "b"]


def test_store_can_be_unavailable_and_return(inner: MemoryObjectStore, store: FaultyObjectStore) -> None:
    reading = store.get("a")
    next(reading)
    store.vanish()
    for operation in every_operation(store):
        with pytest.raises(StoreUnavailable):
            operation()
    with pytest.raises(StoreUnavailable):
        next(reading)
    store.come_back()
    assert keys(store) == ["a"]
    store.vanish(requests=2)
    for _ in range(2):
        with pytest.raises(StoreUnavailable):
            store.put("b", [b"x"])
    store.put("b", [b"x"])
    assert inner.keys() == ["a", "b"]


def test_equal_seeds_inject_equal_faults() -> None:
    def history(seed: int) -> list[Injected]:
        store = FaultyObjectStore(MemoryObjectStore(), seed, dict.fromkeys(FaultKind, 0.2))
        for _ in range(100):
            store.inner.put("a", [b"x"])
            for operation in every_operation(store):
                try:
                    operation()
                except (StoreUnavailable, ObjectNotFound):
                    continue
        return store.injected

    assert history(1) == history(1) != history(2)
    assert {injected.kind for injected in history(1)} == set(STRIKES)


@pytest.mark.parametrize("kind", [FaultKind.LOST_OBJECT, FaultKind.CORRUPT_BYTES, FaultKind.SHORT_BODY])
def test_missing_object_is_neither_lost_nor_damaged(store: FaultyObjectStore, kind: FaultKind) -> None:
    store.fail(kind)
    with pytest.raises(ObjectNotFound):
        list(store.get("nothing"))
    assert store.injected == []


def test_healed_store_injects_no_faults(store: FaultyObjectStore) -> None:
    store.probabilities[FaultKind.UNAVAILABLE] = 1.0
    store.fail(FaultKind.THROTTLED, times=10)
    store.vanish()
    store.heal()
    for operation in every_operation(store):
        operation()
    assert store.injected == []
