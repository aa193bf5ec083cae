import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from protocol.primitives import Buffer
from storage.tiered.cache.chunk_cache import ChunkCache, ChunkReader, UncachedChunkReader
from storage.tiered.cache.chunk_storage import ChunkKey, MemoryChunkStorage
from storage.tiered.cache.download_pool import Download, DownloadPool
from storage.tiered.errors import CorruptRemoteData, RemoteStorageError, RetriableRemoteStorageError
from storage.tiered.format.chunk_index import ChunkIndex, FixedChunkIndex
from storage.tiered.settings import CacheSettings
from storage.tiered.statistics import CacheStatistics

CONTENT = bytes(range(100))


class Source:
    """A log of 100 bytes in chunks of 10; a closed gate blocks downloads."""

    def __init__(self, name: str = "log") -> None:
        self.name = name
        self.requests: list[range] = []
        self.began = threading.Event()
        self.gate = threading.Event()
        self.gate.set()
        self.held_from = 0
        """The first chunk that the gate blocks."""
        self.error: Exception | None = None
        self.fails_at = 0
        self.ended = 0
        """Number of requests whose iteration ended or was closed."""

    @property
    def object_key(self) -> str:
        return self.name

    @property
    def index(self) -> ChunkIndex:
        return FixedChunkIndex(10, 100, 10, 10)

    def download(self, numbers: range) -> Iterator[Buffer]:
        self.requests.append(numbers)
        self.began.set()
        try:
            for number in numbers:
                assert number < self.held_from or self.gate.wait(10)
                if self.error is not None and number >= self.fails_at:
                    raise self.error
                yield CONTENT[number * 10 : number * 10 + 10]
        finally:
            self.ended += 1


class SignallingStorage(MemoryChunkStorage):
    """Chunk storage that signals puts."""

    def __init__(self) -> None:
        super().__init__(CacheSettings(1000, None, 1), lambda: 0)
        self.came = threading.Event()

    def put(self, key: ChunkKey, chunk: Buffer) -> None:
        super().put(key, chunk)
        self.came.set()


class HeldPool:
    """A pool that runs downloads at once, and prefetches when released or prioritized."""

    def __init__(self) -> None:
        self.ahead: list[Download] = []
        self.is_full = False

    def submit(self, download: Download, *, is_prefetch: bool) -> bool:
        if self.is_full:
            return False
        if is_prefetch:
            self.ahead.append(download)
        else:
            threading.Thread(target=download.run).start()
        return True

    def prioritize(self, download: Download) -> None:
        if download in self.ahead:
            self.ahead.remove(download)
            threading.Thread(target=download.run).start()

    def run_ahead(self) -> None:
        while self.ahead:
            self.ahead.pop(0).run()

    def close(self) -> None:
        while self.ahead:
            self.ahead.pop(0).abandon()


def cache(
    pool: DownloadPool | HeldPool | None = None, *, size: int = 1000, wait_ms: int = 10_000, prefetch_bytes: int = 0
) -> ChunkCache:
    storage = MemoryChunkStorage(CacheSettings(size, None, 1), lambda: 0)
    used = pool or HeldPool()
    return ChunkCache(storage, used, wait_ms=wait_ms, prefetch_bytes=prefetch_bytes, max_request_bytes=40)


def read(reader: ChunkReader, source: Source, first: int, last: int, *, is_open_ended: bool = False) -> bytes:
    return b"".join(reader.read(source, first, last, is_open_ended=is_open_ended))


@settings(deadline=None)  # other processes may delay the threads
@given(st.integers(0, 99), st.integers(0, 99), st.booleans(), st.booleans(), st.sampled_from([0, 15, 1000]))
def test_read_returns_the_bytes_of_the_log(
    one: int, other: int, is_open_ended: bool, is_cached: bool, size: int
) -> None:
    first, last = sorted((one, other))
    reader: ChunkReader = cache(size=size) if is_cached else UncachedChunkReader()
    source = Source()
    for _ in range(2):
        assert read(reader, source, first, last, is_open_ended=is_open_ended) == CONTENT[first : last + 1]


def test_hits_misses_and_evictions_are_counted() -> None:
    statistics = CacheStatistics()
    storage = MemoryChunkStorage(CacheSettings(20, None, 1), lambda: 0, statistics)
    reader = ChunkCache(storage, HeldPool(), wait_ms=10_000, statistics=statistics)
    for first in (0, 5, 10, 20):  # chunks of 10 bytes, of which two fit
        read(reader, Source(), first, first)
    assert (statistics.hits, statistics.misses, statistics.evictions) == (1, 3, 1)


def test_pieces_are_read_only() -> None:
    for reader in (cache(), UncachedChunkReader()):
        assert all(piece.readonly for piece in reader.read(Source(), 5, 15, is_open_ended=False))


def test_chunk_is_downloaded_once() -> None:
    chunks, source = cache(), Source()
    read(chunks, source, 12, 15)
    read(chunks, source, 10, 19)
    assert source.requests == [range(1, 2)]


