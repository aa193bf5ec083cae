"""Deleted files that wait for their delay before they are unlinked (segments, and whole directories), and removed logs
whose removal waits for an fsync.

The delay lets readers of a segment finish (file.delete.delay.ms, log.segment.delete.delay.ms). Times are monotonic, in
ms: a step of the wall clock neither keeps files nor takes them from their readers. The queue is in memory: the suffix
of leftover files makes the next start remove them.
"""

import heapq
from collections.abc import Callable, Iterable

from storage.directories.checkpoints import TopicPartition
from storage.directories.log_checkpoints import OnDirectory
from storage.directories.log_dir import LogDir
from storage.files import FileSystem
from storage.segment import LogSegment


class PendingRemovals:
    """A queue of removals. The log's thread adds to it; ``run_due`` blocks and may run on another thread."""

    def __init__(self, fs: FileSystem) -> None:
        self._fs = fs
        self._queue: list[tuple[float, int, Callable[[], None]]] = []
        self._added = 0

    def __len__(self) -> int:
        return len(self._queue)

    def add_segments(self, segments: Iterable[LogSegment], due_ms: float) -> None:
        for segment in segments:
            self._add(due_ms, segment.remove_files)

    def add_directory(self, path: str, due_ms: float) -> None:
        self._add(due_ms, lambda: self._fs.remove_tree(path))

    def _add(self, due_ms: float, remove: Callable[[], None]) -> None:
        self._added += 1
        heapq.heappush(self._queue, (due_ms, self._added, remove))

    @property
    def next_due_ms(self) -> float | None:
        return self._queue[0][0] if self._queue else None

    def run_due(self, now_ms: float) -> int:
        """Unlink everything due and return how many; an OSError passes through and is not retried."""
        count = 0
        while self._queue and self._queue[0][0] <= now_ms:
            heapq.heappop(self._queue)[2]()
            count += 1
        return count


class UnsyncedRemovals:
    """The removed logs, by directory, whose renamed directories and checkpoints are not on the disk yet.

    One fsync of the directory serves many removals. A crash before it may bring the logs back; the metadata decide
    about them again at the next start.
    """

    def __init__(self, fs: FileSystem, write_checkpoints: Callable[[LogDir], None], on_directory: OnDirectory) -> None:
        self._fs = fs
        self._write_checkpoints = write_checkpoints
        self._on_directory = on_directory
        self._partitions: dict[str, set[TopicPartition]] = {}
        self._directories: dict[str, LogDir] = {}

    def __contains__(self, partition: TopicPartition) -> bool:
        """Whether a log of the partition was removed and a crash may still undo that."""
        return any(partition in partitions for partitions in self._partitions.values())

    def add(self, directory: LogDir, partition: TopicPartition) -> None:
        self._directories[directory.path] = directory
        self._partitions.setdefault(directory.path, set()).add(partition)

    def sync(self) -> None:
        """Make all removals so far durable: the names, and checkpoints without the removed logs. Blocks."""
        directories = list(self._directories.values())
        self._partitions, self._directories = {}, {}
        for directory in directories:
            if directory.is_online:
                self._on_directory(directory, self._sync_in)

    def _sync_in(self, directory: LogDir) -> None:
        self._fs.sync_directory(directory.path)
        self._write_checkpoints(directory)
