"""Directory store: crashes, temporary files, vanishing directories, names, failed mounts."""

import errno
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from protocol.primitives import Buffer
from storage.files import OsFileSystem
from storage.tiered.errors import ObjectNotFound, ObjectStoreError, StoreUnavailable
from storage.tiered.stores.directory_paths import MAX_NAME_BYTES, path_of
from storage.tiered.stores.directory_store import DirectoryStore
from tests.support.fakes.memory_files import MemoryFileSystem

HOUR_MS = 60 * 60 * 1000


def numbered() -> Callable[[], str]:
    numbers = iter(range(10**9))
    return lambda: f"{next(numbers):032x}"


def make(fs: MemoryFileSystem) -> DirectoryStore:
    return DirectoryStore(fs, "/objects", now_ms=lambda: fs.now_ms, unique=numbered())


@pytest.fixture
def fs() -> MemoryFileSystem:
    made = MemoryFileSystem()
    made.make_directory("/objects")
    made.sync_directory("/")
    return made


@pytest.fixture
def store(fs: MemoryFileSystem) -> DirectoryStore:
    return make(fs)


def keys(store: DirectoryStore) -> list[str]:
    return [info.key for info in store.list("")]


def content(store: DirectoryStore, key: str) -> bytes:
    return b"".join(store.get(key))


# -- durability --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(30))
def test_put_survives_a_crash(fs: MemoryFileSystem, store: DirectoryStore, seed: int) -> None:
    store.put("t/0/a", [b"first", b" and second"])
    store.put("t/1/a", [b"old"])
    store.put("t/1/a", [b"new"])
    store.put("deleted/0/a", [b"x"])
    store.delete(["deleted/0/a"])
    fs.crash(Random(seed))
    store = make(fs)
    assert keys(store) == ["t/0/a", "t/1/a"]
    assert content(store, "t/0/a") == b"first and second"
    assert content(store, "t/1/a") == b"new"


@pytest.mark.parametrize("seed", range(100))
def test_crash_during_a_put_leaves_the_old_or_the_new_object(seed: int) -> None:
    """The power fails at any operation."""
    random = Random(seed)
    fs = MemoryFileSystem()
    store = make(fs)
    store.put("t/0/a", [b"old"])
    operation = random.choice(["open", "write", "sync", "rename", "sync_directory"])
    fs.fail(operation, errno.EIO, skip=random.randint(0, 2))  # type: ignore[arg-type]  # one of the literals
    for key in ("t/0/a", "t/1/b"):
        try:
            store.put(key, [b"new", b"er"])
        except StoreUnavailable:
            break
    fs.faults.clear()
    fs.crash(random)
    store = make(fs)
    found = {key: content(store, key) for key in keys(store)}
    assert found.pop("t/0/a") in (b"old", b"newer")
    assert found in ({}, {"t/1/b": b"newer"})


@pytest.mark.parametrize("operation", ["write", "sync", "rename"])
def test_failed_put_leaves_no_temporary_file(fs: MemoryFileSystem, store: DirectoryStore, operation: str) -> None:
    fs.fail(operation, errno.ENOSPC)  # type: ignore[arg-type]  # one of the literals
    with pytest.raises(StoreUnavailable):
        store.put("t/0/a", [b"x"])
    assert fs.list("/objects/t/0") == []
    assert keys(store) == []


# -- temporary files of crashes ----------------------------------------------------------------------------------------


def _leave_temporary_file(fs: MemoryFileSystem, path: str) -> None:
    fs.make_directory(path.rpartition("/")[0])
    fs.open(path).close()


def test_temporary_files_are_not_listed_and_are_removed_after_an_hour(
    fs: MemoryFileSystem, store: DirectoryStore
) -> None:
    temporary = f"/objects/t/0/a.log.{7:032x}.tmp"
    _leave_temporary_file(fs, temporary)
    store.put("u", [b"x"])
    fs.now_ms += HOUR_MS
    assert keys(store) == ["u"]
    assert fs.exists(temporary)
    fs.now_ms += 1
    assert keys(store) == ["u"]
    assert fs.list("/objects") == ["u"], "directories of the temporary file alone are removed too"


