"""Storage of cached chunks, in memory or in files, bounded by bytes and idle time.

Chunks are stored decrypted and decompressed. Storages are thread-safe.
"""

import contextlib
import threading
from collections.abc import Callable
from typing import NamedTuple, Protocol

from protocol.primitives import Buffer
from storage.files import ASIDE_SUFFIX, FileSystem, base_name, join, write_file
from storage.tiered.cache.idle_cache import IdleCache
from storage.tiered.settings import CacheSettings
from storage.tiered.statistics import CacheStatistics

_DIRECTORY = "cache"


class ChunkKey(NamedTuple):
    object_key: str
    number: int


class ChunkStorage(Protocol):
    def get(self, key: ChunkKey, start: int, end: int) -> Buffer | None:
        """Return the bytes [start, end) of a chunk, valid even after eviction; None if absent."""
        ...

    def __contains__(self, key: ChunkKey) -> bool: ...

    def put(self, key: ChunkKey, chunk: Buffer) -> None:
        """Store a chunk, as far as there is room."""
        ...

    def forget(self, object_key: str) -> None:
        """Drop all chunks of an object."""
        ...


class MemoryChunkStorage:
    def __init__(
        self, settings: CacheSettings, now_ms: Callable[[], float], statistics: CacheStatistics | None = None
    ) -> None:
        self._lock = threading.Lock()
        self._statistics = statistics or CacheStatistics()
        self._chunks: IdleCache[ChunkKey, Buffer] = IdleCache(
            settings.size, settings.idle_ms, now_ms, size_of=len, on_evicted=lambda _: self._statistics.evicted()
        )

    @property
    def size_bytes(self) -> int:
        return int(self._chunks.currsize)

    def get(self, key: ChunkKey, start: int, end: int) -> Buffer | None:
        with self._lock:
            chunk = self._chunks.use(key)
        return None if chunk is None else memoryview(chunk)[start:end]

    def __contains__(self, key: ChunkKey) -> bool:
        with self._lock:
            return key in self._chunks

    def put(self, key: ChunkKey, chunk: Buffer) -> None:
        with self._lock:
            self._chunks.put(key, chunk)

    def forget(self, object_key: str) -> None:
        with self._lock:
            _forget(self._chunks, object_key)


class DiskChunkStorage:
    """Implements ChunkStorage in files `<directory>/cache/<object name>-<number>`, for the lifetime of the process.

    The constructor empties the directory `cache`, because files left by a crash may be torn. A file that cannot be
    read, after an eviction or a disk failure, is an absent chunk; a chunk that cannot be written is not cached.
    """

    def __init__(
        self,
        fs: FileSystem,
        directory: str,
        settings: CacheSettings,
        now_ms: Callable[[], float],
        statistics: CacheStatistics | None = None,
    ) -> None:
        """Raises OSError."""
        self._fs = fs
        self._statistics = statistics or CacheStatistics()
        self._directory = join(directory, _DIRECTORY)
        fs.make_directory(directory)
        fs.remove_tree(self._directory)
        fs.make_directory(self._directory)
        self._lock = threading.Lock()
        self._evicted: list[ChunkKey] = []
        self._sizes: IdleCache[ChunkKey, int] = IdleCache(
            settings.size, settings.idle_ms, now_ms, size_of=lambda size: size, on_evicted=self._evict
        )
        self.failures = 0
        """Failed operations of the local disk."""

    @property
    def size_bytes(self) -> int:
        return int(self._sizes.currsize)

    def get(self, key: ChunkKey, start: int, end: int) -> Buffer | None:
        with self._lock:
            size = self._sizes.use(key)
            evicted = self._take_evicted()
        self._remove(evicted)
        if size is None:
            return None
        data = self._read(key, start, end)
        if data is None:
            with self._lock:
                self._sizes.pop(key, None)
        return data

    def __contains__(self, key: ChunkKey) -> bool:
        with self._lock:
            return key in self._sizes

    def put(self, key: ChunkKey, chunk: Buffer) -> None:
        path = self._path(key)
        try:
            write_file(self._fs, path + ASIDE_SUFFIX, chunk, sync=False)
            self._fs.rename(path + ASIDE_SUFFIX, path)
        except OSError:
            self.failures += 1
            with contextlib.suppress(OSError):
                self._fs.remove(path + ASIDE_SUFFIX)
            return
        with self._lock:
            self._sizes.put(key, len(chunk))
            is_kept = key in self._sizes
            evicted = [each for each in self._take_evicted() if each != key]  # its file is the new one
        self._remove(evicted if is_kept else [*evicted, key])

    def forget(self, object_key: str) -> None:
        with self._lock:
            forgotten = _forget(self._sizes, object_key)
        self._remove(forgotten)

    def _read(self, key: ChunkKey, start: int, end: int) -> bytes | None:
        """Return None if the file is gone or truncated. An open file stays readable after eviction."""
        try:
            file = self._fs.open_existing(self._path(key))
        except FileNotFoundError:
            return None
        except OSError:
            self.failures += 1
            return None
        try:
            data = file.read(start, end - start)
        except OSError:
            self.failures += 1
            return None
        finally:
            file.close()
        return data if len(data) == end - start else None

    def _path(self, key: ChunkKey) -> str:
        return join(self._directory, f"{base_name(key.object_key)}-{key.number}")

    def _evict(self, key: ChunkKey) -> None:
        """Note an evicted chunk under the lock; its file is removed after the lock is released."""
        self._evicted.append(key)
        self._statistics.evicted()

    def _take_evicted(self) -> list[ChunkKey]:
        evicted, self._evicted = self._evicted, []
        return evicted

    def _remove(self, keys: list[ChunkKey]) -> None:
        for key in keys:
            try:
                self._fs.remove(self._path(key))
            except OSError:
                self.failures += 1


def _forget(chunks: IdleCache[ChunkKey, Buffer] | IdleCache[ChunkKey, int], object_key: str) -> list[ChunkKey]:
    keys = [key for key in chunks if key.object_key == object_key]
    for key in keys:
        chunks.pop(key, None)
    return keys
