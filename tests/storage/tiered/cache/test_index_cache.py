"""Indexes of remote segments on the local disk (`storage.tiered.cache.index_cache`)."""

import errno
import threading
from random import Random

import pytest

from protocol.ids import LeaderEpoch
from protocol.primitives import Uuid, uuid_to_text
from protocol.records.builder import Record, build_batch
from storage.files import read_file, write_file
from storage.index.transaction import AbortedTxn
from storage.tiered.cache.index_cache import KINDS, IndexCache
from storage.tiered.cache.index_invalidation import IndexInvalidatingStorage
from storage.tiered.errors import CorruptRemoteData, RemoteResourceNotFound, RetriableRemoteStorageError
from storage.tiered.remote_storage import IndexKind, RemoteStorageManager
from storage.tiered.segment_metadata import RemoteSegment
from tests.storage.tiered.sample_segments import PARTITION
from tests.support.fakes.memory_files import MemoryFileSystem, checked
from tests.support.fakes.remote_files import RemoteFiles

DIRECTORY = "/data/remote-log-index-cache"
SIZE = 2 * 8 + 2 * 12  # bytes of the indexes of one segment; its first batch gets no entries
ABORTED = AbortedTxn(7, 101, 103, 104)


class SlowFiles(RemoteFiles):
    """Remote files that signal a request for an index, and wait before they respond."""

    def __init__(self, logs: dict[Uuid, bytes], indexes: dict[tuple[Uuid, IndexKind], bytes]) -> None:
        super().__init__(logs, indexes)
        self.arrived, self.release = threading.Event(), threading.Event()

    def read_index(self, segment: RemoteSegment, kind: IndexKind) -> bytes:
        self.arrived.set()
        assert self.release.wait(10)
        return super().read_index(segment, kind)


class IndexCacheHarness:
    """A cache over remote files. Segment `n` begins at 100 n and holds three batches of two records."""

    def __init__(self, max_bytes: int = 10_000) -> None:
        self.fs = MemoryFileSystem()
        self.storage = RemoteFiles()
        self.restart(max_bytes)

    def restart(self, max_bytes: int = 10_000) -> None:
        self.cache = IndexCache(checked(self.fs), DIRECTORY, self.storage, max_bytes)

    def segment(self, number: int = 1, *, aborted: bool = False) -> RemoteSegment:
        start = 100 * number
        batches = [
            build_batch([Record(1000 * n, b"k", b"v")] * 2, base_offset=start + 2 * n, leader_epoch=LeaderEpoch(0))
            for n in range(3)
        ]
        return self.storage.put(
            number,
            batches,
            start_offset=start,
            end_offset=start + 5,
            aborted=[ABORTED] if aborted else [],
            partition=PARTITION,
        )

    def use(self, *segments: RemoteSegment) -> None:
        for segment in segments:
            with self.cache.hold(segment) as indexes:
                assert indexes.position_of(segment.start_offset) == 0

    def fetched(self) -> list[tuple[str, int]]:
        """Return the requests to remote storage since the last call."""
        requests, self.storage.reads = self.storage.reads, []
        return requests

    def names(self) -> list[str]:
        return self.fs.list(DIRECTORY)


@pytest.fixture
def harness() -> IndexCacheHarness:
    return IndexCacheHarness()


def files_of(segment: RemoteSegment) -> list[str]:
    stem = f"{segment.start_offset}_{uuid_to_text(segment.id.id)}"
    return [f"{stem}.index", f"{stem}.timeindex", f"{stem}.txnindex"]


class TestLookups:
    def test_positions_and_times_are_those_of_the_segment(self, harness: IndexCacheHarness) -> None:
        segment = harness.segment()
        size = segment.size_bytes // 3
        with harness.cache.hold(segment) as indexes:
            assert [indexes.position_of(offset) for offset in (100, 102, 103, 104, 105, 999)] == [
                0,
                0,
                size,
                size,
                2 * size,
                2 * size,
            ]
            assert [indexes.offset_before(time) for time in (-1, 999, 1000, 1999, 2000, 9999)] == [
                100,
                100,
                103,
                103,
                105,
                105,
            ]
            assert indexes.aborted() == []

    def test_aborted_transactions_are_read_from_the_index(self, harness: IndexCacheHarness) -> None:
        with harness.cache.hold(harness.segment(aborted=True)) as indexes:
            assert indexes.aborted() == [ABORTED]


