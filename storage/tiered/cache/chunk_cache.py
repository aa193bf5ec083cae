"""Chunks of segments by way of a cache: every chunk is downloaded once, however many want it, and kept for the next.

A chunk that is not in the storage is downloaded by a thread of its own, which goes on when the reader has lost patience
(`get.timeout.ms`, or the reader's own limit) and puts the chunk in the storage: however slow the store is, the reader
gets on when it comes back. Chunks that follow on each other come with one request, up to a bound. Readers that go
through a segment in order have what follows fetched ahead of them (`prefetch.max.size`), once more than half of that
is missing, and less of it the more readers there are: what is fetched ahead of one must not push out what another is
about to read.

A chunk is, at any moment, in the storage, on its way, or neither. It leaves "on its way" after it came to the storage,
so that whoever looks at both in this order (storage last, under the lock) finds it, or starts the download.
"""

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from dataclasses import dataclass, field
from itertools import takewhile
from typing import Protocol

from protocol.primitives import Buffer
from storage.tiered.cache.chunk_storage import ChunkKey, ChunkStorage
from storage.tiered.cache.download_pool import Downloads
from storage.tiered.cache.idle_cache import IdleCache
from storage.tiered.errors import RemoteStorageError, RetriableRemoteStorageError
from storage.tiered.format.chunk_index import Chunk, ChunkIndex, chunks_of

MAX_REQUEST_BYTES = 16 * 1024 * 1024
"""Of chunks, as stored, that one request brings, unless a single one is larger."""

_MAX_FOLLOWED = 10_000
"""Segments of which it is remembered where they were read last, to know readers that go in order."""
_FOLLOWED_MS = 10_000
"""Who has not read for so long is no reader any more."""


class ChunkSource(Protocol):
    """The log of one segment in the store."""

    @property
    def object_key(self) -> str: ...

    @property
    def index(self) -> ChunkIndex: ...

    def download(self, numbers: range) -> Iterator[Buffer]:
        """All these chunks, which follow on each other, restored, by one request.

        Raises RemoteResourceNotFound, RetriableRemoteStorageError, RemoteStorageError, CorruptRemoteData.
        """
        ...


class ChunkReader(Protocol):
    """How the bytes of a log are read: by way of a cache, or not."""

    def read(self, source: ChunkSource, first: int, last: int, *, is_open_ended: bool) -> Iterator[memoryview]:
        """The bytes `first` to `last`, in pieces; raises what `ChunkSource.download` raises.

        `is_open_ended`: nobody knows how much of that will be wanted.
        """
        ...

    def read_soon(self, source: ChunkSource, first: int) -> None:
        """Somebody is about to read from byte `first` on. Does not wait."""
        ...

    def forget(self, object_key: str) -> None:
        """Nobody will read the object any more, or it changes."""
        ...

    def close(self) -> None: ...


class UncachedChunkReader:
    """Straight from the store, with one request for everything."""

    def read(self, source: ChunkSource, first: int, last: int, *, is_open_ended: bool) -> Iterator[memoryview]:
        numbers = chunks_of(source.index, first, last)
        for number, chunk in zip(numbers, source.download(numbers), strict=True):
            start, end = _wanted_part(source.index.chunk(number), first, last)
            yield memoryview(chunk)[start:end].toreadonly()

    def read_soon(self, source: ChunkSource, first: int) -> None:
        """There is no place to keep it until then."""

    def forget(self, object_key: str) -> None:
        """There is nothing to forget."""

    def close(self) -> None:
        """There is nothing to close."""


def _wanted_part(chunk: Chunk, first: int, last: int) -> tuple[int, int]:
    return max(first - chunk.position, 0), min(last + 1 - chunk.position, chunk.size)


@dataclass(slots=True, eq=False)
class _Download:
    """Chunks of one segment on their way, each with the promise of it."""

    source: ChunkSource
    promises: dict[int, Future[Buffer]]
    arrive: Callable[["_Download", int, Buffer | None], None]
    """Is told of each chunk, with None if it does not come, before its promise is kept or broken."""
    _came: int = field(default=0, init=False)

    def run(self) -> None:
        numbers = list(self.promises)
        try:
            chunks = self.source.download(range(numbers[0], numbers[-1] + 1))
            for number, chunk in zip(numbers, chunks, strict=True):
                self.arrive(self, number, chunk)
                self.promises[number].set_result(chunk)
                self._came += 1
        except Exception as error:  # noqa: BLE001  it is for those who wait, whatever it is
            self._fail(error)

    def abandon(self) -> None:
        self._fail(RemoteStorageError("the cache of chunks is closed"))

    def _fail(self, error: Exception) -> None:
        for number in list(self.promises)[self._came :]:
            self.arrive(self, number, None)
            self.promises[number].set_exception(error)


