"""Cache of log chunks: each chunk is downloaded once for all readers, and kept for the next.

A chunk that is not cached is downloaded by a thread of the pool. The download continues when the reader's patience ends
(`get.timeout.ms`, or the reader's own limit) and stores the chunk, so a reader makes progress even with a slow store.
Consecutive chunks share one request, up to a bound. Chunks are prefetched for sequential readers
(`prefetch.max.size`) once more than half of the prefetch range is missing. With more readers each one gets a smaller
range, because chunks prefetched for one reader must not evict chunks that another is about to read.

At any moment a chunk is cached, in flight, or neither. It leaves "in flight" only after it is cached. A thread that
checks both in this order (cache last, under the lock) finds the chunk or starts its only download.
"""

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from dataclasses import field
from itertools import takewhile
from typing import Protocol

from protocol.lazy_dataclass import lazy_dataclass
from protocol.primitives import Buffer
from storage.tiered.cache.chunk_storage import ChunkKey, ChunkStorage
from storage.tiered.cache.download_pool import Downloads
from storage.tiered.cache.idle_cache import IdleCache
from storage.tiered.errors import RemoteStorageError, RetriableRemoteStorageError
from storage.tiered.format.chunk_index import Chunk, ChunkIndex, chunks_of
from storage.tiered.statistics import CacheStatistics

MAX_REQUEST_BYTES = 16 * 1024 * 1024
"""Maximum stored size of the chunks in one request, unless a single chunk is larger."""

_MAX_FOLLOWED = 10_000
"""Number of segments whose last read chunk is remembered to detect sequential readers."""
_FOLLOWED_MS = 10_000
"""Idle time after which a segment counts as not being read."""


class ChunkSource(Protocol):
    """The log of one segment in the object store."""

    @property
    def object_key(self) -> str: ...

    @property
    def index(self) -> ChunkIndex: ...

    def download(self, numbers: range) -> Iterator[Buffer]:
        """Yield consecutive chunks, restored, from one request.

        Raises RemoteResourceNotFound, RetriableRemoteStorageError, RemoteStorageError, CorruptRemoteData.
        """
        ...


class ChunkReader(Protocol):
    """Reads bytes of a log, with or without a cache."""

    def read(self, source: ChunkSource, first: int, last: int, *, is_open_ended: bool) -> Iterator[memoryview]:
        """Yield the bytes `first` to `last` in pieces; raises what `ChunkSource.download` raises.

        `is_open_ended`: the reader may stop before `last`.
        """
        ...

    def read_soon(self, source: ChunkSource, first: int) -> None:
        """Start to prefetch from byte `first`; does not wait."""
        ...

    def forget(self, object_key: str) -> None:
        """Drop the chunks of an object that is deleted or replaced."""
        ...

    def close(self) -> None: ...


class UncachedChunkReader:
    """Implements ChunkReader without a cache, with one request per read."""

    def read(self, source: ChunkSource, first: int, last: int, *, is_open_ended: bool) -> Iterator[memoryview]:
        numbers = chunks_of(source.index, first, last)
        for number, chunk in zip(numbers, source.download(numbers), strict=True):
            start, end = _wanted_part(source.index.chunk(number), first, last)
            yield memoryview(chunk)[start:end].toreadonly()

    def read_soon(self, source: ChunkSource, first: int) -> None:
        """Do nothing: there is no cache to fill."""

    def forget(self, object_key: str) -> None:
        """Do nothing: there is no cache."""

    def close(self) -> None:
        """Do nothing: there are no resources."""


def _wanted_part(chunk: Chunk, first: int, last: int) -> tuple[int, int]:
    return max(first - chunk.position, 0), min(last + 1 - chunk.position, chunk.size)