class TestFetching:
    def test_first_use_fetches_all_three_indexes_once(self, harness: IndexCacheHarness) -> None:
        segment = harness.segment(aborted=True)
        harness.use(segment, segment)
        assert harness.fetched() == [("index", 100), ("timeindex", 100), ("txnindex", 100)]
        assert harness.names() == files_of(segment)
        assert (harness.cache.hits, harness.cache.misses, len(harness.cache)) == (2, 1, 1)

    def test_segment_without_aborted_transactions_gets_an_empty_file(self, harness: IndexCacheHarness) -> None:
        segment = harness.segment()
        harness.use(segment)
        assert harness.fetched() == [("index", 100), ("timeindex", 100)]
        assert harness.fs.size(f"{DIRECTORY}/{files_of(segment)[2]}") == 0

    def test_missing_transaction_index_of_an_old_segment_is_empty(self, harness: IndexCacheHarness) -> None:
        """Metadata of older releases do not record whether a transaction index exists."""
        segment = harness.segment(aborted=True)
        del harness.storage.indexes[segment.id.id, IndexKind.TRANSACTION]
        with harness.cache.hold(segment) as indexes:
            assert indexes.aborted() == []

    def test_missing_index_raises_not_found(self, harness: IndexCacheHarness) -> None:
        segment = harness.segment()
        del harness.storage.indexes[segment.id.id, IndexKind.TIME]
        with pytest.raises(RemoteResourceNotFound), harness.cache.hold(segment):
            pass
        assert harness.names() == []

    @pytest.mark.parametrize("kind", [IndexKind.OFFSET, IndexKind.TIME, IndexKind.TRANSACTION])
    @pytest.mark.parametrize("damage", ["cut", "swapped", "beyond"])
    def test_invalid_index_is_rejected_and_fetched_again(
        self, harness: IndexCacheHarness, kind: IndexKind, damage: str
    ) -> None:
        segment = harness.segment(aborted=True)
        good = harness.storage.indexes[segment.id.id, kind]
        width = {IndexKind.OFFSET: 8, IndexKind.TIME: 12, IndexKind.TRANSACTION: 34}[kind]
        harness.storage.indexes[segment.id.id, kind] = {
            "cut": good[:-1],
            "swapped": good[width:] + good[:width] if len(good) > width else b"\xff" * width,
            "beyond": good + b"\x7f" * width,
        }[damage]
        with pytest.raises(CorruptRemoteData), harness.cache.hold(segment):
            pass
        assert harness.names() == []
        harness.storage.indexes[segment.id.id, kind] = good
        harness.use(segment)

    def test_full_disk_is_a_retriable_error(self, harness: IndexCacheHarness) -> None:
        segment = harness.segment()
        harness.fs.fail("write", errno.ENOSPC)
        with pytest.raises(RetriableRemoteStorageError), harness.cache.hold(segment):
            pass
        harness.use(segment)
        assert harness.names() == files_of(segment)

    def test_concurrent_readers_share_one_fetch(self, harness: IndexCacheHarness) -> None:
        segment = harness.segment()
        slow = SlowFiles(harness.storage.logs, harness.storage.indexes)
        harness.cache = IndexCache(checked(harness.fs), DIRECTORY, slow, 10_000)
        threads = [threading.Thread(target=harness.use, args=(segment,)) for _ in range(4)]
        for thread in threads:
            thread.start()
        assert slow.arrived.wait(10)
        slow.release.set()
        for thread in threads:
            thread.join(10)
        assert harness.cache.misses == 1
        assert harness.cache.hits == 4
        assert slow.reads == [("index", 100), ("timeindex", 100)]

    def test_waiting_readers_share_the_failure(self, harness: IndexCacheHarness) -> None:
        segment = harness.segment()
        harness.storage.failures = [RetriableRemoteStorageError("down")]
        with pytest.raises(RetriableRemoteStorageError), harness.cache.hold(segment):
            pass
        harness.use(segment)


