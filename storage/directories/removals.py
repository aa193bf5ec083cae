"""Files that are out of use and wait for their delay before they are unlinked: segments, and whole directories.

The delay lets readers that still hold a segment finish (file.delete.delay.ms, log.segment.delete.delay.ms). The queue
is not kept: what a stop leaves bears a suffix by which the next start removes it.
"""

import heapq
from collections.abc import Callable, Iterable

from storage.files import FileSystem
from storage.segment import LogSegment


class PendingRemovals:
    """Additions come from the log's thread; ``run_due`` may run on another, and does the blocking part."""

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
        """Unlinks what is due; says how many. An OSError passes through; what failed is not tried again."""
        count = 0
        while self._queue and self._queue[0][0] <= now_ms:
            heapq.heappop(self._queue)[2]()
            count += 1
        return count