def test_adjacent_chunks_share_bounded_requests() -> None:
    source = Source()
    read(cache(), source, 5, 65)
    assert source.requests == [range(4), range(4, 7)]


def test_cached_chunks_are_not_requested() -> None:
    chunks, source = cache(), Source()
    read(chunks, source, 20, 29)
    read(chunks, source, 0, 49)
    assert source.requests == [range(2, 3), range(2), range(3, 5)]


def test_open_ended_read_downloads_only_reached_chunks() -> None:
    chunks, source = cache(), Source()
    pieces = chunks.read(source, 0, 99, is_open_ended=True)
    assert bytes(next(pieces)) == CONTENT[:10]
    assert bytes(next(pieces)) == CONTENT[10:20]
    assert source.requests == [range(1), range(1, 2)]


def test_concurrent_misses_share_one_download() -> None:
    chunks, source = cache(), Source()
    source.gate.clear()
    with ThreadPoolExecutor(2) as threads:
        one = threads.submit(read, chunks, source, 0, 9)
        assert source.began.wait(10)
        other = threads.submit(read, chunks, source, 5, 14)
        source.gate.set()
        assert (one.result(), other.result()) == (CONTENT[:10], CONTENT[5:15])
    assert sorted(map(list, source.requests)) == [[0], [1]]


def test_download_continues_after_reader_timeout() -> None:
    storage, source = SignallingStorage(), Source()
    chunks = ChunkCache(storage, HeldPool(), wait_ms=1)
    source.gate.clear()
    with pytest.raises(RetriableRemoteStorageError, match="chunk 0 of log is on its way for more than 1 ms"):
        read(chunks, source, 0, 9)
    source.gate.set()
    assert storage.came.wait(10)
    assert read(chunks, source, 0, 9) == CONTENT[:10]
    assert source.requests == [range(1)]


def test_chunk_is_available_before_its_request_ends() -> None:
    chunks, source = cache(), Source()
    source.held_from = 1
    source.gate.clear()
    assert bytes(next(chunks.read(source, 0, 39, is_open_ended=False))) == CONTENT[:10]
    assert read(chunks, source, 0, 9) == CONTENT[:10]
    assert source.requests == [range(4)]
    source.gate.set()


@pytest.mark.parametrize("error", [RemoteStorageError("x"), CorruptRemoteData("x"), ValueError("x")])
def test_failure_hits_missing_chunks_and_is_not_cached(error: Exception) -> None:
    chunks, source = cache(), Source()
    source.error, source.fails_at = error, 2
    pieces = chunks.read(source, 0, 39, is_open_ended=False)
    assert bytes(next(pieces)) + bytes(next(pieces)) == CONTENT[:20]
    with pytest.raises(type(error), match="x"):
        next(pieces)
    source.error = None
    assert read(chunks, source, 0, 39) == CONTENT[:40]
    assert source.requests[0] == range(4)
    assert set(source.requests[1:]) == {range(2, 4)}


def test_full_pool_makes_reader_retry() -> None:
    pool = HeldPool()
    chunks, source = cache(pool), Source()
    pool.is_full = True
    with pytest.raises(RetriableRemoteStorageError, match="too many"):
        read(chunks, source, 0, 9)
    pool.is_full = False
    assert read(chunks, source, 0, 9) == CONTENT[:10]


def test_sequential_reader_gets_following_chunks_prefetched() -> None:
    pool = HeldPool()
    chunks, source = cache(pool, prefetch_bytes=25), Source()
    read(chunks, source, 0, 4)
    pool.run_ahead()
    assert source.requests == [range(1), range(1, 4)]
    read(chunks, source, 5, 14)
    assert pool.ahead == []
    read(chunks, source, 15, 24)
    pool.run_ahead()
    assert source.requests[2:] == [range(4, 6)]
    read(chunks, source, 0, 59)
    assert source.requests[3:] == []


def test_read_soon_prefetches_chunks() -> None:
    pool = HeldPool()
    chunks, source = cache(pool, prefetch_bytes=25), Source()
    chunks.read_soon(source, 15)
    pool.run_ahead()
    chunks.read_soon(source, 15)
    assert pool.ahead == []
    assert source.requests == [range(1, 4)]
    assert read(chunks, source, 15, 39) == CONTENT[15:40]
    assert source.requests == [range(1, 4)]


def test_random_reader_gets_no_prefetch() -> None:
    pool = HeldPool()
    chunks, source = cache(pool, prefetch_bytes=25), Source()
    for first in (50, 20, 70):
        read(chunks, source, first, first)
    assert pool.ahead == []
    read(chunks, source, 80, 80)
    pool.run_ahead()
    assert source.requests[-1] == range(9, 10)


