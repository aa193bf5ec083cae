"""Objects as files below a directory, which several nodes may share.

An object is written aside, synced, and renamed into place. Nobody holds a lock: whoever finds a directory gone that
was there a moment ago, because another removed the last object in it, makes it anew. What a crash left aside is not an
object; a listing removes it once nobody can be writing it any more.
"""

import contextlib
import errno
import heapq
import itertools
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence

from protocol.primitives import Buffer
from storage.files import File, FileSystem, join, parent
from storage.tiered.errors import ObjectNotFound, ObjectStoreError, StoreUnavailable
from storage.tiered.object_store import ObjectInfo
from storage.tiered.stores.directory_paths import aside_of, is_aside, key_of_directory, path_of

_PIECE_BYTES = 4 * 1024 * 1024
"""A chunk of the default size, which need not be put together from pieces then."""

_LEFTOVER_AGE_MS = 60 * 60 * 1000
"""Since the last write to a file; one that is being written gets older only while its source does not answer."""

_OPEN_ATTEMPTS = 100
"""Against directories that go as often as they are made."""

_HOPELESS = frozenset(
    {errno.ENOTDIR, errno.EISDIR, errno.EEXIST, errno.ENAMETOOLONG, errno.EACCES, errno.EPERM, errno.EROFS}
)


