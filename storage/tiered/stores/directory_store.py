"""Object store in a directory, which several nodes may share.

An object is written to a temporary file, synced and renamed. There are no locks: a directory that another node removed
because it became empty is created again. Temporary files left by a crash are no objects; a listing removes them once no
writer can own them.
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
"""Read size: a chunk of the default size is one piece."""

_LEFTOVER_AGE_MS = 60 * 60 * 1000
"""Minimum time since the last write to a leftover; a file being written ages only while its source stalls."""

_OPEN_ATTEMPTS = 100
"""Maximum number of attempts when other nodes keep removing the directory."""

_HOPELESS = frozenset(
    {errno.ENOTDIR, errno.EISDIR, errno.EEXIST, errno.ENAMETOOLONG, errno.EACCES, errno.EPERM, errno.EROFS}
)


class DirectoryStore:
    """Implements ConditionalStore. A missing root raises StoreUnavailable: a failed mount deletes no object."""

    def __init__(
        self,
        fs: FileSystem,
        root: str,
        *,
        now_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000,
        unique: Callable[[], str] = lambda: uuid.uuid4().hex,
    ) -> None:
        """Create the directory. `unique` returns 32 hexadecimal digits. Raises as the methods do."""
        self._fs = fs
        self._root = root.rstrip("/") or "/"
        self._now_ms = now_ms
        self._unique = unique
        with _file_errors(root):
            fs.make_directory(root)
            fs.sync_directory(parent(root))

    def close(self) -> None:
        """Do nothing: there are no resources."""

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

    def put_new(self, key: str, content: Buffer) -> bool:
        path = self._path(key)
        aside = aside_of(path, self._unique())
        with _file_errors(key):
            file = self._open_aside(aside)
        try:
            _write(file, key, [content])
            with _file_errors(key):
                try:
                    self._fs.link(aside, path)
                except FileExistsError:
                    return False
        finally:
            with contextlib.suppress(OSError):
                self._fs.remove(aside)
        with _file_errors(key):
            self._sync_upwards(parent(path))
        return True

    def _open_aside(self, aside: str) -> File:
        """Create a temporary file; retry while other nodes remove the empty directory."""
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
        """Sync all directories up to the root; a missing one was emptied by another node that deleted the object."""
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
            raise ObjectNotFound(f"object {key} does not exist") from None

    # -- delete ------------------------------------------------------------------------------------------------------

    def delete(self, keys: Sequence[str]) -> None:
        """Delete objects; continue after a failure and raise the first."""
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
        """Remove a file; a directory at its path belongs to other objects."""
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
        """List objects; holds the names of the directories on the present path."""
        with _file_errors(prefix):
            for key, path in self._walk(prefix, start_after):
                if key.startswith(prefix) and key > start_after and (info := self._info(key, path)):
                    yield info
            self._require_root()  # if the root disappeared, missing objects may still exist

    def _walk(self, prefix: str, start_after: str) -> Iterator[tuple[str, str]]:
        """Yield keys and paths in key order; a directory is read when all smaller keys were yielded."""
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
        """Yield (key or common key prefix, path, whether it is a directory)."""
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
            raise StoreUnavailable(f"the directory {self._root} does not exist any more")


def _may_hold(directory_key: str, prefix: str, start_after: str) -> bool:
    may_match = directory_key.startswith(prefix) or prefix.startswith(directory_key)
    return may_match and (directory_key > start_after or start_after.startswith(directory_key))


def _write(file: File, key: str, parts: Iterable[Buffer]) -> int:
    """Write the parts and sync; errors raised by `parts` pass through."""
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
                raise StoreUnavailable(f"{key} was truncated while it was read")
            first += len(piece)
            yield piece


@contextlib.contextmanager
def _file_errors(what: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        hopeless = error.errno in _HOPELESS
        raise (ObjectStoreError if hopeless else StoreUnavailable)(f"{what}: {error}") from error
