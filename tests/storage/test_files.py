"""The contract of every file system: the real one and the fake agree wherever storage relies on it."""

import errno
import os
from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest

from storage.files import FileSystem, OsFileSystem, base_name, join, parent, read_file, replace_file, write_file
from tests.support.fakes.memory_files import MemoryFileSystem, Operation


@pytest.fixture(params=["os", "memory"])
def fs(request: pytest.FixtureRequest) -> FileSystem:
    return OsFileSystem() if request.param == "os" else MemoryFileSystem()


@pytest.fixture
def directory(fs: FileSystem, tmp_path: Path) -> Iterator[str]:
    path = str(tmp_path / "logs")
    fs.make_directory(path)
    yield path
    fs.remove_tree(path)


def test_new_file_is_empty_and_keeps_positional_writes(fs: FileSystem, directory: str) -> None:
    file = fs.open(join(directory, "a"))
    assert file.size() == 0
    file.write(0, b"hello world")
    file.write_vector(6, [b"W", memoryview(b"OR"), bytearray(b"LD!")])
    assert file.read(0, 100) == b"hello WORLD!"
    assert file.read(6, 3) == b"WOR"
    assert file.read(50, 3) == b""
    assert fs.size(join(directory, "a")) == 12
    file.close()


def test_write_beyond_the_end_leaves_zeros(fs: FileSystem, directory: str) -> None:
    file = fs.open(join(directory, "a"))
    file.write(4, b"x")
    assert file.read(0, 5) == b"\0\0\0\0x"
    file.close()


def test_truncate_cuts_and_extends(fs: FileSystem, directory: str) -> None:
    file = fs.open(join(directory, "a"))
    file.write(0, b"abcdef")
    file.truncate(2)
    file.truncate(4)
    assert file.read(0, 10) == b"ab\0\0"
    file.close()


def test_file_keeps_an_attribute_where_the_disk_stores_attributes(fs: FileSystem, directory: str) -> None:
    path = join(directory, "a")
    file = fs.open(path)
    assert file.attribute() == b""
    is_stored = file.set_attribute(b"first") and file.set_attribute(b"second")
    file.write(0, b"x")
    file.truncate(0)
    file.sync()
    file.close()
    file = fs.open_existing(path)
    assert file.attribute() == (b"second" if is_stored else b"")
    file.close()


def test_views_keep_their_content(fs: FileSystem, directory: str) -> None:
    path = join(directory, "a")
    file = fs.open(path)
    file.write(0, b"a" * 100_000)
    before = file.view(50_000, 100_000)
    file.write(100_000, b"b" * 100_000)
    beyond = file.view(99_999, 200_000)
    file.truncate(10)
    assert bytes(before) == b"a" * 50_000
    assert bytes(beyond) == b"a" + b"b" * 100_000
    assert file.read(0, 100) == b"a" * 10
    file.write(10, b"c")
    assert read_file(fs, path) == b"a" * 10 + b"c"
    assert bytes(file.view(8, 11)) == b"aac"
    file.close()
    assert bytes(before[:3]) == b"aaa"
    assert fs.list(directory) == ["a"]


def test_truncation_above_all_views_happens_in_place(tmp_path: Path) -> None:
    path = tmp_path / "a"
    file = OsFileSystem().open(str(path))
    file.write(0, b"a" * 100_000)
    file.truncate(1_000_000)
    view, inode = file.view(0, 100_000), path.stat().st_ino
    file.truncate(100_000)
    assert (path.stat().st_ino, path.stat().st_size) == (inode, 100_000)
    assert bytes(view) == b"a" * 100_000
    file.truncate(99_999)
    assert path.stat().st_ino != inode
    file.close()


def test_views_survive_a_truncation_by_another_handle(fs: FileSystem, directory: str) -> None:
    path = join(directory, "a")
    write_file(fs, path, b"a" * 100_000, sync=False)
    file = fs.open(path)
    view = file.view(10, 100_000)
    file.close()
    del file
    other = fs.open(path)
    other.truncate(1)
    assert bytes(view) == b"a" * 99_990
    assert read_file(fs, path) == b"a"
    del view
    other.truncate(0)
    other.close()