def test_temporary_file_of_a_slow_upload_is_kept(fs: MemoryFileSystem, store: DirectoryStore) -> None:
    def slow() -> Iterator[Buffer]:
        for _ in range(5):
            fs.now_ms += HOUR_MS // 2
            assert keys(store) == []
            yield b"x"

    store.put("a", slow())
    assert content(store, "a") == b"xxxxx"


def test_keys_named_like_temporary_files_are_refused(store: DirectoryStore) -> None:
    with pytest.raises(ObjectStoreError):
        store.put(f"a.{7:032x}.tmp", [b"x"])
    store.put("a.tmp", [b"x"])
    store.put("a.123.tmp/b", [b"x"])
    assert keys(store) == ["a.123.tmp/b", "a.tmp"]


# -- vanishing directories ---------------------------------------------------------------------------------------------


def test_delete_removes_only_empty_directories(fs: MemoryFileSystem, store: DirectoryStore) -> None:
    for key in ("t/0/a", "t/0/b", "t/1/a"):
        store.put(key, [b"x"])
    store.delete(["t/0/a"])
    assert fs.exists("/objects/t/0")
    store.delete(["t/0/b"])
    assert fs.list("/objects/t") == ["1"]
    store.delete(["t/1/a"])
    assert fs.list("/objects") == []


def test_directory_removed_during_a_put_is_created_again(fs: MemoryFileSystem) -> None:
    class Pruned(MemoryFileSystem):
        left = 3

        def make_directory(self, path: str) -> None:
            super().make_directory(path)
            if path != "/objects" and self.left:
                self.left -= 1
                assert self.remove_empty_directory(path)

    store = make(Pruned())
    store.put("t/0/a", [b"x"])
    assert content(store, "t/0/a") == b"x"


def test_put_gives_up_if_its_directory_is_always_removed() -> None:
    class Pruned(MemoryFileSystem):
        def make_directory(self, path: str) -> None:
            super().make_directory(path)
            if path != "/objects":
                self.remove_empty_directory(path)

    with pytest.raises(StoreUnavailable):
        make(Pruned()).put("t/0/a", [b"x"])


def test_object_deleted_during_its_put_is_no_failure(fs: MemoryFileSystem) -> None:
    """The deletion happens between the rename and the sync of its directory."""

    class Raced(MemoryFileSystem):
        def rename(self, source: str, target: str) -> None:
            super().rename(source, target)
            make(self).delete(["t/0/a"])

    store = make(Raced())
    assert store.put("t/0/a", [b"x"]) == 1
    assert keys(store) == []


def test_nodes_create_and_remove_shared_directories_concurrently(tmp_path: Path) -> None:
    """Each node has a store object of its own, like separate processes."""

    def work(node: int) -> None:
        store = DirectoryStore(OsFileSystem(), f"{tmp_path}/objects")
        for turn in range(100):
            key = f"shared/{turn % 3}/{node}"
            store.put(key, [key.encode()])
            assert content(store, key) == key.encode()
            store.delete([key])

    with ThreadPoolExecutor(6) as pool:
        list(pool.map(work, range(6)))
    assert OsFileSystem().list(f"{tmp_path}/objects") == []


# -- failed mounts -----------------------------------------------------------------------------------------------------


def test_missing_root_makes_every_operation_unavailable(fs: MemoryFileSystem, store: DirectoryStore) -> None:
    store.put("t/0/a", [b"x"])
    fs.rename("/objects", "/elsewhere")
    for attempt in (
        lambda: store.put("t/0/b", [b"x"]),
        lambda: store.get("t/0/a"),
        lambda: store.delete(["t/0/a"]),
        lambda: list(store.list("")),
    ):
        with pytest.raises(StoreUnavailable):
            attempt()
    assert not fs.exists("/objects")
    fs.rename("/elsewhere", "/objects")
    assert keys(store) == ["t/0/a"]


