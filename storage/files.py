"""The file system interface of storage. The only module that uses os, open, mmap and fsync.

A crash may lose everything unsynced: file content until `File.sync`, and directory entries (create, rename, remove)
until `FileSystem.sync_directory`. `replace_file` is the one right way to replace a small file. Every implementation
raises OSError; callers decide which errors are fatal.
"""

import contextlib
import errno
import fcntl
import mmap
import os
import weakref
from collections.abc import Sequence
from typing import NamedTuple, Protocol

from protocol.primitives import Buffer

ASIDE_SUFFIX = ".tmp"
"""Suffix of a file that is written before it replaces another; a leftover after a crash is ignored."""

_COPY_CHUNK_BYTES = 1024 * 1024
_WARM_CHUNK_BYTES = 256 * 1024
_ATTRIBUTE = "user.ottla"
_MAX_VECTOR = 1000
"""Buffers per pwritev; Linux allows 1024."""


class File(Protocol):
    """One open file without buffering. Reads and writes name their position."""

    def size(self) -> int: ...

    def read(self, position: int, size: int) -> bytes:
        """Read up to `size` bytes; fewer only at the end of the file."""
        ...

    def read_cached(self, position: int, size: int) -> bytes | None:
        """Read like `read`, but return None if the bytes are not in the page cache."""
        ...

    def view(self, start: int, end: int) -> memoryview:
        """Return the existing bytes [start, end) without a copy; they stay valid as long as the view exists."""
        ...

    def is_cached(self, start: int, end: int) -> bool:
        """Whether [start, end) is probably in the page cache: its first and last byte are."""
        ...

    def warm(self, start: int, end: int) -> None:
        """Read [start, end) into the page cache. Blocks, and lets other threads run meanwhile."""
        ...

    def write(self, position: int, data: Buffer) -> None:
        """Write all of `data` at `position`. After an OSError any part of it may have been written."""
        ...

    def write_vector(self, position: int, parts: Sequence[Buffer]) -> None:
        """Write several buffers one after another, like `write`."""
        ...

    def truncate(self, size: int) -> None:
        """Cut the file to `size`, or extend it with zeros. Existing views keep their content."""
        ...

    def attribute(self) -> bytes:
        """Return the value of the last `set_attribute` on the disk; empty without one."""
        ...

    def set_attribute(self, value: bytes) -> bool:
        """Attach a small value, durable with the next synced append. Return False if the disk stores no attributes."""
        ...

    def sync(self) -> None:
        """Return when content and size are on the disk."""
        ...

    def close(self) -> None: ...


class FileLock(Protocol):
    """An exclusive lock between processes, held until release or the end of the process."""

    def release(self) -> None: ...


class DiskSpace(NamedTuple):
    total_bytes: int
    usable_bytes: int


class FileSystem(Protocol):
    """Operations on absolute or relative paths with `/`."""

    def open(self, path: str) -> File:
        """Open a file for reading and writing; create it empty if absent."""
        ...

    def open_existing(self, path: str) -> File:
        """Open a file like `open`, but raise FileNotFoundError if absent."""
        ...

    def exists(self, path: str) -> bool: ...

    def is_directory(self, path: str) -> bool: ...

    def list(self, directory: str) -> list[str]:
        """Return the names in the directory, sorted."""
        ...

    def size(self, path: str) -> int: ...

    def modified_ms(self, path: str) -> int: ...

    def set_modified_ms(self, path: str, time_ms: int) -> None: ...

    def make_directory(self, path: str) -> None:
        """Create a directory with its parents; an existing one is no error."""
        ...

    def rename(self, source: str, target: str) -> None:
        """Rename atomically within a directory, replacing an existing file."""
        ...

    def link(self, source: str, target: str) -> None:
        """Give a file a second name in its directory, atomically. Raises FileExistsError."""
        ...

    def remove(self, path: str) -> None:
        """Remove a file; an absent one is no error."""
        ...

    def remove_tree(self, directory: str) -> None:
        """Remove a directory with its content; an absent one is no error."""
        ...

    def remove_empty_directory(self, directory: str) -> bool:
        """Remove a directory if it is empty; return whether it is gone."""
        ...

    def sync_directory(self, directory: str) -> None:
        """Return when the names in the directory are on the disk."""
        ...

    def lock(self, path: str) -> FileLock:
        """Lock a file. Raises BlockingIOError if another process holds the lock."""
        ...

    def disk_space(self, path: str) -> DiskSpace: ...


def join(directory: str, name: str) -> str:
    return f"/{name}" if directory == "/" else f"{directory}/{name}"


def parent(path: str) -> str:
    head, slash, _ = path.rpartition("/")
    return head or slash or "."


def base_name(path: str) -> str:
    return path.rpartition("/")[2]


def read_file(fs: FileSystem, path: str) -> bytes:
    """Read a whole file. Raises FileNotFoundError."""
    file = fs.open_existing(path)
    try:
        return file.read(0, file.size())
    finally:
        file.close()


