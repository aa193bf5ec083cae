"""Contract of every object store (storage/tiered/object_store.py): in memory, in a directory, on a real S3 server."""

import itertools
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from protocol.primitives import Buffer
from storage.files import OsFileSystem
from storage.tiered.errors import ObjectNotFound
from storage.tiered.object_store import ConditionalStore, ObjectStore
from storage.tiered.stores.directory_store import DirectoryStore
from storage.tiered.stores.s3 import S3Store
from tests.support.fakes.faulty_object_store import FaultyObjectStore
from tests.support.fakes.memory_object_store import MemoryObjectStore
from tests.support.processes.s3_server import S3Server, unavailable_reason

MIB = 1024 * 1024


@pytest.fixture(scope="module")
def s3_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    if reason := unavailable_reason():
        pytest.skip(reason)
    with S3Server(tmp_path_factory.mktemp("s3")) as server:
        yield server


@pytest.fixture(params=["memory", "faulty", "directory", pytest.param("s3", marks=pytest.mark.integration)])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[ConditionalStore]:
    """An empty store."""
    made = _make(request, tmp_path)
    yield made
    made.delete([info.key for info in made.list("")])
    made.close()


def _make(request: pytest.FixtureRequest, tmp_path: Path) -> ConditionalStore:
    match request.param:
        case "memory":
            return MemoryObjectStore()
        case "faulty":
            return FaultyObjectStore(MemoryObjectStore())
        case "directory":
            return DirectoryStore(OsFileSystem(), str(tmp_path / "objects"))
        case _:
            server: S3Server = request.getfixturevalue("s3_server")
            return S3Store(server.settings)


def content(store: ObjectStore, key: str, first: int = 0, last: int | None = None) -> bytes:
    return b"".join(store.get(key, first, last))


def keys(store: ObjectStore, prefix: str = "", start_after: str = "") -> list[str]:
    return [info.key for info in store.list(prefix, start_after)]


# -- put and get -------------------------------------------------------------------------------------------------------


def test_put_object_is_read_back(store: ObjectStore) -> None:
    assert store.put("topic/0/a.log", [b"one ", bytearray(b"two "), memoryview(b"three")]) == 13
    assert content(store, "topic/0/a.log") == b"one two three"


def test_object_may_be_empty(store: ObjectStore) -> None:
    assert store.put("empty", []) == 0
    assert store.put("also", [b"", b""]) == 0
    assert content(store, "empty") == content(store, "also") == b""
    assert content(store, "empty", 0, 10) == b""
    assert [info.size for info in store.list("")] == [0, 0]


@pytest.mark.parametrize(
    ("first", "last", "expected"),
    [(0, 0, b"0"), (3, 5, b"345"), (3, None, b"3456789"), (8, 100, b"89"), (9, 9, b"9"), (0, 9, b"0123456789")],
)
def test_range_is_inclusive(store: ObjectStore, first: int, last: int | None, expected: bytes) -> None:
    store.put("digits", [b"0123456789"])
    assert content(store, "digits", first, last) == expected


@pytest.mark.parametrize(("first", "last"), [(10, None), (10, 12), (500, 600)])
def test_range_beyond_the_end_is_not_found(store: ObjectStore, first: int, last: int | None) -> None:
    store.put("digits", [b"0123456789"])
    with pytest.raises(ObjectNotFound):
        store.get("digits", first, last)


def test_missing_object_raises_at_the_call(store: ObjectStore) -> None:
    store.put("topic/0/a.log", [b"x"])
    for key in ("topic/0/b.log", "topic/1/a.log", "other", "topic/0"):
        with pytest.raises(ObjectNotFound):
            store.get(key)
        with pytest.raises(ObjectNotFound):
            store.get(key, 5, 9)


def test_put_replaces_an_object(store: ObjectStore) -> None:
    store.put("a", [b"the first, longer one"])
    store.put("a", [b"the second"])
    assert content(store, "a") == b"the second"
    assert [info.size for info in store.list("")] == [10]


def test_new_object_never_replaces_another(store: ConditionalStore) -> None:
    assert store.put_new("owner", b"first")
    assert not store.put_new("owner", b"second")
    assert content(store, "owner") == b"first"
    store.put("owner", [b"third"])
    assert not store.put_new("owner", b"fourth")
    store.delete(["owner"])
    assert store.put_new("owner", b"fifth")
    assert (content(store, "owner"), keys(store)) == (b"fifth", ["owner"])