def test_cached_reads_agree_with_reads_or_return_none(fs: FileSystem, directory: str) -> None:
    file = fs.open(join(directory, "a"))
    file.write(0, b"x" * 10_000)
    assert file.read_cached(1, 9_000) in (None, b"x" * 9_000)
    assert file.is_cached(5, 5)
    file.warm(0, 10_000)
    file.warm(9_000, 20_000)
    file.close()


def test_cold_memory_file_returns_none_for_cached_reads(tmp_path: Path) -> None:
    fs = MemoryFileSystem()
    file = fs.open("a")
    file.write(0, b"abc")
    fs.is_cold = True
    assert file.read_cached(0, 3) is None
    assert not file.is_cached(0, 3)


def test_opening_a_missing_file_fails(fs: FileSystem, directory: str) -> None:
    with pytest.raises(FileNotFoundError):
        fs.open_existing(join(directory, "none"))
    with pytest.raises(FileNotFoundError):
        fs.open(join(directory, "none/a"))
    with pytest.raises(FileNotFoundError):
        fs.size(join(directory, "none"))
    with pytest.raises(FileNotFoundError):
        fs.list(join(directory, "none"))
    with pytest.raises(FileNotFoundError):
        fs.rename(join(directory, "none"), join(directory, "other"))


def test_names_are_listed_renamed_and_removed(fs: FileSystem, directory: str) -> None:
    for name in ("c", "a", "b"):
        write_file(fs, join(directory, name), name.encode(), sync=False)
    fs.rename(join(directory, "a"), join(directory, "b"))
    assert fs.list(directory) == ["b", "c"]
    assert read_file(fs, join(directory, "b")) == b"a"
    fs.remove(join(directory, "c"))
    fs.remove(join(directory, "c"))
    assert fs.list(directory) == ["b"]
    assert fs.exists(join(directory, "b"))
    assert not fs.exists(join(directory, "c"))


def test_open_file_survives_its_removal(fs: FileSystem, directory: str) -> None:
    file = fs.open(join(directory, "a"))
    file.write(0, b"abc")
    fs.rename(join(directory, "a"), join(directory, "a.deleted"))
    fs.remove(join(directory, "a.deleted"))
    assert file.read(0, 3) == b"abc"
    file.close()


def test_directories_are_made_renamed_and_removed_whole(fs: FileSystem, directory: str) -> None:
    fs.make_directory(join(directory, "t-0/deep"))
    fs.make_directory(join(directory, "t-0"))
    write_file(fs, join(directory, "t-0/deep/x"), b"x", sync=True)
    fs.rename(join(directory, "t-0"), join(directory, "t-0.1-delete"))
    assert read_file(fs, join(directory, "t-0.1-delete/deep/x")) == b"x"
    assert fs.is_directory(join(directory, "t-0.1-delete"))
    assert not fs.is_directory(join(directory, "t-0.1-delete/deep/x"))
    fs.remove_tree(join(directory, "t-0.1-delete"))
    fs.remove_tree(join(directory, "t-0.1-delete"))
    assert fs.list(directory) == []


def test_replacing_a_file_leaves_no_temporary_file(fs: FileSystem, directory: str) -> None:
    path = join(directory, "checkpoint")
    replace_file(fs, path, b"one, long")
    replace_file(fs, path, b"two")
    assert read_file(fs, path) == b"two"
    assert fs.list(directory) == ["checkpoint"]


def test_modification_times_can_be_set(fs: FileSystem, directory: str) -> None:
    path = join(directory, "a")
    write_file(fs, path, b"", sync=False)
    fs.set_modified_ms(path, 1_700_000_000_123)
    assert fs.modified_ms(path) == 1_700_000_000_123