class DirectoryStore:
    """Raises StoreUnavailable while the directory is gone: what lies below a mount that failed is not deleted."""

    def __init__(
        self,
        fs: FileSystem,
        root: str,
        *,
        now_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000,
        unique: Callable[[], str] = lambda: uuid.uuid4().hex,
    ) -> None:
        """Makes the directory. `unique` gives 32 hexadecimal digits. Raises as the methods do."""
        self._fs = fs
        self._root = root.rstrip("/") or "/"
        self._now_ms = now_ms
        self._unique = unique
        with _file_errors(root):
            fs.make_directory(root)
            fs.sync_directory(parent(root))

    def close(self) -> None:
        """There is nothing to close."""

    # -- put ---------------------------------------------------------------------------------------------------------

    def put(self, key: str, parts: Iterable[Buffer]) -> int:
        path = self._path(key)
        aside = aside_of(path, self._unique())
        with _file_errors(key):
            file = self._open_aside(aside)
        try:
            size = _write(file, key, parts)
            with _file_errors(key):
                self._fs.rename(aside, path)
        except BaseException:
            with contextlib.suppress(OSError):
                self._fs.remove(aside)
            raise
        with _file_errors(key):
            self._sync_upwards(parent(path))
        return size

    def _open_aside(self, aside: str) -> File:
        """Again and again, while others remove the directory because it is empty."""
        for attempt in itertools.count(1):
            self._require_root()
            try:
                self._fs.make_directory(parent(aside))
                return self._fs.open(aside)
            except (FileNotFoundError, FileExistsError):
                if attempt == _OPEN_ATTEMPTS:
                    raise
        raise AssertionError("counting does not end")

    def _sync_upwards(self, directory: str) -> None:
        """Any of them may be new. One that is gone was emptied by another, and the object is deleted already."""
        while True:
            with contextlib.suppress(FileNotFoundError):
                self._fs.sync_directory(directory)
            if directory == self._root:
                return
            directory = parent(directory)

    # -- get ---------------------------------------------------------------------------------------------------------

    def get(self, key: str, first: int = 0, last: int | None = None) -> Iterator[bytes]:
        assert last is None or first <= last, "a range has at least one byte"
        path = self._path(key)
        with _file_errors(key):
            file = self._open_existing(key, path)
            size = file.size()
        if size and first >= size:
            file.close()
            raise ObjectNotFound(f"{key} ends at {size}, before {first}")
        return _pieces(file, key, first, size if last is None else min(size, last + 1))

    def _open_existing(self, key: str, path: str) -> File:
        try:
            return self._fs.open_existing(path)
        except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
            self._require_root()
            raise ObjectNotFound(f"there is no object {key}") from None

    # -- delete ------------------------------------------------------------------------------------------------------

    def delete(self, keys: Sequence[str]) -> None:
        """Goes on after a failure, and raises the first."""
        failures: list[ObjectStoreError] = []
        directories: dict[str, None] = {}
        for key in keys:
            try:
                path = self._path(key)
                self._remove(key, path)
                directories[parent(path)] = None
            except ObjectStoreError as failure:
                failures.append(failure)
        with _file_errors(self._root):
            for directory in directories:
                self._sync_and_prune(directory)
        if failures:
            raise failures[0]

    def _remove(self, key: str, path: str) -> None:
        """What lies where nothing of that name can be is another object, or several."""
        with _file_errors(key), contextlib.suppress(NotADirectoryError, IsADirectoryError):
            self._require_root()
            self._fs.remove(path)

    def _sync_and_prune(self, directory: str) -> None:
        with contextlib.suppress(FileNotFoundError, NotADirectoryError):
            self._fs.sync_directory(directory)
        while directory != self._root and self._prune(directory):
            directory = parent(directory)

    def _prune(self, directory: str) -> bool:
        with contextlib.suppress(NotADirectoryError):
            return self._fs.remove_empty_directory(directory)
        return False

    # -- list --------------------------------------------------------------------------------------------------------

    def list(self, prefix: str, start_after: str = "") -> Iterator[ObjectInfo]:
        """Holds the names in the directories on the way down."""
        with _file_errors(prefix):
            for key, path in self._walk(prefix, start_after):
                if key.startswith(prefix) and key > start_after and (info := self._info(key, path)):
                    yield info
            self._require_root()  # if it went meanwhile, what was not found may be there nevertheless

    def _walk(self, prefix: str, start_after: str) -> Iterator[tuple[str, str]]:
        """Keys and paths, sorted: a directory is opened when all that is before the first it may hold was given."""
        self._require_root()
        waiting = list(self._entries(self._root, ""))
        heapq.heapify(waiting)
        while waiting:
            key, path, is_directory = heapq.heappop(waiting)
            if not is_directory:
                yield key, path
            elif _may_hold(key, prefix, start_after):
                for entry in self._entries(path, key):
                    heapq.heappush(waiting, entry)

    def _entries(self, directory: str, key: str) -> Iterator[tuple[str, str, bool]]:
        """Keys, or what all keys below begin with; paths; and whether they are directories."""
        try:
            names = self._fs.list(directory)
        except (FileNotFoundError, NotADirectoryError):
            return
        for name in names:
            path = join(directory, name)
            if self._fs.is_directory(path):
                yield key_of_directory(key, name), path, True
            elif is_aside(name):
                self._remove_leftover(path)
            else:
                yield key + name, path, False

    def _info(self, key: str, path: str) -> ObjectInfo | None:
        with contextlib.suppress(FileNotFoundError, NotADirectoryError):
            return ObjectInfo(key, self._fs.size(path), self._fs.modified_ms(path))
        return None

    def _remove_leftover(self, path: str) -> None:
        with contextlib.suppress(FileNotFoundError, NotADirectoryError):
            if self._now_ms() - self._fs.modified_ms(path) > _LEFTOVER_AGE_MS:
                self._fs.remove(path)
                self._sync_and_prune(parent(path))

    # -- paths -------------------------------------------------------------------------------------------------------

    def _path(self, key: str) -> str:
        return join(self._root, path_of(key))

    def _require_root(self) -> None:
        if not self._fs.is_directory(self._root):
            raise StoreUnavailable(f"there is no directory {self._root} any more")


def _may_hold(directory_key: str, prefix: str, start_after: str) -> bool:
    may_match = directory_key.startswith(prefix) or prefix.startswith(directory_key)
    return may_match and (directory_key > start_after or start_after.startswith(directory_key))


def _write(file: File, key: str, parts: Iterable[Buffer]) -> int:
    """What `parts` raises is not ours to judge."""
    size = 0
    with contextlib.closing(file):
        for part in parts:
            with _file_errors(key):
                file.write(size, part)
            size += len(part)
        with _file_errors(key):
            file.sync()
    return size


def _pieces(file: File, key: str, first: int, end: int) -> Iterator[bytes]:
    with contextlib.closing(file):
        while first < end:
            with _file_errors(key):
                piece = file.read(first, min(_PIECE_BYTES, end - first))
            if not piece:
                raise StoreUnavailable(f"{key} got shorter while it was read")
            first += len(piece)
            yield piece


@contextlib.contextmanager
def _file_errors(what: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        hopeless = error.errno in _HOPELESS
        raise (ObjectStoreError if hopeless else StoreUnavailable)(f"{what}: {error}") from error
