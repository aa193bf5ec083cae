import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from storage.tiered.cache.loading_cache import LoadingCache
from storage.tiered.errors import RemoteResourceNotFound, RetriableRemoteStorageError
from storage.tiered.settings import CacheSettings


class Loader:
    """Loader that waits for a signal."""

    def __init__(self, error: Exception | None = None) -> None:
        self.began = threading.Event()
        self.release = threading.Event()
        self.times = 0
        self._error = error

    def __call__(self) -> str:
        self.times += 1
        self.began.set()
        assert self.release.wait(10)
        if self._error is not None:
            raise self._error
        return f"value {self.times}"

    def free(self) -> "Loader":
        self.release.set()
        return self


def cache(size: int | None = 100, wait_ms: int = 10_000) -> LoadingCache[str, str]:
    return LoadingCache(CacheSettings(size, None, wait_ms), lambda: 0, len)


def test_value_is_loaded_once() -> None:
    values, load = cache(), Loader().free()
    assert values.get("a", load) == values.get("a", load) == "value 1"


def test_values_are_bounded_by_size() -> None:
    values, load = cache(size=10), Loader().free()
    values.get("a", load)
    values.get("b", load)
    assert values.get("a", load) == "value 3"


def test_concurrent_misses_share_one_load() -> None:
    values, load = cache(), Loader()
    with ThreadPoolExecutor(2) as threads:
        first = threads.submit(values.get, "a", load)
        assert load.began.wait(10)
        second = threads.submit(values.get, "a", load)
        load.release.set()
        assert first.result() == second.result() == "value 1"
    assert load.times == 1


def test_failure_is_shared_and_not_cached() -> None:
    values, load = cache(), Loader(RemoteResourceNotFound("missing"))
    with ThreadPoolExecutor(2) as threads:
        first = threads.submit(values.get, "a", load)
        assert load.began.wait(10)
        second = threads.submit(values.get, "a", load)
        load.release.set()
        assert isinstance(first.exception(), RemoteResourceNotFound)
        assert isinstance(second.exception(), RemoteResourceNotFound)
    assert values.get("a", Loader().free()) == "value 1"


def test_wait_for_concurrent_load_times_out() -> None:
    values, load = cache(wait_ms=1), Loader()
    with ThreadPoolExecutor(1) as threads:
        first = threads.submit(values.get, "a", load)
        assert load.began.wait(10)
        with pytest.raises(RetriableRemoteStorageError, match="a was not loaded within 1 ms"):
            values.get("a", load)
        load.release.set()
        assert first.result() == "value 1"


def test_timeout_raised_by_the_load_is_passed_on() -> None:
    values, load = cache(), Loader(TimeoutError("the store"))
    with ThreadPoolExecutor(2) as threads:
        first = threads.submit(values.get, "a", load)
        assert load.began.wait(10)
        second = threads.submit(values.get, "a", load)
        load.release.set()
        assert str(first.exception()) == str(second.exception()) == "the store"


def test_value_forgotten_while_loading_is_loaded_again() -> None:
    values, load = cache(), Loader()
    with ThreadPoolExecutor(1) as threads:
        first = threads.submit(values.get, "a", load)
        assert load.began.wait(10)
        values.forget("a")
        load.release.set()
        assert first.result() == "value 1"
    assert values.get("a", load) == "value 2"
    values.forget("a")
    assert values.get("a", load) == "value 3"
