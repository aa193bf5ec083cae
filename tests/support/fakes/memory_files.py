"""A file system in memory with the faults of a real one.

A crash may lose unsynced changes, or parts of them: writes of a file in any combination of sectors, the last torn at
any byte, unwritten sectors with zeros or garbage; names created, renamed or removed in a directory from any point on.
`crash(random)` chooses, and leaves the state that a restarted process would find. Operations can fail, before or in the
middle (`fail`), and the disk can be full (`capacity_bytes`).
"""

import errno
import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from random import Random
from typing import Literal, TypeAlias
from zlib import crc32

from protocol.primitives import Buffer
from storage.files import DiskSpace, File, FileLock, FileSystem, base_name, parent

SECTOR_BYTES = 512

Operation: TypeAlias = Literal[
    "open", "read", "write", "truncate", "sync", "rename", "link", "remove", "sync_directory", "list"
]


@dataclass(slots=True)
class Fault:
    """A fault: the next `operation` on a path that contains `path_part` fails with `error`, after `skip` successful
    ones.
    """

    operation: Operation
    error: int
    path_part: str = ""
    skip: int = 0


@dataclass(slots=True)
class _Write:
    position: int
    data: bytes


@dataclass(slots=True)
class _Cut:
    size: int


@dataclass(slots=True, eq=False)
class _FileNode:
    content: bytearray = field(default_factory=bytearray)
    durable: bytes = b""
    unsynced: list[_Write | _Cut] = field(default_factory=list)
    modified_ms: int = 0
    attribute: bytes = b""
    durable_attribute: bytes = b""

    def crash(self, random: Random) -> None:
        if crc32(self.attribute) % 2:  # a draw would change the random histories of all simulations
            self.attribute = self.durable_attribute
        self.durable_attribute = self.attribute
        survived = self._survivor(random)
        self.content = bytearray(survived)
        self.durable = bytes(survived)
        self.unsynced = []

    def _survivor(self, random: Random) -> bytearray:
        content = bytearray(self.durable)
        if not self.unsynced:
            return content
        reached = self.unsynced[: random.randint(0, len(self.unsynced))]
        scattered = random.random() < 0.5
        for change in reached:
            if isinstance(change, _Cut):
                _resize(content, change.size)
            elif scattered:
                _write_scattered(content, change, random)
            else:
                _put(content, change.position, change.data)
        if reached and isinstance(reached[-1], _Write) and random.random() < 0.5:
            _tear(content, reached[-1], random)
        return content


@dataclass(slots=True, eq=False)
class _Directory:
    entries: dict[str, "_Node"] = field(default_factory=dict)
    durable: dict[str, "_Node"] = field(default_factory=dict)
    unsynced: list[dict[str, "_Node | None"]] = field(default_factory=list)

    def change(self, names: "dict[str, _Node | None]") -> None:
        """Change names atomically; None removes a name."""
        self.unsynced.append(names)
        _rename(self.entries, names)

    def sync(self) -> None:
        self.durable = dict(self.entries)
        self.unsynced = []

    def crash(self, random: Random) -> None:
        for names in self.unsynced[: random.randint(0, len(self.unsynced))]:
            _rename(self.durable, names)
        self.entries = dict(self.durable)
        self.unsynced = []
        for node in self.entries.values():
            node.crash(random)


_Node: TypeAlias = _FileNode | _Directory


