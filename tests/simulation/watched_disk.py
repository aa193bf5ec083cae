"""A node's disk that tracks, batch by batch, the content of the segments of every log, as written and as durable.

Checkers use this content instead of the replicas' own state. Written bytes are parsed as they arrive; durable are
synced bytes of files whose names are synced, the content after the worst crash.
"""

import errno
import struct
from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from random import Random
from typing import Final, NamedTuple

from broker.quorum.membership.voters import VoterSet
from protocol.primitives import Buffer
from protocol.records.batch import crc_is_valid
from protocol.records.quorum_control import read_control_state
from storage.files import File, base_name, parent
from tests.simulation.world import PowerFailure
from tests.support.fakes.memory_files import (
    MemoryFile,
    MemoryFileSystem,
    Operation,
    _Cut,
    _Directory,
    _FileNode,
    _Node,
    _Write,
)

_HEADER: Final = struct.Struct(">qiibIhi")  # base offset, length, epoch, magic, crc, attributes, last offset delta
_CONTROL_FLAG: Final = 0x20
_LENGTH_PREFIX: Final = 12


class LoggedBatch(NamedTuple):
    """A batch in a segment; `voters` and `kraft_version` are those of its control records, if any."""

    base_offset: int
    end_offset: int
    epoch: int
    crc: int
    end_position: int
    voters: VoterSet | None
    kraft_version: int | None

    def is_same(self, other: "LoggedBatch") -> bool:
        """Whether both have the same records of the same epoch at the same offsets."""
        return self[:4] == other[:4]


@dataclass(slots=True, eq=False)
class SegmentNode(_FileNode):
    """A log segment that tracks its batches, as written and as durable."""

    batches: list[LoggedBatch] = field(default_factory=list)
    durable_batches: list[LoggedBatch] = field(default_factory=list)
    same_count: int = 0
    """Number of leading batches that are the same in both lists."""

    def crash(self, random: Random) -> None:
        _FileNode.crash(self, random)
        self.batches = list(_intact_batches(self.content))
        self.durable_batches = list(self.batches)
        self.same_count = len(self.batches)

    def note_write(self, position: int, data: bytes) -> None:
        self.note_cut(position)
        self.batches.extend(_batches(data, position))

    def note_cut(self, size: int) -> list[LoggedBatch]:
        """Truncate; return the removed batches."""
        batches = self.batches
        if not batches or batches[-1].end_position <= size:
            return []
        keep = bisect_left(batches, size + 1, key=lambda batch: batch.end_position)
        removed = batches[keep:]
        del batches[keep:]
        self.same_count = min(self.same_count, keep)
        return removed

    def note_sync(self) -> None:
        durable, same = self.durable_batches, self.same_count
        del durable[same:]
        durable.extend(self.batches[same:])
        self.same_count = len(durable)


class _WatchedFile(MemoryFile):
    def __init__(self, disk: "WatchedDisk", path: str, node: _FileNode) -> None:
        super().__init__(disk, path, node)
        self._disk = disk

    def _apply(self, change: _Write | _Cut) -> None:
        node = self._node
        if isinstance(node, SegmentNode):
            if isinstance(change, _Cut):
                removed = node.note_cut(change.size)
                self._disk.note_change(removed)
                self._disk.on_removed(self._path, removed)
            else:
                count = len(node.batches)
                node.note_write(change.position, change.data)
                self._disk.note_change()
                self._disk.on_written(self._path, node.batches[count:])
        super()._apply(change)

    def sync(self) -> None:
        super().sync()
        if isinstance(self._node, SegmentNode):
            self._node.note_sync()