@lazy_dataclass(slots=True, eq=False)
class _Download:
    """Consecutive chunks of one segment in flight, each with a future."""

    source: ChunkSource
    futures: dict[int, Future[Buffer]]
    on_chunk: Callable[["_Download", int, Buffer | None], None]
    """Receives each chunk, or None if it failed, before its future completes."""
    _came: int = field(default=0, init=False)

    def run(self) -> None:
        numbers = list(self.futures)
        try:
            chunks = self.source.download(range(numbers[0], numbers[-1] + 1))
            for number, chunk in zip(numbers, chunks, strict=True):
                self.on_chunk(self, number, chunk)
                self.futures[number].set_result(chunk)
                self._came += 1
        except Exception as error:  # noqa: BLE001  the waiting readers receive it
            self._fail(error)

    def abandon(self) -> None:
        self._fail(RemoteStorageError("the cache of chunks is closed"))

    def _fail(self, error: Exception) -> None:
        for number in list(self.futures)[self._came :]:
            self.on_chunk(self, number, None)
            self.futures[number].set_exception(error)


class ChunkCache:
    """Implements ChunkReader. `prefetch_bytes` is the prefetch range of one reader; 0 disables prefetching.

    `max_prefetch_bytes` bounds the prefetch ranges of all readers; with a share below one chunk nothing is prefetched.
    """

    def __init__(
        self,
        storage: ChunkStorage,
        pool: Downloads,
        *,
        wait_ms: int,
        prefetch_bytes: int = 0,
        max_prefetch_bytes: int | None = None,
        max_request_bytes: int = MAX_REQUEST_BYTES,
        now_ms: Callable[[], float] = lambda: 0.0,
        statistics: CacheStatistics | None = None,
    ) -> None:
        self._statistics = statistics or CacheStatistics()
        self._storage = storage
        self._pool = pool
        self._wait_ms = wait_ms
        self._prefetch_bytes = prefetch_bytes
        self._max_prefetch_bytes = max_prefetch_bytes
        self._max_request_bytes = max_request_bytes
        self._lock = threading.Lock()
        self._in_flight: dict[ChunkKey, _Download] = {}
        self._read_last: IdleCache[str, int] = IdleCache(_MAX_FOLLOWED, _FOLLOWED_MS, now_ms)

    def read(self, source: ChunkSource, first: int, last: int, *, is_open_ended: bool) -> Iterator[memoryview]:
        numbers = chunks_of(source.index, first, last)
        for number in numbers:
            start, end = _wanted_part(source.index.chunk(number), first, last)
            stop = number + 1 if is_open_ended else numbers.stop
            yield memoryview(self._part(source, range(number, stop), start, end)).toreadonly()

    def read_soon(self, source: ChunkSource, first: int) -> None:
        """Prefetch a reader's share; the segment counts as one more reader."""
        index = source.index
        number = first // index.chunk_size
        with self._lock:
            if source.object_key not in self._read_last:
                self._read_last.put(source.object_key, number)
            end = index.chunk(number).position + self._prefetch_range(index.chunk_size)
            self._prefetch(source, range(number, min(-(-end // index.chunk_size), index.count)))

    def forget(self, object_key: str) -> None:
        with self._lock:
            self._read_last.pop(object_key, None)
            for key in [key for key in self._in_flight if key.object_key == object_key]:
                del self._in_flight[key]
        self._storage.forget(object_key)

    def close(self) -> None:
        self._pool.close()

    def _part(self, source: ChunkSource, wanted: range, start: int, end: int) -> Buffer:
        """Return the bytes [start, end) of the first chunk of `wanted`."""
        key = ChunkKey(source.object_key, wanted[0])
        part = self._storage.get(key, start, end)
        self._statistics.looked_up(is_hit=part is not None)
        while part is None:
            future = self._future_of(source, wanted)
            if future is not None:
                self._prefetch_after(source, wanted[0])
                return memoryview(self._wait(key, future))[start:end]
            part = self._storage.get(key, start, end)
        self._prefetch_after(source, wanted[0])
        return part

    def _future_of(self, source: ChunkSource, wanted: range) -> Future[Buffer] | None:
        """Return the future of the first chunk of `wanted`, None if the chunk has been cached meanwhile."""
        key = ChunkKey(source.object_key, wanted[0])
        with self._lock:
            download = self._in_flight.get(key)
            if download is None and key in self._storage:
                return None
            if download is None:
                download = self._start(source, self._run(source, wanted), is_prefetch=False)
        if download is None:
            raise RetriableRemoteStorageError("too many chunks are on their way already")
        self._pool.prioritize(download)
        return download.futures[key.number]

    def _wait(self, key: ChunkKey, future: Future[Buffer]) -> Buffer:
        try:
            return future.result(self._wait_ms / 1000)
        except TimeoutError as error:
            if future.done():
                raise
            message = f"chunk {key.number} of {key.object_key} is on its way for more than {self._wait_ms} ms"
            raise RetriableRemoteStorageError(message) from error

    def _prefetch_after(self, source: ChunkSource, number: int) -> None:
        """Prefetch the chunks after `number` for a sequential reader, as far as the pool accepts downloads."""
        if not self._prefetch_bytes:
            return
        index = source.index
        end = index.chunk(number).position + index.chunk(number).size
        with self._lock:
            before = self._read_last.pop(source.object_key, None)
            if end >= index.file_size:
                return
            self._read_last.put(source.object_key, number)
            if number and before not in (number - 1, number):
                return
            last = min(end + self._prefetch_range(index.chunk(number).size), index.file_size) - 1
            ahead = chunks_of(index, end, last) if end <= last else range(0)
            if 2 * self._count_present(source, ahead) < len(ahead):
                self._prefetch(source, ahead)

    def _count_present(self, source: ChunkSource, numbers: range) -> int:
        """Count the leading chunks that are cached or in flight."""
        keys = (ChunkKey(source.object_key, number) for number in numbers)
        present = (key in self._in_flight or key in self._storage for key in keys)
        return sum(takewhile(bool, present))

    def _prefetch(self, source: ChunkSource, numbers: range) -> None:
        """Download the missing chunks with as few requests as possible. Called under the lock."""
        while numbers:
            run = self._run(source, numbers)
            if run and self._start(source, run, is_prefetch=True) is None:
                return
            numbers = numbers[max(1, len(run)) :]

    def _prefetch_range(self, chunk_bytes: int) -> int:
        """Return the prefetch range of one reader among the present ones."""
        if self._max_prefetch_bytes is None:
            return self._prefetch_bytes
        share = self._max_prefetch_bytes // len(self._read_last)
        return min(self._prefetch_bytes, share - share % chunk_bytes)

    def _run(self, source: ChunkSource, wanted: range) -> range:
        """Return the leading chunks that are neither cached nor in flight and fit into one request."""
        stored_bytes = 0
        for number in wanted:
            key = ChunkKey(source.object_key, number)
            stored_bytes += source.index.chunk(number).stored_size
            is_too_much = number > wanted.start and stored_bytes > self._max_request_bytes
            if is_too_much or key in self._in_flight or key in self._storage:
                return range(wanted.start, number)
        return wanted

    def _start(self, source: ChunkSource, numbers: range, *, is_prefetch: bool) -> _Download | None:
        """Submit a download; None if the pool is full. Called under the lock."""
        download = _Download(source, {number: Future() for number in numbers}, self._on_chunk)
        keys = [ChunkKey(source.object_key, number) for number in numbers]
        self._in_flight.update(dict.fromkeys(keys, download))
        if self._pool.submit(download, is_prefetch=is_prefetch):
            return download
        for key in keys:
            del self._in_flight[key]
        return None

    def _on_chunk(self, download: _Download, number: int, chunk: Buffer | None) -> None:
        """Store a chunk. A chunk forgotten in flight goes to the waiting readers only."""
        key = ChunkKey(download.source.object_key, number)
        if chunk is not None:
            self._storage.put(key, chunk)
        with self._lock:
            is_wanted = self._in_flight.get(key) is download
            if is_wanted:
                del self._in_flight[key]
        if not is_wanted:
            self._storage.forget(key.object_key)
