"""A broker's disk: the logs in its log directories, observed batch by batch."""

import errno
from collections.abc import Iterator, Sequence
from itertools import count
from typing import NamedTuple, Protocol

from storage.directories.directory_names import DELETE_SUFFIX, parse_directory_name
from storage.files import base_name, join, parent
from storage.segment import INDEX_SUFFIX
from tests.simulation.watched_disk import LoggedBatch, WatchedDisk
from tests.support.fakes.memory_files import Operation, _Directory, _FileNode


class ReplicaName(NamedTuple):
    """A partition, in any log directory."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


class LogWitness(Protocol):
    """Checker of changes of logs."""

    def on_written(self, node_id: int, name: ReplicaName, batches: Sequence[LoggedBatch]) -> None: ...

    def on_removed(self, node_id: int, name: ReplicaName, batches: Sequence[LoggedBatch]) -> None: ...


class PartitionDisk(WatchedDisk):
    """A broker's disk. `life` numbers the disks of a node."""

    def __init__(self, node_id: int, witness: LogWitness) -> None:
        super().__init__(node_id)
        self._witness = witness
        self.full_path: str | None = None
        """The log directory in which no file may grow."""
        self.is_rotten = False
        """Whether a bit has ever been flipped."""
        self._count = 0
        self._numbers = count(1)
        self._created: dict[str, int] = {}
        """The number of the last creation of each directory."""

    def maybe_fail(self, operation: Operation, path: str) -> None:
        super().maybe_fail(operation, path)
        if self.full_path is not None and operation == "write" and path.startswith(self.full_path):
            self.has_failed = True
            raise OSError(errno.ENOSPC, "no space left on device", path)

    def directories(self, count: int) -> list[str]:
        """Return the paths of the log directories."""
        self._count = count
        return [f"/data-{number}" for number in range(1, count + 1)]

    def on_written(self, path: str, batches: Sequence[LoggedBatch]) -> None:
        name = _name_of(path)
        if name is not None:
            self._witness.on_written(self.node_id, name, batches)

    def on_removed(self, path: str, batches: Sequence[LoggedBatch]) -> None:
        name = _name_of(path)
        if name is not None and batches and not self.is_starting and not self.has_failed:
            self._witness.on_removed(self.node_id, name, batches)

    def stop_faults(self) -> None:
        """End planned and lasting faults."""
        self.fail_after = self.error_after = self.full_path = None

    # Content

    def log_path(self, name: ReplicaName) -> str | None:
        """Return the directory of a replica's log; None without one.

        A failed log directory may have the log of a deleted topic, and another directory that of its successor.
        """
        paths = [join(f"/data-{number}", str(name)) for number in range(1, self._count + 1)]
        found = [path for path in paths if self.is_directory(path)]
        return max(found, key=lambda path: self._created.get(path, 0), default=None)

    def make_directory(self, path: str) -> None:
        super().make_directory(path)
        self._created[path] = next(self._numbers)

    def between(self, name: ReplicaName, start: int, end: int) -> list[LoggedBatch]:
        """Return the batches that begin in [start, end), as written."""
        path = self.log_path(name)
        return [] if path is None else self.logged_between(path, start, end)

    def ending_at(self, name: ReplicaName, end: int, *, durable: bool = False) -> LoggedBatch | None:
        """Return the batch that ends at an offset, as written or as durable."""
        path = self.log_path(name)
        return None if path is None else self.logged_ending_at(path, end, durable=durable)

    def batches(self, name: ReplicaName) -> Iterator[tuple[int, bytes]]:
        """Yield the base offset and the bytes of each batch of a log."""
        path = self.log_path(name)
        for segment in [] if path is None else self.segments(path):
            start = 0
            for batch in segment.batches:
                yield batch.base_offset, bytes(segment.content[start : batch.end_position])
                start = batch.end_position

    def contents(self, name: ReplicaName) -> list[bytes]:
        """Return the bytes of the segments of a log, in order; unlike `batches`, of compacted ones as well."""
        path = self.log_path(name)
        directory = None if path is None else self._find(path)
        if not isinstance(directory, _Directory):
            return []
        return [
            bytes(file.content)
            for entry, file in sorted(directory.entries.items())
            if entry.endswith(".log") and isinstance(file, _FileNode)
        ]

    def deleted_directories(self) -> list[str]:
        """Return the names of the directories that wait for their removal."""
        return [
            name for path in self.directories(self._count) for name in self.list(path) if name.endswith(DELETE_SUFFIX)
        ]

    def rot(self, name: ReplicaName, base_offset: int) -> None:
        """Flip a bit in the last byte of a batch."""
        self.is_rotten = True
        path = self.log_path(name)
        for segment in [] if path is None else self.segments(path):
            for batch in segment.batches:
                if batch.base_offset == base_offset:
                    segment.content[batch.end_position - 1] ^= 1

    def lose_indexes(self, name: ReplicaName) -> None:
        """Remove the offset indexes of a log, so that the next start reads the log."""
        path = self.log_path(name)
        for file in [] if path is None else self.list(path):
            if file.endswith(INDEX_SUFFIX):
                self.remove(join(path or "", file))

    def start_of(self, name: ReplicaName) -> int:
        """Return the base offset of the first batch; a very high offset without one."""
        path = self.log_path(name)
        segments = [] if path is None else self.segments(path)
        return next((segment.batches[0].base_offset for segment in segments if segment.batches), 2**62)


def _name_of(path: str) -> ReplicaName | None:
    """Return the partition of a segment's path; None for a log being deleted."""
    try:
        parsed = parse_directory_name(base_name(parent(path)))
    except ValueError:
        return None
    directory = base_name(parent(path))
    name = ReplicaName(parsed.topic, parsed.partition)
    return name if directory == str(name) else None