def write_file(fs: FileSystem, path: str, data: Buffer, *, sync: bool) -> None:
    """Write a file in place; for content whose reader detects a torn write."""
    file = fs.open(path)
    try:
        file.truncate(0)
        file.write(0, data)
        if sync:
            file.sync()
    finally:
        file.close()


def replace_file(fs: FileSystem, path: str, data: Buffer) -> None:
    """Replace `path` durably: a crash leaves the old or the new content, never a mixture.

    Write a temporary file, fsync, rename, fsync the directory.
    """
    aside = path + ASIDE_SUFFIX
    write_file(fs, aside, data, sync=True)
    fs.rename(aside, path)
    fs.sync_directory(parent(path))


def sync_path(fs: FileSystem, path: str) -> None:
    """Sync a file that may not be open."""
    file = fs.open_existing(path)
    try:
        file.sync()
    finally:
        file.close()


class _Views:
    """The live mappings of one file, and the end of the last byte that any view of them has shown."""

    __slots__ = ("end", "mappings")

    def __init__(self) -> None:
        self.mappings: list[weakref.ref[mmap.mmap]] = []
        self.end = 0


class _Mappings:
    """The live mappings of each file (device, inode), also of files that are closed by now."""

    def __init__(self) -> None:
        self._of_file: dict[tuple[int, int], _Views] = {}

    def add(self, descriptor: int, mapping: mmap.mmap) -> _Views:
        identity = _identity(descriptor)

        def forget(reference: weakref.ref[mmap.mmap]) -> None:
            mappings = self._of_file[identity].mappings
            mappings.remove(reference)
            if not mappings:
                del self._of_file[identity]

        views = self._of_file.setdefault(identity, _Views())
        views.mappings.append(weakref.ref(mapping, forget))
        return views

    def are_shown(self, descriptor: int, size: int) -> bool:
        """Whether views of bytes beyond `size` may exist."""
        views = self._of_file.get(_identity(descriptor))
        return views is not None and views.end > size


def _identity(descriptor: int) -> tuple[int, int]:
    facts = os.fstat(descriptor)
    return facts.st_dev, facts.st_ino


class OsFile:
    """A file of the operating system.

    `view` returns slices of a shared mapping. A mapping ends at the file's end when it was made, and a view beyond it
    makes a new mapping; the old one lives until its last view is dropped. Truncating a mapped file would turn a later
    access into SIGBUS; therefore a truncation below the end of a view copies the remaining bytes to a new file and
    leaves the old one to the views.
    """

    def __init__(self, path: str, descriptor: int, mappings: _Mappings) -> None:
        self._path = path
        self._descriptor = descriptor
        self._mappings = mappings
        self._mapped = memoryview(b"")
        self._views = _Views()

    def size(self) -> int:
        return os.fstat(self._descriptor).st_size

    def read(self, position: int, size: int) -> bytes:
        data = os.pread(self._descriptor, size, position)
        if len(data) == size or not data:
            return data
        return self._read_rest(data, position, size)

    def _read_rest(self, data: bytes, position: int, size: int) -> bytes:
        parts = [data]
        while data and (missing := size - sum(map(len, parts))):
            data = os.pread(self._descriptor, missing, position + size - missing)
            parts.append(data)
        return b"".join(parts)

    def read_cached(self, position: int, size: int) -> bytes | None:
        buffer = bytearray(size)
        try:
            done = os.preadv(self._descriptor, [buffer], position, os.RWF_NOWAIT)
        except BlockingIOError:
            return None
        except OSError as error:
            if error.errno != errno.EOPNOTSUPP:
                raise
            return self.read(position, size)
        return bytes(buffer) if done == size else None

    def view(self, start: int, end: int) -> memoryview:
        if end > len(self._mapped):
            self._map()
        if end > self._views.end:
            self._views.end = end
        return self._mapped[start:end]

    def _map(self) -> None:
        mapping = mmap.mmap(self._descriptor, 0, access=mmap.ACCESS_READ)
        self._views = self._mappings.add(self._descriptor, mapping)
        self._mapped = memoryview(mapping)

    def is_cached(self, start: int, end: int) -> bool:
        return start >= end or (self._byte_is_cached(start) and self._byte_is_cached(end - 1))

    def _byte_is_cached(self, position: int) -> bool:
        try:
            return os.preadv(self._descriptor, [bytearray(1)], position, os.RWF_NOWAIT) == 1
        except BlockingIOError:
            return False
        except OSError as error:
            if error.errno != errno.EOPNOTSUPP:
                raise
            return True

    def warm(self, start: int, end: int) -> None:
        scratch = bytearray(min(_WARM_CHUNK_BYTES, max(0, end - start)))
        while start < end and (done := os.preadv(self._descriptor, [scratch], start)):
            start += done

    def write(self, position: int, data: Buffer) -> None:
        written = os.pwrite(self._descriptor, data, position)
        if written != len(data):
            self._write_rest(position + written, memoryview(data)[written:])

    def _write_rest(self, position: int, rest: memoryview) -> None:
        """Write the rest of a short write, which the kernel reports before an error or after a signal."""
        while rest:
            written = os.pwrite(self._descriptor, rest, position)
            position += written
            rest = rest[written:]

    def write_vector(self, position: int, parts: Sequence[Buffer]) -> None:
        for start in range(0, len(parts), _MAX_VECTOR):
            some = parts[start : start + _MAX_VECTOR]
            total = sum(map(len, some))
            written = os.pwritev(self._descriptor, some, position)
            if written != total:
                self._write_rest(position + written, memoryview(b"".join(some))[written:])
            position += total

    def truncate(self, size: int) -> None:
        self._mapped = memoryview(b"")
        if size < self.size() and self._mappings.are_shown(self._descriptor, size):
            self._truncate_aside(size)
        else:
            os.ftruncate(self._descriptor, size)

    def _truncate_aside(self, size: int) -> None:
        aside = self._path + ASIDE_SUFFIX
        descriptor = os.open(aside, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o644)
        try:
            _copy(self._descriptor, descriptor, size)
            os.fsync(descriptor)
            os.rename(aside, self._path)
        except OSError:
            os.close(descriptor)
            raise
        old, self._descriptor = self._descriptor, descriptor
        os.close(old)
        _sync_directory(parent(self._path))

    def attribute(self) -> bytes:
        with contextlib.suppress(OSError):
            return os.getxattr(self._descriptor, _ATTRIBUTE)
        return b""

    def set_attribute(self, value: bytes) -> bool:
        with contextlib.suppress(OSError):  # a failing disk fails the sync, too
            os.setxattr(self._descriptor, _ATTRIBUTE, value)
            return True
        return False

    def sync(self) -> None:
        os.fdatasync(self._descriptor)

    def close(self) -> None:
        """Close the descriptor. Views stay valid, because a mapping does not need the descriptor."""
        self._mapped = memoryview(b"")
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            os.close(descriptor)

    def __del__(self) -> None:
        """Close when the last user drops the file.

        A file shared between threads is dropped, not closed, so that no call in progress uses a descriptor that was
        reassigned to another file.
        """
        self.close()