class WatchedDisk(MemoryFileSystem):
    """A disk. `version` increases with every change of a log, `removals` with every removal. After `fail_after`
    operations the power fails; after `error_after`, an operation on a path that begins with `error_path` fails.
    """

    def __init__(self, node_id: int) -> None:
        super().__init__()
        self.node_id = node_id
        self.version = 0
        self.removals = 0
        self.fail_after: int | None = None
        self.may_fail: Callable[[], bool] = _always
        """Whether that power failure may still happen."""
        self.error_after: int | None = None
        self.error_path = "/"
        self.has_failed = False
        self.is_inspected = False
        """Whether a checker reads, which causes no fault."""
        self.is_starting = False
        """Whether removals are ignored: during recovery at a start, and after a failed write, removed data was
        incomplete.
        """
        self._logs: dict[tuple[str, bool], list[SegmentNode]] = {}

    # Hooks for subclasses

    def on_written(self, path: str, batches: Sequence[LoggedBatch]) -> None:
        """Handle batches written to a segment."""

    def on_removed(self, path: str, batches: Sequence[LoggedBatch]) -> None:
        """Handle batches removed from a segment, or with it."""

    # Faults

    @contextmanager
    def inspected(self) -> Iterator[None]:
        """Let a checker read without faults."""
        self.is_inspected = True
        try:
            yield
        finally:
            self.is_inspected = False

    def maybe_fail(self, operation: Operation, path: str) -> None:
        if self.is_inspected:
            return
        if self.fail_after is not None:
            self.fail_after -= 1
            if self.fail_after < 0:
                self.fail_after = None
                if self.may_fail():
                    raise PowerFailure
        if (
            self.error_after is not None
            and operation in ("write", "sync", "rename")
            and path.startswith(self.error_path)
        ):
            self.error_after -= 1
            if self.error_after < 0:
                self.error_after = None
                self.has_failed = True
                raise OSError(errno.EIO, "the disk failed", path)

    def claim(self, size: int) -> None:
        try:
            super().claim(size)
        except OSError:
            self.has_failed = True
            raise

    def fill(self, free_bytes: int) -> None:
        """Leave this many bytes free."""
        self.capacity_bytes = self._used(self._root) + free_bytes

    def crash(self, random: Random) -> None:
        self.fail_after = self.error_after = None
        super().crash(random)
        self._names_changed()

    def forget_process(self) -> None:
        """Forget the process, but not the page cache: its open files become unusable."""
        self.generation += 1
        self.locked.clear()

    # FileSystem

    def open(self, path: str) -> File:
        self.maybe_fail("open", path)
        directory = self._directory(parent(path))
        name = base_name(path)
        node = directory.entries.get(name)
        if node is None:
            node = SegmentNode() if name.endswith(".log") else _FileNode()
            directory.change({name: node})
            self._names_changed()
        if isinstance(node, _Directory):
            raise OSError(errno.EISDIR, "is a directory", path)
        return _WatchedFile(self, path, node)

    def open_existing(self, path: str) -> File:
        self.maybe_fail("open", path)
        return _WatchedFile(self, path, self._file(path))

    def rename(self, source: str, target: str) -> None:
        gone = self._find(source)
        super().rename(source, target)
        self._names_changed()
        if isinstance(gone, SegmentNode) and not target.endswith(".log"):
            self.on_removed(source, gone.batches)

    def remove(self, path: str) -> None:
        gone = self._find(path)
        super().remove(path)
        self._names_changed()
        if isinstance(gone, SegmentNode) and path.endswith(".log"):
            self.on_removed(path, gone.batches)

    def sync_directory(self, directory: str) -> None:
        super().sync_directory(directory)
        self._names_changed()

    def note_change(self, removed: Sequence[LoggedBatch] = ()) -> None:
        """Record that bytes of a segment changed and that these batches were removed."""
        self.version += 1
        self.removals += bool(removed)

    def _names_changed(self) -> None:
        self.version += 1
        self.removals += 1
        self._logs.clear()

    # Content

    def logged_between(self, directory: str, start: int, end: int) -> list[LoggedBatch]:
        """Return the batches of a log that begin in [start, end), as written."""
        found: list[LoggedBatch] = []
        for segment in self.segments(directory):
            batches = segment.batches
            if batches and batches[-1].base_offset >= start:
                first = bisect_left(batches, start, key=base_offset_of)
                found.extend(batch for batch in batches[first:] if batch.base_offset < end)
        return found

    def logged_ending_at(self, directory: str, end: int, *, durable: bool = False) -> LoggedBatch | None:
        """Return the batch of a log that ends at an offset, as written or as durable."""
        for segment in reversed(self.segments(directory, durable=durable)):
            batches = segment.durable_batches if durable else segment.batches
            if batches and batches[0].base_offset < end:
                index = bisect_left(batches, end, key=end_offset_of)
                return batches[index] if index < len(batches) and batches[index].end_offset == end else None
        return None

    def segments(self, directory: str, *, durable: bool = False) -> list[SegmentNode]:
        """Return the segments of a log in order; none without a directory."""
        found = self._logs.get((directory, durable))
        if found is None:
            found = self._logs[directory, durable] = self._find_segments(directory, durable=durable)
        return found

    def _find_segments(self, path: str, *, durable: bool) -> list[SegmentNode]:
        directory = self._find(path)
        if not isinstance(directory, _Directory):
            return []
        entries: dict[str, _Node] = directory.durable if durable else directory.entries
        return [
            node for name, node in sorted(entries.items()) if isinstance(node, SegmentNode) and name.endswith(".log")
        ]


def _batches(data: bytes, position: int) -> list[LoggedBatch]:
    """Return the batches of one write that begins at `position` of its file."""
    found: list[LoggedBatch] = []
    start = 0
    while start + _HEADER.size <= len(data):
        base, length, epoch, _, crc, attributes, delta = _HEADER.unpack_from(data, start)
        stop = start + length + _LENGTH_PREFIX
        if stop > len(data):
            break
        voters, version = _control(data, start) if attributes & _CONTROL_FLAG else (None, None)
        found.append(LoggedBatch(base, base + delta + 1, epoch, crc, position + stop, voters, version))
        start = stop
    return found


def _intact_batches(content: Buffer) -> list[LoggedBatch]:
    """Return the batches of a file up to the first damaged one."""
    end = 0
    while end + _HEADER.size <= len(content):
        length = _HEADER.unpack_from(content, end)[1]
        size = length + _LENGTH_PREFIX
        if length <= 0 or end + size > len(content) or not crc_is_valid(content, end, size):
            break
        end += size
    return _batches(bytes(content[:end]), 0)


def _control(data: bytes, start: int) -> tuple[VoterSet | None, int | None]:
    state = read_control_state(data, start, None)
    if state is None:
        return None, None
    return None if state.voters is None else VoterSet.of_record(state.voters), state.kraft_version or None


def base_offset_of(batch: LoggedBatch) -> int:
    return batch.base_offset


def end_offset_of(batch: LoggedBatch) -> int:
    return batch.end_offset


def _always() -> bool:
    """Return True."""
    return True
