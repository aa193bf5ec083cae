"""Both chunk storages have one contract; the one on disk also survives disk failures."""

import errno
from collections.abc import Callable

import pytest

from storage.files import OsFileSystem, join, write_file
from storage.tiered.cache.chunk_storage import ChunkKey, ChunkStorage, DiskChunkStorage, MemoryChunkStorage
from storage.tiered.settings import CacheSettings
from tests.support.memory_files import MemoryFileSystem

A, B, C = (ChunkKey("topic/1.log", number) for number in range(3))
OTHER = ChunkKey("topic/2.log", 0)

MakeShelf = Callable[[int], ChunkStorage]


class Clock:
    ms = 0.0

    def __call__(self) -> float:
        return self.ms


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def fs() -> MemoryFileSystem:
    return MemoryFileSystem()


@pytest.fixture(params=["memory", "disk"])
def shelf(request: pytest.FixtureRequest, fs: MemoryFileSystem, clock: Clock) -> MemoryChunkStorage | DiskChunkStorage:
    limits = CacheSettings(30, 1000, 1)
    return (
        MemoryChunkStorage(limits, clock) if request.param == "memory" else DiskChunkStorage(fs, "place", limits, clock)
    )


def part(shelf: ChunkStorage, key: ChunkKey, start: int = 0, end: int = 10) -> bytes | None:
    data = shelf.get(key, start, end)
    return None if data is None else bytes(data)


def test_get_returns_part_of_chunk(shelf: MemoryChunkStorage | DiskChunkStorage) -> None:
    assert part(shelf, A) is None
    assert A not in shelf
    shelf.put(A, b"0123456789")
    assert A in shelf
    assert part(shelf, A, 2, 5) == b"234"
    assert part(shelf, B) is None


def test_least_recently_used_chunk_is_evicted_above_size(
    shelf: MemoryChunkStorage | DiskChunkStorage,
) -> None:
    for key in (A, B, C):
        shelf.put(key, b"0123456789")
    assert part(shelf, A)
    shelf.put(OTHER, b"0123456789")
    assert B not in shelf
    assert part(shelf, B) is None
    assert part(shelf, A) == part(shelf, C) == part(shelf, OTHER) == b"0123456789"
    assert shelf.size_bytes == 30


def test_a_chunk_that_is_read_outlives_its_eviction(shelf: MemoryChunkStorage | DiskChunkStorage) -> None:
    shelf.put(A, b"0123456789")
    data = shelf.get(A, 0, 10)
    shelf.forget(A.object_key)
    for key in (B, C, OTHER):
        shelf.put(key, b"##########")
    assert data is not None
    assert bytes(data) == b"0123456789"


def test_idle_chunks_expire(shelf: MemoryChunkStorage | DiskChunkStorage, clock: Clock) -> None:
    shelf.put(A, b"0123456789")
    clock.ms = 1001
    assert part(shelf, A) is None
    assert shelf.size_bytes == 0


def test_all_chunks_of_an_object_are_forgotten_together(shelf: MemoryChunkStorage | DiskChunkStorage) -> None:
    for key in (A, B, OTHER):
        shelf.put(key, b"0123456789")
    shelf.forget(A.object_key)
    assert [key in shelf for key in (A, B, OTHER)] == [False, False, True]


def disk_shelf(fs: MemoryFileSystem, size: int = 30) -> DiskChunkStorage:
    return DiskChunkStorage(fs, "place", CacheSettings(size, None, 1), lambda: 0)


def test_files_exist_as_long_as_their_chunks(fs: MemoryFileSystem) -> None:
    shelf = disk_shelf(fs, size=20)
    shelf.put(A, b"0123456789")
    shelf.put(B, b"0123456789")
    assert fs.list("place/cache") == ["1.log-0", "1.log-1"]
    shelf.put(OTHER, b"0123456789")
    assert fs.list("place/cache") == ["1.log-1", "2.log-0"]
    shelf.forget("topic/1.log")
    assert fs.list("place/cache") == ["2.log-0"]


def test_restart_removes_only_files_of_former_process(fs: MemoryFileSystem) -> None:
    disk_shelf(fs).put(A, b"0123456789")
    write_file(fs, "place/mine", b"", sync=False)
    assert part(disk_shelf(fs), A) is None
    assert fs.list("place") == ["cache", "mine"]
    assert fs.list("place/cache") == []


@pytest.mark.parametrize("operation", ["write", "rename"])
def test_a_chunk_that_cannot_be_written_is_not_kept(fs: MemoryFileSystem, operation: str) -> None:
    shelf = disk_shelf(fs)
    fs.fail("write" if operation == "write" else "rename", errno.ENOSPC, path_part="1.log-0")
    shelf.put(A, b"0123456789")
    assert A not in shelf
    assert fs.list("place/cache") == []
    assert shelf.failures == 1


@pytest.mark.parametrize("damage", ["lost", "cut", "unreadable", "closed to us"])
def test_unreadable_chunk_is_absent(fs: MemoryFileSystem, damage: str) -> None:
    shelf = disk_shelf(fs)
    shelf.put(A, b"0123456789")
    match damage:
        case "lost":
            fs.remove("place/cache/1.log-0")
        case "cut":
            write_file(fs, "place/cache/1.log-0", b"0123", sync=False)
        case "unreadable":
            fs.fail("read", path_part="1.log-0")
        case _:
            fs.fail("open", errno.EACCES, path_part="1.log-0")
    assert part(shelf, A) is None
    assert A not in shelf
    shelf.put(A, b"9876543210")
    assert part(shelf, A) == b"9876543210"


def test_a_file_that_cannot_be_removed_is_counted(fs: MemoryFileSystem) -> None:
    shelf = disk_shelf(fs)
    shelf.put(A, b"0123456789")
    fs.fail("remove", path_part="1.log-0")
    shelf.forget(A.object_key)
    assert A not in shelf
    assert shelf.failures == 1


def test_disk_storage_works_on_real_files(tmp_path_factory: pytest.TempPathFactory) -> None:
    directory = str(tmp_path_factory.mktemp("shelf"))
    shelf = DiskChunkStorage(OsFileSystem(), join(directory, "deep/place"), CacheSettings(20, None, 1), lambda: 0)
    for key in (A, B, C):
        shelf.put(key, bytes(10))
    assert [part(shelf, key) for key in (A, B, C)] == [None, bytes(10), bytes(10)]
