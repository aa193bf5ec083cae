from storage.tiered.cache.weighted_lru import WeightedLru


class Clock:
    def __init__(self) -> None:
        self.ms = 0.0

    def __call__(self) -> float:
        return self.ms


def cache(max_weight: int | None, max_idle_ms: int | None = None, clock: Clock | None = None) -> WeightedLru[str, str]:
    return WeightedLru(max_weight, max_idle_ms, clock or Clock())


def test_what_was_used_least_recently_goes_when_all_is_too_heavy() -> None:
    lru = cache(10)
    lru.put("a", "A", 4)
    lru.put("b", "B", 4)
    assert lru.get("a") == "A"
    lru.put("c", "C", 4)
    assert list(lru) == ["a", "c"]
    assert lru.weight == 8


def test_looking_whether_something_is_there_does_not_count_as_a_use() -> None:
    lru = cache(2)
    lru.put("a", "A", 1)
    lru.put("b", "B", 1)
    assert "a" in lru
    lru.put("c", "C", 1)
    assert list(lru) == ["b", "c"]


def test_what_is_too_heavy_for_all_is_not_kept() -> None:
    lru = cache(3)
    lru.put("a", "A", 1)
    lru.put("b", "B", 4)
    assert len(lru) == 0
    assert lru.weight == 0


def test_a_value_takes_the_place_and_the_weight_of_another() -> None:
    lru = cache(10)
    lru.put("a", "A", 4)
    lru.put("a", "B", 5)
    assert lru.get("a") == "B"
    assert lru.weight == 5


def test_what_is_not_used_for_too_long_goes() -> None:
    clock = Clock()
    lru = cache(None, 100, clock)
    lru.put("a", "A", 1)
    lru.put("b", "B", 1)
    clock.ms = 60
    assert lru.get("a") == "A"
    clock.ms = 100
    assert lru.get("b") == "B"
    clock.ms = 170
    assert lru.get("a") is None
    assert list(lru) == ["b"]


def test_whoever_wants_to_know_is_told_what_had_to_go() -> None:
    gone: list[tuple[str, str]] = []
    lru: WeightedLru[str, str] = WeightedLru(1, None, Clock(), lambda key, value: gone.append((key, value)))
    lru.put("a", "A", 1)
    lru.put("b", "B", 1)
    assert lru.pop("b") == "B"
    assert gone == [("a", "A")]


def test_nothing_is_nothing() -> None:
    assert cache(1).get("a") is None
    assert cache(1).pop("a") is None