class TestSize:
    def test_least_recently_used_indexes_are_evicted(self) -> None:
        harness = IndexCacheHarness(max_bytes=2 * SIZE)
        first, second, third = (harness.segment(number) for number in (1, 2, 3))
        harness.use(first, second, first, third)
        assert sorted(harness.names()) == sorted(files_of(first) + files_of(third))
        assert (harness.cache.size_bytes, harness.cache.evictions) == (2 * SIZE, 1)

    def test_indexes_larger_than_the_cache_are_still_served(self) -> None:
        harness = IndexCacheHarness(max_bytes=1)
        harness.use(harness.segment(1), harness.segment(2))
        assert harness.names() == files_of(harness.segment(2))

    def test_resize_evicts_at_once(self, harness: IndexCacheHarness) -> None:
        segments = [harness.segment(number) for number in (1, 2, 3)]
        harness.use(*segments)
        harness.cache.resize(SIZE)
        assert harness.names() == files_of(segments[2])

    def test_reader_keeps_evicted_indexes_open(self, harness: IndexCacheHarness) -> None:
        segment = harness.segment(aborted=True)
        with harness.cache.hold(segment) as indexes:
            harness.cache.resize(0)
            assert harness.names() == []
            assert indexes.position_of(105) == 2 * segment.size_bytes // 3
            assert indexes.offset_before(1000) == 103
            assert indexes.aborted() == [ABORTED]

    def test_expired_segments_are_forgotten(self, harness: IndexCacheHarness) -> None:
        segments = [harness.segment(number) for number in (1, 2)]
        harness.use(*segments)
        harness.cache.forget([segments[0].id.id, Uuid(b"\xaa" * 16)])
        assert harness.names() == files_of(segments[1])
        assert harness.cache.size_bytes == SIZE

    def test_deleting_segment_drops_cached_indexes(self, harness: IndexCacheHarness) -> None:
        storage: RemoteStorageManager = IndexInvalidatingStorage(harness.storage, harness.cache)
        segment = harness.segment(aborted=True)
        harness.use(segment)
        assert len(storage.read_index(segment, IndexKind.TRANSACTION)) == 34
        assert len(b"".join(storage.read_segment(segment, 0))) == segment.size_bytes
        storage.delete_segment(segment)
        assert harness.names() == []
        with pytest.raises(RemoteResourceNotFound), harness.cache.hold(segment):
            pass

    def test_readers_survive_concurrent_evictions(self) -> None:
        harness = IndexCacheHarness(max_bytes=SIZE)
        segments = [harness.segment(number) for number in range(1, 5)]
        failures: list[BaseException] = []

        def read(seed: int) -> None:
            random = Random(seed)
            try:
                for _ in range(200):
                    harness.use(random.choice(segments))
            except BaseException as error:  # noqa: BLE001  the test asserts on it
                failures.append(error)

        threads = [threading.Thread(target=read, args=(seed,)) for seed in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
        assert failures == []
        assert len(harness.names()) == 3


class TestCorruption:
    """Flipped bits on the local disk."""

    @pytest.mark.parametrize("kind", [IndexKind.TIME, IndexKind.TRANSACTION])
    @pytest.mark.parametrize("is_restarted", [False, True])
    def test_times_and_aborted_transactions_are_fetched_again(
        self, harness: IndexCacheHarness, kind: IndexKind, is_restarted: bool
    ) -> None:
        segment = harness.segment(aborted=True)
        harness.use(segment)
        if is_restarted:
            harness.restart()
            harness.use(segment)
        path = f"{DIRECTORY}/{files_of(segment)[KINDS.index(kind)]}"
        content = bytearray(read_file(harness.fs, path))
        content[5] ^= 1
        write_file(harness.fs, path, content, sync=False)
        harness.fetched()
        with harness.cache.hold(segment, IndexKind.OFFSET, kind) as indexes:
            if kind is IndexKind.TIME:
                assert indexes.offset_before(1000) == 103
            else:
                assert indexes.aborted() == [ABORTED]
        assert len(harness.fetched()) == len(harness.names()) == len(KINDS)
        harness.use(segment)
        assert not harness.fetched()


class TestRestart:
    @pytest.fixture
    def segments(self, harness: IndexCacheHarness) -> list[RemoteSegment]:
        segments = [harness.segment(number) for number in (1, 2, 3)]
        for segment in segments:
            harness.fs.now_ms += 1
            harness.use(segment)
        harness.fetched()
        return segments

    def test_restart_reuses_cached_files(self, harness: IndexCacheHarness, segments: list[RemoteSegment]) -> None:
        harness.restart()
        harness.use(*segments)
        assert harness.fetched() == []
        assert harness.cache.size_bytes == 3 * SIZE

    def test_restart_evicts_oldest_above_bound(self, harness: IndexCacheHarness, segments: list[RemoteSegment]) -> None:
        harness.restart(max_bytes=2 * SIZE)
        harness.use(segments[2])
        assert sorted(harness.names()) == sorted(files_of(segments[1]) + files_of(segments[2]))

    def test_restart_removes_leftovers_and_keeps_foreign_files(
        self, harness: IndexCacheHarness, segments: list[RemoteSegment]
    ) -> None:
        first, second, _ = segments
        for name in (f"{files_of(first)[0]}.tmp", f"{files_of(first)[0]}.deleted", "notes"):
            write_file(harness.fs, f"{DIRECTORY}/{name}", b"x", sync=False)
        harness.fs.remove(f"{DIRECTORY}/{files_of(second)[1]}")
        harness.restart()
        harness.use(first)
        assert sorted(harness.names()) == sorted([*files_of(first), *files_of(segments[2]), "notes"])
        harness.use(second)
        assert harness.fetched() == [("index", 200), ("timeindex", 200)]

    def test_corrupt_index_is_fetched_again(self, harness: IndexCacheHarness, segments: list[RemoteSegment]) -> None:
        write_file(harness.fs, f"{DIRECTORY}/{files_of(segments[0])[0]}", b"\0" * 16 + b"\xff" * 8, sync=False)
        harness.restart()
        harness.use(segments[0])
        assert harness.fetched() == [("index", 100), ("timeindex", 100)]

    def test_empty_index_after_crash_is_fetched_again(
        self, harness: IndexCacheHarness, segments: list[RemoteSegment]
    ) -> None:
        write_file(harness.fs, f"{DIRECTORY}/{files_of(segments[0])[0]}", b"", sync=False)
        harness.restart()
        harness.use(segments[0])
        assert harness.fetched() == [("index", 100), ("timeindex", 100)]

    def test_manually_removed_index_is_fetched_again(
        self, harness: IndexCacheHarness, segments: list[RemoteSegment]
    ) -> None:
        for name in harness.names():
            harness.fs.remove(f"{DIRECTORY}/{name}")
        harness.use(segments[0])
        assert harness.fetched() == [("index", 100), ("timeindex", 100)]

    @pytest.mark.parametrize("seed", range(30))
    def test_crash_never_leaves_wrong_index(self, seed: int) -> None:
        harness = IndexCacheHarness(max_bytes=2 * SIZE)
        harness.fs.make_directory(DIRECTORY)
        harness.fs.sync_directory("/data")
        harness.fs.sync_directory("/")
        random = Random(seed)
        segments = [harness.segment(number) for number in (1, 2, 3, 4)]
        harness.use(*random.sample(segments, random.randint(1, 4)))
        harness.fs.crash(random)
        harness.restart(max_bytes=2 * SIZE)
        for segment in segments:
            with harness.cache.hold(segment) as indexes:
                assert indexes.position_of(segment.end_offset) == 2 * segment.size_bytes // 3
                assert indexes.offset_before(1000) == segment.start_offset + 3
        assert len(harness.names()) == 6