def test_lock_is_exclusive_until_released(fs: FileSystem, directory: str) -> None:
    path = join(directory, ".lock")
    lock = fs.lock(path)
    with pytest.raises(BlockingIOError):
        fs.lock(path)
    lock.release()
    fs.lock(path).release()


def test_usable_space_is_below_total_space(fs: FileSystem, directory: str) -> None:
    space = fs.disk_space(directory)
    assert 0 < space.usable_bytes <= space.total_bytes


def test_paths_are_split() -> None:
    assert parent("/a/b/c") == "/a/b"
    assert parent("c") == "."
    assert base_name("/a/b/c") == "c"


# -- crashes of the memory file system -----------------------------------------------------------------------------


def crashed(fs: MemoryFileSystem, seed: int) -> MemoryFileSystem:
    fs.crash(Random(seed))
    return fs


def test_synced_content_under_a_synced_name_survives_every_crash() -> None:
    for seed in range(50):
        fs = MemoryFileSystem()
        fs.make_directory("d")
        fs.sync_directory(".")
        write_file(fs, "d/a", b"synced", sync=True)
        fs.sync_directory("d")
        fs.open("d/a").write(6, b" and not")
        assert read_file(crashed(fs, seed), "d/a").startswith(b"synced")


def test_crash_loses_names_and_content_that_were_not_synced() -> None:
    found = set()
    for seed in range(200):
        fs = MemoryFileSystem()
        write_file(fs, "a", b"1234", sync=False)
        crashed(fs, seed)
        found.add(read_file(fs, "a") if fs.exists("a") else None)
    assert {None, b"", b"1234"} <= found
    assert any(content is not None and 0 < len(content) < 4 for content in found)


@pytest.mark.parametrize("operation", ["open", "truncate", "write", "sync", "rename", "sync_directory"])
def test_replaced_file_is_old_or_new_after_a_crash_at_any_step(operation: Operation) -> None:
    for seed in range(20):
        fs = MemoryFileSystem()
        replace_file(fs, "a", b"old")
        fs.fail(operation)
        with pytest.raises(OSError):
            replace_file(fs, "a", b"new")
        assert read_file(crashed(fs, seed), "a") in (b"old", b"new")


def test_full_disk_takes_part_of_a_write() -> None:
    fs = MemoryFileSystem(capacity_bytes=10)
    file = fs.open("a")
    file.write(0, b"12345678")
    with pytest.raises(OSError) as caught:
        file.write(8, b"1234")
    assert caught.value.errno == errno.ENOSPC
    assert fs.size("a") == 10


def test_unsynced_writes_may_become_holes() -> None:
    contents = set()
    for seed in range(300):
        fs = MemoryFileSystem()
        write_file(fs, "a", b"", sync=True)
        fs.sync_directory(".")
        file = fs.open("a")
        file.write(0, b"x" * 1024)
        file.write(1024, b"y" * 10)
        contents.add(read_file(crashed(fs, seed), "a"))
    assert any(content.endswith(b"y" * 10) and b"\0" * 512 in content for content in contents)


@pytest.mark.parametrize(
    ("path", "directory"), [("/a/b", "/a"), ("/a", "/"), ("a/b", "a"), ("a", "."), ("/data/t-0", "/data")]
)
def test_parent_of_a_path_is_found(path: str, directory: str) -> None:
    assert parent(path) == directory
    assert join(directory, path.rpartition("/")[2]).removeprefix("./") == path


def test_file_that_is_being_closed_does_not_use_a_descriptor_that_another_file_got(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = tmp_path / "other"
    other.write_bytes(b"x" * 7)
    file = OsFileSystem().open(str(tmp_path / "log"))
    close = os.close
    reused: list[int] = []
    errors: list[int | None] = []

    def close_and_reuse(descriptor: int) -> None:
        monkeypatch.undo()
        close(descriptor)
        reused.append(os.open(other, os.O_RDONLY))
        try:
            file.size()
        except OSError as error:
            errors.append(error.errno)

    monkeypatch.setattr(os, "close", close_and_reuse)
    file.close()
    close(reused[0])

    assert errors == [errno.EBADF]