class MemoryFile:
    def __init__(self, fs: "MemoryFileSystem", path: str, node: _FileNode) -> None:
        self._fs = fs
        self._path = path
        self._node = node
        self._generation = fs.generation
        self._is_open = True

    def _use(self, operation: Operation) -> bytearray:
        assert self._is_open, f"{self._path} is closed"
        assert self._generation == self._fs.generation, f"{self._path} was opened before the crash"
        self._fs.maybe_fail(operation, self._path)
        return self._node.content

    def size(self) -> int:
        return len(self._use("read"))

    def read(self, position: int, size: int) -> bytes:
        return bytes(self._use("read")[position : position + size])

    def read_cached(self, position: int, size: int) -> bytes | None:
        return None if self._fs.is_cold else self.read(position, size)

    def view(self, start: int, end: int) -> memoryview:
        content = self._use("read")
        assert end <= len(content), f"{end} is beyond the {len(content)} bytes of {self._path}"
        return memoryview(bytes(content[start:end]))

    def is_cached(self, start: int, end: int) -> bool:
        return not self._fs.is_cold

    def warm(self, start: int, end: int) -> None:
        self._use("read")

    def write(self, position: int, data: Buffer) -> None:
        content = self._node.content
        try:
            self._use("write")
            self._fs.claim(max(0, position + len(data) - len(content)))
        except OSError:
            self._apply(_Write(position, bytes(data[: len(data) // 2])))
            raise
        self._apply(_Write(position, bytes(data)))

    def write_vector(self, position: int, parts: Sequence[Buffer]) -> None:
        self.write(position, b"".join(parts))

    def truncate(self, size: int) -> None:
        self._use("truncate")
        self._apply(_Cut(size))

    def _apply(self, change: _Write | _Cut) -> None:
        self._node.unsynced.append(change)
        self._node.modified_ms = self._fs.now_ms
        if isinstance(change, _Cut):
            _resize(self._node.content, change.size)
        else:
            _put(self._node.content, change.position, change.data)

    def attribute(self) -> bytes:
        return self._node.attribute

    def set_attribute(self, value: bytes) -> bool:
        if self._fs.has_attributes:
            self._node.attribute = value
        return self._fs.has_attributes

    def sync(self) -> None:
        self._use("sync")
        self._node.durable_attribute = self._node.attribute
        self._node.durable = bytes(self._node.content)
        self._node.unsynced = []

    def close(self) -> None:
        self._is_open = False


@dataclass(slots=True)
class MemoryLock:
    fs: "MemoryFileSystem"
    path: str

    def release(self) -> None:
        self.fs.locked.discard(self.path)


class MemoryFileSystem:
    def __init__(self, capacity_bytes: int | None = None) -> None:
        self._root = _Directory()
        self.capacity_bytes = capacity_bytes
        self.faults: list[Fault] = []
        self.generation = 0
        self.is_cold = False
        """Whether reads would block on the disk."""
        self.has_attributes = True
        self._found: dict[str, _Node] = {}
        """Nodes by path, up to the next change of names."""
        self.now_ms = 0
        self.locked: set[str] = set()
        self.log: list[tuple[Operation, str]] = []
        """Operations with their paths, for tests of their order."""

    # ---- faults

    def crash(self, random: Random) -> None:
        """Lose power: unsynced changes are lost in part, locks are released, open files are unusable."""
        self.generation += 1
        self.locked.clear()
        self._found.clear()
        self._root.crash(random)

    def fail(self, operation: Operation, error: int = errno.EIO, *, path_part: str = "", skip: int = 0) -> None:
        self.faults.append(Fault(operation, error, path_part, skip))

    def maybe_fail(self, operation: Operation, path: str) -> None:
        self.log.append((operation, path))
        for fault in self.faults:
            if fault.operation == operation and fault.path_part in path:
                if fault.skip:
                    fault.skip -= 1
                    continue
                self.faults.remove(fault)
                raise OSError(fault.error, os.strerror(fault.error), path)

    def claim(self, size: int) -> None:
        if self.capacity_bytes is not None and self._used(self._root) + size > self.capacity_bytes:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def _used(self, directory: _Directory) -> int:
        nodes = directory.entries.values()
        return sum(self._used(node) if isinstance(node, _Directory) else len(node.content) for node in nodes)

    # -- paths -----------------------------------------------------------------------------------------------------

    def _find(self, path: str) -> _Node | None:
        found = self._found.get(path)
        if found is not None:
            return found
        node: _Node | None = self._root
        for name in _parts(path):
            if not isinstance(node, _Directory):
                return None
            node = node.entries.get(name)
        if node is not None:
            self._found[path] = node
        return node

    def _directory(self, path: str) -> _Directory:
        node = self._find(path)
        if not isinstance(node, _Directory):
            raise OSError(errno.ENOENT, os.strerror(errno.ENOENT), path)
        return node

    def _file(self, path: str) -> _FileNode:
        node = self._find(path)
        if not isinstance(node, _FileNode):
            raise OSError(errno.ENOENT, os.strerror(errno.ENOENT), path)
        return node

    # -- FileSystem ------------------------------------------------------------------------------------------------

    def open(self, path: str) -> File:
        self.maybe_fail("open", path)
        directory = self._directory(parent(path))
        node = directory.entries.get(base_name(path))
        if node is None:
            node = _FileNode(modified_ms=self.now_ms)
            directory.change({base_name(path): node})
        if isinstance(node, _Directory):
            raise OSError(errno.EISDIR, os.strerror(errno.EISDIR), path)
        return MemoryFile(self, path, node)

    def open_existing(self, path: str) -> File:
        self.maybe_fail("open", path)
        return MemoryFile(self, path, self._file(path))

    def exists(self, path: str) -> bool:
        return self._find(path) is not None

    def is_directory(self, path: str) -> bool:
        return isinstance(self._find(path), _Directory)

    def list(self, directory: str) -> list[str]:
        self.maybe_fail("list", directory)
        return sorted(self._directory(directory).entries)

    def size(self, path: str) -> int:
        return len(self._file(path).content)

    def modified_ms(self, path: str) -> int:
        return self._file(path).modified_ms

    def set_modified_ms(self, path: str, time_ms: int) -> None:
        self._file(path).modified_ms = time_ms

    def make_directory(self, path: str) -> None:
        directory = self._root
        for name in _parts(path):
            node = directory.entries.get(name)
            if node is None:
                node = _Directory()
                directory.change({name: node})
            if not isinstance(node, _Directory):
                raise OSError(errno.EEXIST, os.strerror(errno.EEXIST), path)
            directory = node

    def rename(self, source: str, target: str) -> None:
        self.maybe_fail("rename", source)
        assert parent(source) == parent(target), "names move within a directory only"
        directory = self._directory(parent(source))
        node = directory.entries.get(base_name(source))
        if node is None:
            raise OSError(errno.ENOENT, os.strerror(errno.ENOENT), source)
        directory.change({base_name(source): None, base_name(target): node})
        self._found.clear()

    def link(self, source: str, target: str) -> None:
        self.maybe_fail("link", source)
        assert parent(source) == parent(target), "names move within a directory only"
        directory = self._directory(parent(source))
        node = directory.entries.get(base_name(source))
        if node is None:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), source)
        if base_name(target) in directory.entries:
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), target)
        directory.change({base_name(target): node})

    def remove(self, path: str) -> None:
        self.maybe_fail("remove", path)
        directory = self._find(parent(path))
        if isinstance(directory, _Directory) and base_name(path) in directory.entries:
            directory.change({base_name(path): None})
            self._found.clear()

    def remove_tree(self, directory: str) -> None:
        self.maybe_fail("remove", directory)
        if self.exists(directory):
            self._directory(parent(directory)).change({base_name(directory): None})
            self._found.clear()

    def remove_empty_directory(self, directory: str) -> bool:
        self.maybe_fail("remove", directory)
        node = self._find(directory)
        if node is None:
            return True
        if not isinstance(node, _Directory):
            raise OSError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), directory)
        if not node.entries:
            self._directory(parent(directory)).change({base_name(directory): None})
            self._found.clear()
        return not node.entries

    def sync_directory(self, directory: str) -> None:
        self.maybe_fail("sync_directory", directory)
        self._directory(directory).sync()

    def lock(self, path: str) -> FileLock:
        if path in self.locked:
            raise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN), path)
        self.open(path).close()
        self.locked.add(path)
        return MemoryLock(self, path)

    def disk_space(self, path: str) -> DiskSpace:
        total = self.capacity_bytes if self.capacity_bytes is not None else 2**40
        return DiskSpace(total, max(0, total - self._used(self._root)))


