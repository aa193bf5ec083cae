from storage.tiered.cache.idle_cache import IdleCache


class Clock:
    def __init__(self) -> None:
        self.ms = 0.0

    def __call__(self) -> float:
        return self.ms


def cache(max_size: int | None, max_idle_ms: int | None = None, clock: Clock | None = None) -> IdleCache[str, str]:
    return IdleCache(max_size, max_idle_ms, clock or Clock(), size_of=len)


def test_use_protects_entry_from_eviction() -> None:
    values = cache(10)
    values.put("a", "AAAA")
    values.put("b", "BBBB")
    assert values.use("a") == "AAAA"
    values.put("c", "CCCC")
    assert sorted(values) == ["a", "c"]
    assert values.currsize == 8


def test_membership_test_is_not_a_use() -> None:
    values = cache(2)
    values.put("a", "A")
    values.put("b", "B")
    assert "a" in values
    values.put("c", "C")
    assert sorted(values) == ["b", "c"]


def test_value_larger_than_cache_is_not_kept() -> None:
    values = cache(3)
    values.put("a", "A")
    values.put("b", "BBBB")
    assert list(values) == ["a"]
    values.put("a", "AAAA")
    assert list(values) == []
    assert values.currsize == 0


def test_new_value_replaces_value_and_size_of_key() -> None:
    values = cache(10)
    values.put("a", "AAAA")
    values.put("a", "BBBBB")
    assert values.use("a") == "BBBBB"
    assert values.currsize == 5


def test_use_restarts_idle_time() -> None:
    clock = Clock()
    values = cache(None, 100, clock)
    values.put("a", "A")
    values.put("b", "B")
    clock.ms = 60
    assert values.use("a") == "A"
    clock.ms = 99
    assert values.use("b") == "B"
    clock.ms = 170
    assert values.use("a") is None
    assert list(values) == ["b"]


def test_eviction_and_expiry_are_reported_but_removal_is_not() -> None:
    clock = Clock()
    evicted: list[str] = []
    values: IdleCache[str, str] = IdleCache(1, 100, clock, on_evicted=evicted.append)
    values.put("a", "A")
    values.put("b", "B")
    assert evicted == ["a"]
    assert values.pop("b") == "B"
    values.put("c", "C")
    clock.ms = 100
    assert values.use("c") is None
    assert evicted == ["a", "c"]


def test_absent_key_has_no_value() -> None:
    assert cache(1).use("a") is None
