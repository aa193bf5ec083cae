"""Both chunk storages have one contract; the one on disk also survives disk failures."""

import errno
from collections.abc import Callable

import pytest

from storage.files import OsFileSystem, join, write_file
from storage.tiered.cache.chunk_storage import ChunkKey, ChunkStorage, DiskChunkStorage, MemoryChunkStorage
from storage.tiered.settings import CacheSettings
from tests.support.fakes.memory_files import MemoryFileSystem

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
def storage(
    request: pytest.FixtureRequest, fs: MemoryFileSystem, clock: Clock
) -> MemoryChunkStorage | DiskChunkStorage:
    limits = CacheSettings(30, 1000, 1)
    return (
        MemoryChunkStorage(limits, clock) if request.param == "memory" else DiskChunkStorage(fs, "place", limits, clock)
    )


def part(storage: ChunkStorage, key: ChunkKey, start: int = 0, end: int = 10) -> bytes | None:
    data = storage.get(key, start, end)
    return None if data is None else bytes(data)


def test_get_returns_part_of_chunk(storage: MemoryChunkStorage | DiskChunkStorage) -> None:
    assert part(storage, A) is None
    assert A not in storage
    storage.put(A, b"0123456789")
    assert A in storage
    assert part(storage, A, 2, 5) == b"234"
    assert part(storage, B) is None


def test_least_recently_used_chunk_is_evicted_above_size(
    storage: MemoryChunkStorage | DiskChunkStorage,
) -> None:
    for key in (A, B, C):
        storage.put(key, b"0123456789")
    assert part(storage, A)
    storage.put(OTHER, b"0123456789")
    assert B not in storage
    assert part(storage, B) is None
    assert part(storage, A) == part(storage, C) == part(storage, OTHER) == b"0123456789"
    assert storage.size_bytes == 30


def test_chunk_in_use_survives_its_eviction(storage: MemoryChunkStorage | DiskChunkStorage) -> None:
    storage.put(A, b"0123456789")
    data = storage.get(A, 0, 10)
    storage.forget(A.object_key)
    for key in (B, C, OTHER):
        storage.put(key, b"##########")
    assert data is not None
    assert bytes(data) == b"0123456789"


def test_idle_chunks_expire(storage: MemoryChunkStorage | DiskChunkStorage, clock: Clock) -> None:
    storage.put(A, b"0123456789")
    clock.ms = 1001
    assert part(storage, A) is None
    assert storage.size_bytes == 0


def test_all_chunks_of_an_object_are_forgotten_together(storage: MemoryChunkStorage | DiskChunkStorage) -> None:
    for key in (A, B, OTHER):
        storage.put(key, b"0123456789")
    storage.forget(A.object_key)
    assert [key in storage for key in (A, B, OTHER)] == [False, False, True]


def disk_storage(fs: MemoryFileSystem, size: int = 30) -> DiskChunkStorage:
    return DiskChunkStorage(fs, "place", CacheSettings(size, None, 1), lambda: 0)


def test_files_exist_as_long_as_their_chunks(fs: MemoryFileSystem) -> None:
    storage = disk_storage(fs, size=20)
    storage.put(A, b"0123456789")
    storage.put(B, b"0123456789")
    assert fs.list("place/cache") == ["1.log-0", "1.log-1"]
    storage.put(OTHER, b"0123456789")
    assert fs.list("place/cache") == ["1.log-1", "2.log-0"]
    storage.forget("topic/1.log")
    assert fs.list("place/cache") == ["2.log-0"]


def test_restart_removes_only_files_of_former_process(fs: MemoryFileSystem) -> None:
    disk_storage(fs).put(A, b"0123456789")
    write_file(fs, "place/mine", b"", sync=False)
    assert part(disk_storage(fs), A) is None
    assert fs.list("place") == ["cache", "mine"]
    assert fs.list("place/cache") == []


@pytest.mark.parametrize("operation", ["write", "rename"])
def test_chunk_that_cannot_be_written_is_not_kept(fs: MemoryFileSystem, operation: str) -> None:
    storage = disk_storage(fs)
    fs.fail("write" if operation == "write" else "rename", errno.ENOSPC, path_part="1.log-0")
    storage.put(A, b"0123456789")
    assert A not in storage
    assert fs.list("place/cache") == []
    assert storage.failures == 1


@pytest.mark.parametrize("damage", ["lost", "cut", "unreadable", "forbidden"])
def test_unreadable_chunk_is_absent(fs: MemoryFileSystem, damage: str) -> None:
    storage = disk_storage(fs)
    storage.put(A, b"0123456789")
    match damage:
        case "lost":
            fs.remove("place/cache/1.log-0")
        case "cut":
            write_file(fs, "place/cache/1.log-0", b"0123", sync=False)
        case "unreadable":
            fs.fail("read", path_part="1.log-0")
        case _:
            fs.fail("open", errno.EACCES, path_part="1.log-0")
    assert part(storage, A) is None
    assert A not in storage
    storage.put(A, b"9876543210")
    assert part(storage, A) == b"9876543210"


def test_file_that_cannot_be_removed_is_counted(fs: MemoryFileSystem) -> None:
    storage = disk_storage(fs)
    storage.put(A, b"0123456789")
    fs.fail("remove", path_part="1.log-0")
    storage.forget(A.object_key)
    assert A not in storage
    assert storage.failures == 1


def test_disk_storage_works_on_real_files(tmp_path_factory: pytest.TempPathFactory) -> None:
    directory = str(tmp_path_factory.mktemp("storage"))
    storage = DiskChunkStorage(OsFileSystem(), join(directory, "deep/place"), CacheSettings(20, None, 1), lambda: 0)
    for key in (A, B, C):
        storage.put(key, bytes(10))
    assert [part(storage, key) for key in (A, B, C)] == [None, bytes(10), bytes(10)]