@lru_cache(maxsize=10_000)
def _parts(path: str) -> tuple[str, ...]:
    return tuple(name for name in path.split("/") if name not in ("", "."))


def _rename(entries: dict[str, _Node], names: "dict[str, _Node | None]") -> None:
    for name, node in names.items():
        if node is None:
            entries.pop(name, None)
        else:
            entries[name] = node


def _resize(content: bytearray, size: int) -> None:
    if size < len(content):
        del content[size:]
    else:
        content.extend(bytes(size - len(content)))


def _put(content: bytearray, position: int, data: bytes) -> None:
    if position > len(content):
        content.extend(bytes(position - len(content)))
    content[position : position + len(data)] = data


def _write_scattered(content: bytearray, write: _Write, random: Random) -> None:
    """Set the new length; a random choice of sectors gets its content."""
    end = write.position + len(write.data)
    if end > len(content):
        _resize(content, end)
    start = write.position
    while start < end:
        stop = min(end, (start // SECTOR_BYTES + 1) * SECTOR_BYTES)
        luck = random.random()
        if luck < 0.7:
            content[start:stop] = write.data[start - write.position : stop - write.position]
        elif luck < 0.8:
            content[start:stop] = random.randbytes(stop - start)
        start = stop


def _tear(content: bytearray, write: _Write, random: Random) -> None:
    """Cut the last write somewhere in its middle."""
    end = write.position + len(write.data)
    if write.data and len(content) == end:
        _resize(content, random.randint(write.position, end - 1))


def checked(fs: MemoryFileSystem) -> FileSystem:
    """Return `fs`; the type checker verifies that it is a FileSystem."""
    return fs