def test_one_of_many_concurrent_writers_stores_a_new_object(store: ConditionalStore) -> None:
    with ThreadPoolExecutor(8) as pool:
        stored = list(pool.map(lambda number: store.put_new("a/owner", str(number).encode()), range(16)))
    assert stored.count(True) == 1
    assert content(store, "a/owner") == str(stored.index(True)).encode()


def test_large_object_is_read_in_pieces(store: ObjectStore) -> None:
    """An object larger than an upload part, of an odd size, from pieces of any size."""
    data = bytes(range(251)) * (12 * MIB // 251) + b"end"
    view = memoryview(data)
    cuts = [0, 1, 1, 7, 5 * MIB - 1, 5 * MIB + 3, len(data)]
    assert store.put("large", [view[start:end] for start, end in itertools.pairwise(cuts)]) == len(data)
    pieces = list(store.get("large"))
    assert len(pieces) > 1
    assert b"".join(pieces) == data
    assert content(store, "large", 5 * MIB - 10, 5 * MIB + 10) == data[5 * MIB - 10 : 5 * MIB + 11]
    assert content(store, "large", len(data) - 3) == b"end"


@pytest.mark.parametrize("size", [5 * MIB - 1, 5 * MIB, 5 * MIB + 1, 10 * MIB])
def test_objects_of_about_the_part_size_are_read_back(store: ObjectStore, size: int) -> None:
    data = b"\x5a" * size
    assert store.put("exact", [data]) == size
    assert [info.size for info in store.list("exact")] == [size]
    assert content(store, "exact", size - 2) == b"\x5a\x5a"


def test_body_may_be_left_unread(store: ObjectStore) -> None:
    store.put("large", [bytes(3 * MIB)])
    for _ in range(100):
        pieces = store.get("large")
        assert next(pieces)
        del pieces
    store.get("large")
    assert len(content(store, "large")) == 3 * MIB


def test_object_may_be_replaced_and_deleted_while_read(store: ObjectStore) -> None:
    """A reader gets bytes of the old object or an error, never a mixture."""
    old, new = b"o" * (3 * MIB), b"n" * (3 * MIB)
    store.put("a", [old])
    pieces = store.get("a")
    first = next(pieces)
    store.put("a", [new])
    store.delete(["a"])
    assert first + b"".join(pieces) == old


class SourceFailed(Exception):
    pass


def failing_source(size: int) -> Iterator[Buffer]:
    yield bytes(size)
    raise SourceFailed


@pytest.mark.parametrize("size", [0, 10, 6 * MIB])
def test_failing_source_stores_nothing(store: ObjectStore, size: int) -> None:
    with pytest.raises(SourceFailed):
        store.put("topic/broken", failing_source(size))
    assert keys(store) == []
    with pytest.raises(ObjectNotFound):
        store.get("topic/broken")


def test_failing_source_keeps_the_former_object(store: ObjectStore) -> None:
    store.put("a", [b"before"])
    with pytest.raises(SourceFailed):
        store.put("a", failing_source(6 * MIB))
    assert content(store, "a") == b"before"


def test_source_error_is_not_a_store_error(store: ObjectStore) -> None:
    def unreadable() -> Iterator[Buffer]:
        yield b"some"
        raise FileNotFoundError("the segment is missing")

    with pytest.raises(FileNotFoundError):
        store.put("a", unreadable())
    assert keys(store) == []


# -- delete ------------------------------------------------------------------------------------------------------------


def test_delete_removes_only_named_objects(store: ObjectStore) -> None:
    for key in ("t/0/a", "t/0/b", "t/1/a", "u"):
        store.put(key, [b"x"])
    store.delete(["t/0/a", "t/1/a"])
    assert keys(store) == ["t/0/b", "u"]
    with pytest.raises(ObjectNotFound):
        store.get("t/0/a")


def test_deleting_missing_object_succeeds(store: ObjectStore) -> None:
    store.put("a", [b"x"])
    store.delete(["nowhere/at/all", "a", "a", "b"])
    store.delete(["a"])
    store.delete([])
    assert keys(store) == []


def test_delete_accepts_more_keys_than_a_request(store: ObjectStore) -> None:
    store.put("p/0500", [b"x"])
    store.put("p/1500", [b"x"])
    store.put("stays", [b"x"])
    store.delete([f"p/{number:04}" for number in range(2_100)])
    assert keys(store) == ["stays"]


# -- list --------------------------------------------------------------------------------------------------------------

NAMES = ["a", "a-b", "a.b/c", "ab/c", "ab/d-1/z", "ab/d/x", "ab/d/y", "ab/d0", "b", "Ä", "ä/1"]
"""Names sorted by their bytes: `-` and `.` come before the `/` of a longer key, digits after it."""


@pytest.fixture
def named(store: ObjectStore) -> ObjectStore:
    for key in reversed(NAMES):
        store.put(key, [key.encode()])
    return store


def test_list_is_sorted_by_key_bytes(named: ObjectStore) -> None:
    assert keys(named) == sorted(NAMES, key=str.encode) == NAMES


@pytest.mark.parametrize("prefix", ["a", "ab", "ab/", "ab/d", "ab/d/", "ab/d/x", "ab/d-1/z", "ä", "no", "ab/d/xx", "/"])
def test_prefix_may_end_within_a_name(named: ObjectStore, prefix: str) -> None:
    assert keys(named, prefix) == [name for name in NAMES if name.startswith(prefix)]


@pytest.mark.parametrize("prefix", ["", "ab/", "ab/d"])
@pytest.mark.parametrize("start_after", ["a", "a-", "ab", "ab/", "ab/d", "ab/d-1/z", "ab/d/", "ab/d/x", "ab/d/xx", "z"])
def test_list_starts_after_any_key(named: ObjectStore, prefix: str, start_after: str) -> None:
    expected = [name for name in NAMES if name.startswith(prefix) and name > start_after]
    assert keys(named, prefix, start_after) == expected


def test_list_has_sizes_and_times(store: ObjectStore) -> None:
    store.put("a", [b"12345"])
    store.put("b", [bytes(6 * MIB)])
    first, second = store.list("")
    assert (first.size, second.size) == (5, 6 * MIB)
    assert second.modified_ms >= first.modified_ms


def test_list_of_several_pages_is_complete_and_sorted(store: ObjectStore) -> None:
    """S3 returns a thousand keys per page."""
    expected = [f"many/{number:05}" for number in range(1_050)]
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda key: store.put(key, [b"x"]), expected))
    assert keys(store, "many/") == expected
    assert keys(store, "many/", "many/00999") == expected[1_000:]