def test_list_fails_if_the_root_disappears(fs: MemoryFileSystem, store: DirectoryStore) -> None:
    for key in ("a/1", "b/1", "c/1"):
        store.put(key, [b"x"])
    found = store.list("")
    assert next(found).key == "a/1"
    fs.rename("/objects", "/elsewhere")
    with pytest.raises(StoreUnavailable):
        list(found)


@pytest.mark.parametrize(
    ("error", "expected"),
    [(errno.ENOSPC, StoreUnavailable), (errno.EIO, StoreUnavailable), (errno.EACCES, ObjectStoreError)],
)
def test_disk_errors_are_classified(
    fs: MemoryFileSystem, store: DirectoryStore, error: int, expected: type[ObjectStoreError]
) -> None:
    fs.fail("open", error)
    with pytest.raises(ObjectStoreError) as caught:
        store.put("a", [b"x"])
    assert type(caught.value) is expected


def test_failed_deletion_does_not_stop_the_others(fs: MemoryFileSystem, store: DirectoryStore) -> None:
    for key in ("a", "b", "c"):
        store.put(key, [b"x"])
    fs.fail("remove", errno.EACCES, path_part="/b")
    with pytest.raises(ObjectStoreError):
        store.delete(["a", "b", "c"])
    assert keys(store) == ["b"]


# -- names -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("key", ["", "/a", "a/", "a//b", ".", "../a", "a/../b", "a/./b", "a\0b"])
def test_keys_that_are_no_relative_paths_are_refused(store: DirectoryStore, key: str) -> None:
    for attempt in (lambda: store.put(key, [b"x"]), lambda: store.get(key), lambda: store.delete([key])):
        with pytest.raises(ObjectStoreError) as caught:
            attempt()
        assert not isinstance(caught.value, StoreUnavailable | ObjectNotFound)


def test_longest_topic_name_is_stored(tmp_path: Path) -> None:
    """A topic name of 249 characters with an id exceeds the limit of a file name; its neighbours sort correctly."""
    store = DirectoryStore(OsFileSystem(), f"{tmp_path}/objects/")
    head = "t" * MAX_NAME_BYTES
    expected = sorted(
        [
            f"{'t' * 249}-AAAAAAAAAAAAAAAAAAAAAQ/0/{'0' * 20}-AAAAAAAAAAAAAAAAAAAAAQ.rsm-manifest",
            f"{head}-a/0/x",
            f"{head}/0/x",
            f"{head}0/x",
            f"{head}~continued/x",
            f"{'ä' * 400}/x",
            f"{'ä' * 98}a/x",
        ]
    )
    for key in expected:
        store.put(key, [key.encode()])
    assert keys(store) == expected
    assert [content(store, key).decode() for key in expected] == expected
    assert [info.key for info in store.list(head + "-")] == [f"{head}-a/0/x"]
    store.delete(expected)
    assert OsFileSystem().list(f"{tmp_path}/objects") == []


@settings(max_examples=200, deadline=None)
@given(
    st.sets(
        st.lists(st.text("a-~0/ä€𐍈", min_size=1, max_size=3), min_size=1, max_size=2).map(
            lambda parts: "".join(part * 90 if index == 0 else part for index, part in enumerate(parts))
        ),
        max_size=8,
    )
)
def test_lists_are_sorted_for_any_names(names: set[str]) -> None:
    store = make(MemoryFileSystem())
    stored = []
    for name in sorted(names):
        try:
            store.put(name, [b"x"])
        except ObjectStoreError:
            continue
        stored.append(name)
    assert keys(store) == sorted(stored, key=str.encode)
    for name in stored:
        assert all(len(part.encode()) <= MAX_NAME_BYTES + 10 for part in path_of(name).split("/"))
