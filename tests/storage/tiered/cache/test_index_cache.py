"""Indexes of remote segments on the local disk (`storage.tiered.cache.index_cache`)."""

import errno
import threading
from random import Random

import pytest

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
SIZE = 2 * 8 + 2 * 12  # of the indexes of one segment: the first batch gets no entries
ABORTED = AbortedTxn(7, 101, 103, 104)


class SlowFiles(RemoteFiles):
    """Remote files that signal a request for an index, and wait before they respond."""

    def __init__(self, logs: dict[Uuid, bytes], indexes: dict[tuple[Uuid, IndexKind], bytes]) -> None:
        super().__init__(logs, indexes)
        self.arrived, self.go_on = threading.Event(), threading.Event()

    def read_index(self, segment: RemoteSegment, kind: IndexKind) -> bytes:
        self.arrived.set()
        assert self.go_on.wait(10)
        return super().read_index(segment, kind)


class Stage:
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
            build_batch([Record(1000 * n, b"k", b"v")] * 2, base_offset=start + 2 * n, leader_epoch=0) for n in range(3)
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
        asked, self.storage.asked = self.storage.asked, []
        return asked

    def names(self) -> list[str]:
        return self.fs.list(DIRECTORY)


@pytest.fixture
def stage() -> Stage:
    return Stage()


def files_of(segment: RemoteSegment) -> list[str]:
    stem = f"{segment.start_offset}_{uuid_to_text(segment.id.id)}"
    return [f"{stem}.index", f"{stem}.timeindex", f"{stem}.txnindex"]


class TestLookups:
    def test_positions_and_times_are_those_of_the_segment(self, stage: Stage) -> None:
        segment = stage.segment()
        size = segment.size_bytes // 3
        with stage.cache.hold(segment) as indexes:
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

    def test_aborted_transactions(self, stage: Stage) -> None:
        with stage.cache.hold(stage.segment(aborted=True)) as indexes:
            assert indexes.aborted() == [ABORTED]


class TestFetching:
    def test_first_use_fetches_all_three_indexes_once(self, stage: Stage) -> None:
        segment = stage.segment(aborted=True)
        stage.use(segment, segment)
        assert stage.fetched() == [("index", 100), ("timeindex", 100), ("txnindex", 100)]
        assert stage.names() == files_of(segment)
        assert (stage.cache.hits, stage.cache.misses, len(stage.cache)) == (2, 1, 1)

    def test_a_segment_without_aborted_transactions_gets_an_empty_file(self, stage: Stage) -> None:
        segment = stage.segment()
        stage.use(segment)
        assert stage.fetched() == [("index", 100), ("timeindex", 100)]
        assert stage.fs.size(f"{DIRECTORY}/{files_of(segment)[2]}") == 0

    def test_an_old_segment_may_turn_out_to_have_none(self, stage: Stage) -> None:
        """Metadata of older releases do not tell whether there is an index."""
        segment = stage.segment(aborted=True)
        del stage.storage.indexes[segment.id.id, IndexKind.TRANSACTION]
        with stage.cache.hold(segment) as indexes:
            assert indexes.aborted() == []

    def test_missing_index_raises_not_found(self, stage: Stage) -> None:
        segment = stage.segment()
        del stage.storage.indexes[segment.id.id, IndexKind.TIME]
        with pytest.raises(RemoteResourceNotFound), stage.cache.hold(segment):
            pass
        assert stage.names() == []

    @pytest.mark.parametrize("kind", [IndexKind.OFFSET, IndexKind.TIME, IndexKind.TRANSACTION])
    @pytest.mark.parametrize("damage", ["cut", "swapped", "beyond"])
    def test_invalid_index_is_rejected_and_fetched_again(self, stage: Stage, kind: IndexKind, damage: str) -> None:
        segment = stage.segment(aborted=True)
        good = stage.storage.indexes[segment.id.id, kind]
        width = {IndexKind.OFFSET: 8, IndexKind.TIME: 12, IndexKind.TRANSACTION: 34}[kind]
        stage.storage.indexes[segment.id.id, kind] = {
            "cut": good[:-1],
            "swapped": good[width:] + good[:width] if len(good) > width else b"\xff" * width,
            "beyond": good + b"\x7f" * width,
        }[damage]
        with pytest.raises(CorruptRemoteData), stage.cache.hold(segment):
            pass
        assert stage.names() == []
        stage.storage.indexes[segment.id.id, kind] = good
        stage.use(segment)

    def test_full_disk_is_a_retriable_error(self, stage: Stage) -> None:
        segment = stage.segment()
        stage.fs.fail("write", errno.ENOSPC)
        with pytest.raises(RetriableRemoteStorageError), stage.cache.hold(segment):
            pass
        stage.use(segment)
        assert stage.names() == files_of(segment)

    def test_concurrent_readers_share_one_fetch(self, stage: Stage) -> None:
        segment = stage.segment()
        slow = SlowFiles(stage.storage.logs, stage.storage.indexes)
        stage.cache = IndexCache(checked(stage.fs), DIRECTORY, slow, 10_000)
        threads = [threading.Thread(target=stage.use, args=(segment,)) for _ in range(4)]
        for thread in threads:
            thread.start()
        assert slow.arrived.wait(10)
        slow.go_on.set()
        for thread in threads:
            thread.join(10)
        assert stage.cache.misses == 1
        assert stage.cache.hits == 4
        assert slow.asked == [("index", 100), ("timeindex", 100)]

    def test_waiting_readers_share_the_failure(self, stage: Stage) -> None:
        segment = stage.segment()
        stage.storage.failures = [RetriableRemoteStorageError("down")]
        with pytest.raises(RetriableRemoteStorageError), stage.cache.hold(segment):
            pass
        stage.use(segment)


