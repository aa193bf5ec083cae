"""Deleted files that wait for their delay before they are unlinked: segments, and whole directories.

The delay lets readers of a segment finish (file.delete.delay.ms, log.segment.delete.delay.ms). The queue is in memory:
the suffix of leftover files makes the next start remove them.
"""

import heapq
from collections.abc import Callable, Iterable

from storage.files import FileSystem
from storage.segment import LogSegment


class PendingRemovals:
    """A queue of removals. The log's thread adds to it; ``run_due`` blocks and may run on another thread."""

    def __init__(self, fs: FileSystem) -> None:
        self._fs = fs
        self._queue: list[tuple[int, int, Callable[[], None]]] = []
        self._added = 0

    def __len__(self) -> int:
        return len(self._queue)

    def add_segments(self, segments: Iterable[LogSegment], due_ms: int) -> None:
        for segment in segments:
            self._add(due_ms, segment.remove_files)

    def add_directory(self, path: str, due_ms: int) -> None:
        self._add(due_ms, lambda: self._fs.remove_tree(path))

    def _add(self, due_ms: int, remove: Callable[[], None]) -> None:
        self._added += 1
        heapq.heappush(self._queue, (due_ms, self._added, remove))

    @property
    def next_due_ms(self) -> int | None:
        return self._queue[0][0] if self._queue else None

    def run_due(self, now_ms: int) -> int:
        """Unlink everything due and return how many; an OSError passes through and is not retried."""
        count = 0
        while self._queue and self._queue[0][0] <= now_ms:
            heapq.heappop(self._queue)[2]()
            count += 1
        return count