class ChunkCache:
    """Implements ChunkReader. `prefetch_bytes` is how far ahead of a reader chunks are fetched; 0 is not at all.

    `ahead_max_bytes` is for all readers together: with more of them than it has chunks, nothing is fetched ahead.
    """

    def __init__(
        self,
        storage: ChunkStorage,
        pool: Downloads,
        *,
        wait_ms: int,
        prefetch_bytes: int = 0,
        ahead_max_bytes: int | None = None,
        max_request_bytes: int = MAX_REQUEST_BYTES,
        now_ms: Callable[[], float] = lambda: 0.0,
    ) -> None:
        self._storage = storage
        self._pool = pool
        self._wait_ms = wait_ms
        self._prefetch_bytes = prefetch_bytes
        self._ahead_max_bytes = ahead_max_bytes
        self._max_request_bytes = max_request_bytes
        self._lock = threading.Lock()
        self._on_the_way: dict[ChunkKey, _Download] = {}
        self._read_last: IdleCache[str, int] = IdleCache(_MAX_FOLLOWED, _FOLLOWED_MS, now_ms)

    def read(self, source: ChunkSource, first: int, last: int, *, is_open_ended: bool) -> Iterator[memoryview]:
        numbers = chunks_of(source.index, first, last)
        for number in numbers:
            start, end = _wanted_part(source.index.chunk(number), first, last)
            stop = number + 1 if is_open_ended else numbers.stop
            yield memoryview(self._part(source, range(number, stop), start, end)).toreadonly()

    def read_soon(self, source: ChunkSource, first: int) -> None:
        """As much as is fetched ahead of a reader, with a share of its own in what that is for all."""
        index = source.index
        number = first // index.chunk_size
        with self._lock:
            if source.object_key not in self._read_last:
                self._read_last.put(source.object_key, number)
            end = index.chunk(number).position + self._room_ahead(index.chunk_size)
            self._fetch_ahead(source, range(number, min(-(-end // index.chunk_size), index.count)))

    def forget(self, object_key: str) -> None:
        with self._lock:
            self._read_last.pop(object_key, None)
            for key in [key for key in self._on_the_way if key.object_key == object_key]:
                del self._on_the_way[key]
        self._storage.forget(object_key)

    def close(self) -> None:
        self._pool.close()

    def _part(self, source: ChunkSource, wanted: range, start: int, end: int) -> Buffer:
        """The bytes [start, end) of the first chunk of `wanted`."""
        key = ChunkKey(source.object_key, wanted[0])
        while (part := self._storage.get(key, start, end)) is None:
            promise = self._promise(source, wanted)
            if promise is not None:
                self._look_ahead(source, wanted[0])
                return memoryview(self._wait(key, promise))[start:end]
        self._look_ahead(source, wanted[0])
        return part

    def _promise(self, source: ChunkSource, wanted: range) -> Future[Buffer] | None:
        """Of the first chunk of `wanted`; None where it came to the storage meanwhile."""
        key = ChunkKey(source.object_key, wanted[0])
        with self._lock:
            download = self._on_the_way.get(key)
            if download is None and key in self._storage:
                return None
            if download is None:
                download = self._start(source, self._run(source, wanted), is_ahead=False)
        if download is None:
            raise RetriableRemoteStorageError("too many chunks are on their way already")
        self._pool.hurry(download)
        return download.promises[key.number]

    def _wait(self, key: ChunkKey, promise: Future[Buffer]) -> Buffer:
        try:
            return promise.result(self._wait_ms / 1000)
        except TimeoutError as error:
            if promise.done():
                raise
            message = f"chunk {key.number} of {key.object_key} is on its way for more than {self._wait_ms} ms"
            raise RetriableRemoteStorageError(message) from error

    def _look_ahead(self, source: ChunkSource, number: int) -> None:
        """What a reader in order will want after chunk `number` is fetched, as far as the pool takes it."""
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
            last = min(end + self._room_ahead(index.chunk(number).size), index.file_size) - 1
            ahead = chunks_of(index, end, last) if end <= last else range(0)
            if 2 * self._count_here(source, ahead) < len(ahead):
                self._fetch_ahead(source, ahead)

    def _count_here(self, source: ChunkSource, numbers: range) -> int:
        """How many of the first of these are here or on their way."""
        keys = (ChunkKey(source.object_key, number) for number in numbers)
        present = (key in self._on_the_way or key in self._storage for key in keys)
        return sum(takewhile(bool, present))

    def _fetch_ahead(self, source: ChunkSource, numbers: range) -> None:
        """What of these is missing, as far as the pool takes it, with as few requests as may be. Under the lock."""
        while numbers:
            run = self._run(source, numbers)
            if run and self._start(source, run, is_ahead=True) is None:
                return
            numbers = numbers[max(1, len(run)) :]

    def _room_ahead(self, chunk_bytes: int) -> int:
        """Of one reader, among those that there are now."""
        if self._ahead_max_bytes is None:
            return self._prefetch_bytes
        share = self._ahead_max_bytes // len(self._read_last)
        return min(self._prefetch_bytes, share - share % chunk_bytes)

    def _run(self, source: ChunkSource, wanted: range) -> range:
        """As many of the first of `wanted` as are neither here nor on their way, and fit into one request."""
        stored_bytes = 0
        for number in wanted:
            key = ChunkKey(source.object_key, number)
            stored_bytes += source.index.chunk(number).stored_size
            is_too_much = number > wanted.start and stored_bytes > self._max_request_bytes
            if is_too_much or key in self._on_the_way or key in self._storage:
                return range(wanted.start, number)
        return wanted

    def _start(self, source: ChunkSource, numbers: range, *, is_ahead: bool) -> _Download | None:
        """None where the pool is full. Called under the lock."""
        download = _Download(source, {number: Future() for number in numbers}, self._arrive)
        keys = [ChunkKey(source.object_key, number) for number in numbers]
        self._on_the_way.update(dict.fromkeys(keys, download))
        if self._pool.submit(download, is_ahead=is_ahead):
            return download
        for key in keys:
            del self._on_the_way[key]
        return None

    def _arrive(self, download: _Download, number: int, chunk: Buffer | None) -> None:
        """What was forgotten on its way is for those who waited, and nobody after."""
        key = ChunkKey(download.source.object_key, number)
        if chunk is not None:
            self._storage.put(key, chunk)
        with self._lock:
            is_wanted = self._on_the_way.get(key) is download
            if is_wanted:
                del self._on_the_way[key]
        if not is_wanted:
            self._storage.forget(key.object_key)