class TestRoom:
    def test_least_recently_used_indexes_are_evicted(self) -> None:
        stage = Stage(max_bytes=2 * SIZE)
        first, second, third = (stage.segment(number) for number in (1, 2, 3))
        stage.use(first, second, first, third)
        assert sorted(stage.names()) == sorted(files_of(first) + files_of(third))
        assert (stage.cache.size_bytes, stage.cache.evictions) == (2 * SIZE, 1)

    def test_indexes_larger_than_the_cache_are_still_served(self) -> None:
        stage = Stage(max_bytes=1)
        stage.use(stage.segment(1), stage.segment(2))
        assert stage.names() == files_of(stage.segment(2))

    def test_resize_evicts_at_once(self, stage: Stage) -> None:
        segments = [stage.segment(number) for number in (1, 2, 3)]
        stage.use(*segments)
        stage.cache.resize(SIZE)
        assert stage.names() == files_of(segments[2])

    def test_reader_keeps_evicted_indexes_open(self, stage: Stage) -> None:
        segment = stage.segment(aborted=True)
        with stage.cache.hold(segment) as indexes:
            stage.cache.resize(0)
            assert stage.names() == []
            assert indexes.position_of(105) == 2 * segment.size_bytes // 3
            assert indexes.offset_before(1000) == 103
            assert indexes.aborted() == [ABORTED]

    def test_expired_segments_are_forgotten(self, stage: Stage) -> None:
        segments = [stage.segment(number) for number in (1, 2)]
        stage.use(*segments)
        stage.cache.forget([segments[0].id.id, Uuid(b"\xaa" * 16)])
        assert stage.names() == files_of(segments[1])
        assert stage.cache.size_bytes == SIZE

    def test_deleting_segment_drops_cached_indexes(self, stage: Stage) -> None:
        storage: RemoteStorageManager = IndexInvalidatingStorage(stage.storage, stage.cache)
        segment = stage.segment(aborted=True)
        stage.use(segment)
        assert len(storage.read_index(segment, IndexKind.TRANSACTION)) == 34
        assert len(b"".join(storage.read_segment(segment, 0))) == segment.size_bytes
        storage.delete_segment(segment)
        assert stage.names() == []
        with pytest.raises(RemoteResourceNotFound), stage.cache.hold(segment):
            pass

    def test_readers_survive_concurrent_evictions(self) -> None:
        stage = Stage(max_bytes=SIZE)
        segments = [stage.segment(number) for number in range(1, 5)]
        failures: list[BaseException] = []

        def read(seed: int) -> None:
            random = Random(seed)
            try:
                for _ in range(200):
                    stage.use(random.choice(segments))
            except BaseException as error:  # noqa: BLE001  the test looks at it
                failures.append(error)

        threads = [threading.Thread(target=read, args=(seed,)) for seed in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
        assert failures == []
        assert len(stage.names()) == 3


class TestRot:
    """Flipped bits on the local disk."""

    @pytest.mark.parametrize("kind", [IndexKind.TIME, IndexKind.TRANSACTION])
    @pytest.mark.parametrize("is_restarted", [False, True])
    def test_times_and_aborted_transactions_are_fetched_again(
        self, stage: Stage, kind: IndexKind, is_restarted: bool
    ) -> None:
        segment = stage.segment(aborted=True)
        stage.use(segment)
        if is_restarted:
            stage.restart()
            stage.use(segment)
        path = f"{DIRECTORY}/{files_of(segment)[KINDS.index(kind)]}"
        content = bytearray(read_file(stage.fs, path))
        content[5] ^= 1
        write_file(stage.fs, path, content, sync=False)
        stage.fetched()
        with stage.cache.hold(segment, IndexKind.OFFSET, kind) as indexes:
            if kind is IndexKind.TIME:
                assert indexes.offset_before(1000) == 103
            else:
                assert indexes.aborted() == [ABORTED]
        assert len(stage.fetched()) == len(stage.names()) == len(KINDS)
        stage.use(segment)
        assert not stage.fetched()


class TestRestart:
    @pytest.fixture
    def segments(self, stage: Stage) -> list[RemoteSegment]:
        segments = [stage.segment(number) for number in (1, 2, 3)]
        for segment in segments:
            stage.fs.now_ms += 1
            stage.use(segment)
        stage.fetched()
        return segments

    def test_restart_reuses_cached_files(self, stage: Stage, segments: list[RemoteSegment]) -> None:
        stage.restart()
        stage.use(*segments)
        assert stage.fetched() == []
        assert stage.cache.size_bytes == 3 * SIZE

    def test_restart_evicts_oldest_above_bound(self, stage: Stage, segments: list[RemoteSegment]) -> None:
        stage.restart(max_bytes=2 * SIZE)
        stage.use(segments[2])
        assert sorted(stage.names()) == sorted(files_of(segments[1]) + files_of(segments[2]))

    def test_restart_removes_leftovers_and_keeps_foreign_files(
        self, stage: Stage, segments: list[RemoteSegment]
    ) -> None:
        first, second, _ = segments
        for name in (f"{files_of(first)[0]}.tmp", f"{files_of(first)[0]}.deleted", "notes"):
            write_file(stage.fs, f"{DIRECTORY}/{name}", b"x", sync=False)
        stage.fs.remove(f"{DIRECTORY}/{files_of(second)[1]}")
        stage.restart()
        stage.use(first)
        assert sorted(stage.names()) == sorted([*files_of(first), *files_of(segments[2]), "notes"])
        stage.use(second)
        assert stage.fetched() == [("index", 200), ("timeindex", 200)]

    def test_rotted_index_is_fetched_again(self, stage: Stage, segments: list[RemoteSegment]) -> None:
        write_file(stage.fs, f"{DIRECTORY}/{files_of(segments[0])[0]}", b"\0" * 16 + b"\xff" * 8, sync=False)
        stage.restart()
        stage.use(segments[0])
        assert stage.fetched() == [("index", 100), ("timeindex", 100)]

    def test_empty_index_after_crash_is_fetched_again(self, stage: Stage, segments: list[RemoteSegment]) -> None:
        write_file(stage.fs, f"{DIRECTORY}/{files_of(segments[0])[0]}", b"", sync=False)
        stage.restart()
        stage.use(segments[0])
        assert stage.fetched() == [("index", 100), ("timeindex", 100)]

    def test_manually_removed_index_is_fetched_again(self, stage: Stage, segments: list[RemoteSegment]) -> None:
        for name in stage.names():
            stage.fs.remove(f"{DIRECTORY}/{name}")
        stage.use(segments[0])
        assert stage.fetched() == [("index", 100), ("timeindex", 100)]

    @pytest.mark.parametrize("seed", range(30))
    def test_crash_never_leaves_wrong_index(self, seed: int) -> None:
        stage = Stage(max_bytes=2 * SIZE)
        stage.fs.make_directory(DIRECTORY)
        stage.fs.sync_directory("/data")
        stage.fs.sync_directory("/")
        random = Random(seed)
        segments = [stage.segment(number) for number in (1, 2, 3, 4)]
        stage.use(*random.sample(segments, random.randint(1, 4)))
        stage.fs.crash(random)
        stage.restart(max_bytes=2 * SIZE)
        for segment in segments:
            with stage.cache.hold(segment) as indexes:
                assert indexes.position_of(segment.end_offset) == 2 * segment.size_bytes // 3
                assert indexes.offset_before(1000) == segment.start_offset + 3
        assert len(stage.names()) == 6