def test_reader_waits_for_running_prefetch() -> None:
    pool = HeldPool()
    chunks, source = cache(pool, prefetch_bytes=10), Source()
    read(chunks, source, 0, 0)
    assert len(pool.ahead) == 1
    assert read(chunks, source, 10, 19) == CONTENT[10:20]
    assert source.requests == [range(1), range(1, 2)]


def test_prefetch_ends_with_log_or_full_pool() -> None:
    pool = HeldPool()
    chunks, source = cache(pool, prefetch_bytes=1000), Source()
    read(chunks, source, 0, 0)
    pool.is_full = True
    read(chunks, source, 0, 0)
    pool.is_full = False
    pool.run_ahead()
    assert source.requests == [range(1), range(1, 5), range(5, 9), range(9, 10)]
    read(chunks, source, 99, 99)
    assert pool.ahead == []


def shared(pool: HeldPool, now_ms: Callable[[], float] = lambda: 0.0) -> ChunkCache:
    """Return a cache with up to 30 bytes of prefetch per reader, and for all readers together."""
    storage = MemoryChunkStorage(CacheSettings(1000, None, 1), lambda: 0)
    return ChunkCache(storage, pool, wait_ms=10_000, prefetch_bytes=30, max_prefetch_bytes=30, now_ms=now_ms)


def test_readers_share_prefetch_limit() -> None:
    pool, sources = HeldPool(), [Source(str(number)) for number in range(4)]
    chunks = shared(pool)
    for source in sources:
        read(chunks, source, 0, 0)
        pool.run_ahead()
    ahead = [source.requests[1:] for source in sources]
    assert ahead == [[range(1, 4)], [range(1, 2)], [range(1, 2)], []]


def test_announced_reader_gets_a_share_of_prefetch_limit() -> None:
    pool, now, soon = HeldPool(), Source("now"), Source("soon")
    chunks = shared(pool)
    read(chunks, now, 60, 60)
    chunks.read_soon(soon, 0)
    pool.run_ahead()
    assert soon.requests == [range(1)]
    read(chunks, now, 70, 70)
    pool.run_ahead()
    assert now.requests == [range(6, 7), range(7, 8), range(8, 9)]


def test_finished_and_idle_readers_lose_their_share() -> None:
    pool, now_ms = HeldPool(), 0.0
    chunks, last = shared(pool, lambda: now_ms), Source("last")
    for name in ("through", "away"):
        read(chunks, Source(name), 0, 0)
    read(chunks, Source("through"), 99, 99)
    now_ms = 10_001.0
    pool.run_ahead()
    read(chunks, last, 0, 0)
    pool.run_ahead()
    assert last.requests == [range(1), range(1, 4)]


def test_forgotten_chunk_is_downloaded_again() -> None:
    chunks, source, other = cache(), Source(), Source("other")
    read(chunks, source, 0, 9)
    read(chunks, other, 0, 9)
    chunks.forget("log")
    read(chunks, source, 0, 9)
    read(chunks, other, 0, 9)
    assert (len(source.requests), len(other.requests)) == (2, 1)


def test_chunk_forgotten_in_flight_reaches_only_its_waiters() -> None:
    chunks, source = cache(), Source()
    source.gate.clear()
    with ThreadPoolExecutor(1) as threads:
        waiting = threads.submit(read, chunks, source, 0, 9)
        assert source.began.wait(10)
        chunks.forget("log")
        source.gate.set()
        assert waiting.result() == CONTENT[:10]
    assert read(chunks, source, 0, 9) == CONTENT[:10]
    assert len(source.requests) == 2


def test_close_fails_waiting_readers() -> None:
    pool = DownloadPool(threads=1, max_waiting=10)
    chunks, slow, source = cache(pool), Source("slow"), Source()
    slow.gate.clear()
    with ThreadPoolExecutor(2) as threads:
        running = threads.submit(read, chunks, slow, 0, 9)
        assert slow.began.wait(10)
        waiting = threads.submit(read, chunks, source, 0, 9)
        chunks.close()
        assert isinstance(waiting.exception(), RemoteStorageError)
        assert source.requests == []
        slow.gate.set()
        assert running.result() == CONTENT[:10]


def test_uncached_reader_uses_one_request_until_closed() -> None:
    source = Source()
    pieces = UncachedChunkReader().read(source, 25, 99, is_open_ended=True)
    assert bytes(next(pieces)) == CONTENT[25:30]
    assert source.requests == [range(2, 10)]
    assert source.ended == 0
    del pieces
    assert source.ended == 1


def test_concurrent_readers_read_correct_bytes() -> None:
    pool = DownloadPool(threads=3, max_waiting=1000)
    chunks, source = cache(pool, size=35, prefetch_bytes=20), Source()

    def reads_all_ranges(start: int) -> bool:
        return all(
            read(chunks, source, first, min(first + 13, 99)) == CONTENT[first : first + 14]
            for first in range(start, 100, 7)
        )

    with ThreadPoolExecutor(8) as threads:
        assert all(threads.map(reads_all_ranges, range(40)))
    chunks.close()