def _copy(source: int, target: int, size: int) -> None:
    done = 0
    while done < size:
        chunk = os.pread(source, min(_COPY_CHUNK_BYTES, size - done), done)
        if not chunk:
            raise OSError(errno.EIO, "a file ended before the point where it was to be cut")
        done += os.pwrite(target, chunk, done)


def _sync_directory(directory: str) -> None:
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


class OsFileLock:
    """flock on an open descriptor; the kernel releases it when the process ends."""

    def __init__(self, path: str) -> None:
        self._descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(self._descriptor)
            raise

    def release(self) -> None:
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            os.close(descriptor)


class OsFileSystem:
    """The file system of the operating system."""

    def __init__(self) -> None:
        self._mappings = _Mappings()

    def open(self, path: str) -> File:
        return OsFile(path, os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644), self._mappings)

    def open_existing(self, path: str) -> File:
        return OsFile(path, os.open(path, os.O_RDWR | os.O_CLOEXEC), self._mappings)

    def exists(self, path: str) -> bool:
        return os.path.exists(path)

    def is_directory(self, path: str) -> bool:
        return os.path.isdir(path)

    def list(self, directory: str) -> list[str]:
        return sorted(os.listdir(directory))

    def size(self, path: str) -> int:
        return os.stat(path).st_size

    def modified_ms(self, path: str) -> int:
        return os.stat(path).st_mtime_ns // 1_000_000

    def set_modified_ms(self, path: str, time_ms: int) -> None:
        os.utime(path, ns=(time_ms * 1_000_000, time_ms * 1_000_000))

    def make_directory(self, path: str) -> None:
        os.makedirs(path, exist_ok=True)

    def rename(self, source: str, target: str) -> None:
        os.replace(source, target)

    def link(self, source: str, target: str) -> None:
        os.link(source, target)

    def remove(self, path: str) -> None:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(path)

    def remove_tree(self, directory: str) -> None:
        try:
            entries = list(os.scandir(directory))
        except FileNotFoundError:
            return
        for entry in entries:
            if entry.is_dir(follow_symlinks=False):
                self.remove_tree(entry.path)
            else:
                self.remove(entry.path)
        os.rmdir(directory)

    def remove_empty_directory(self, directory: str) -> bool:
        try:
            os.rmdir(directory)
        except FileNotFoundError:
            return True
        except OSError as error:
            if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
                raise
            return False
        return True

    def sync_directory(self, directory: str) -> None:
        _sync_directory(directory)

    def lock(self, path: str) -> FileLock:
        return OsFileLock(path)

    def disk_space(self, path: str) -> DiskSpace:
        facts = os.statvfs(path)
        return DiskSpace(facts.f_blocks * facts.f_frsize, facts.f_bavail * facts.f_frsize)
