"""Thread-safe cache that loads missing values: the first thread loads, the others wait for it."""

import threading
from collections.abc import Callable, Hashable
from concurrent.futures import Future
from typing import Generic, TypeVar

from storage.tiered.cache.idle_cache import IdleCache
from storage.tiered.errors import RetriableRemoteStorageError
from storage.tiered.settings import CacheSettings

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class LoadingCache(Generic[K, V]):
    """`size_of` returns the share of a value in `settings.size`."""

    def __init__(self, settings: CacheSettings, now_ms: Callable[[], float], size_of: Callable[[V], int]) -> None:
        self._wait_ms = settings.wait_ms
        self._lock = threading.Lock()
        self._values: IdleCache[K, V] = IdleCache(settings.size, settings.idle_ms, now_ms, size_of=size_of)
        self._loading: dict[K, Future[V]] = {}

    def get(self, key: K, load: Callable[[], V]) -> V:
        """Return the cached or loaded value; raises what `load` raises, and RetriableRemoteStorageError after
        `wait_ms`.
        """
        with self._lock:
            value = self._values.use(key)
            if value is not None:
                return value
            loading = self._loading.get(key)
            if loading is None:
                mine = self._loading[key] = Future[V]()
        return self._load(key, load, mine) if loading is None else self._wait(key, loading)

    def _load(self, key: K, load: Callable[[], V], mine: Future[V]) -> V:
        try:
            value = load()
        except BaseException as error:
            with self._lock:
                self._end(key, mine)
            mine.set_exception(error)
            raise
        with self._lock:
            if self._end(key, mine):
                self._values.put(key, value)
        mine.set_result(value)
        return value

    def _end(self, key: K, mine: Future[V]) -> bool:
        """End a load; return whether the key is still wanted."""
        if self._loading.get(key) is not mine:
            return False
        del self._loading[key]
        return True

    def _wait(self, key: K, loading: Future[V]) -> V:
        try:
            return loading.result(self._wait_ms / 1000)
        except TimeoutError as error:
            if loading.done():
                raise
            raise RetriableRemoteStorageError(f"{key} was not loaded within {self._wait_ms} ms") from error

    def forget(self, key: K) -> None:
        """Drop a value. A load in progress still completes for its waiters, but its value is not cached."""
        with self._lock:
            self._loading.pop(key, None)
            self._values.pop(key, None)