def test_list_may_be_left_early(named: ObjectStore) -> None:
    assert next(named.list("")).key == NAMES[0]


def test_longest_topic_name_is_stored(store: ObjectStore) -> None:
    """A topic of 200 characters with its id; the longest (249) is beyond what some servers take, see the directory."""
    topic = "t" * 200 + "-AAAAAAAAAAAAAAAAAAAAAQ"
    store.put(f"{topic}/0/x.log", [b"x"])
    assert keys(store, "t" * 150) == [f"{topic}/0/x.log"]
    assert content(store, f"{topic}/0/x.log") == b"x"


# -- threads -----------------------------------------------------------------------------------------------------------


def test_threads_share_a_store(store: ObjectStore) -> None:
    """Puts, gets, lists and deletes at once, also of directories that become empty while others write to them."""
    start = threading.Barrier(6)

    def work(worker: int) -> None:
        start.wait()
        for turn in range(15):
            key = f"shared/{turn % 3}/{worker}"
            data = f"{worker}-{turn}".encode() * 1000
            store.put(key, [data])
            assert content(store, key) == data
            assert key in keys(store, "shared/")
            store.delete([key])

    with ThreadPoolExecutor(6) as pool:
        list(pool.map(work, range(6)))
    assert keys(store) == []


def test_concurrent_puts_of_one_object_do_not_mix(store: ObjectStore) -> None:
    values = [bytes([65 + number]) * (2 * MIB) for number in range(4)]

    def write(value: bytes) -> None:
        for _ in range(5):
            store.put("contended", [value[:MIB], value[MIB:]])

    with ThreadPoolExecutor(5) as pool:
        writers = [pool.submit(write, value) for value in values]
        store.put("contended", [values[0]])
        for _ in range(10):
            assert content(store, "contended") in values
        for writer in writers:
            writer.result()
    assert keys(store) == ["contended"]
