"""Copies in progress on this broker, their bandwidth, and the turns of partitions that wait for a copy.

The bandwidth is measured over the last minutes in which a copy was in progress. Partitions over the limit
(`storage.tiered.lifecycle.copy_limit`) ask again after `PAUSE_MS`, and begin in the order of their first question.
"""

from collections import deque
from collections.abc import Callable
from typing import Final

from storage.tiered.lifecycle.copy_limit import copies_at_once
from storage.tiered.segment_metadata import TopicIdPartition

PAUSE_MS: Final = 1_000.0
WINDOW_MS: Final = 300_000.0
"""Longer than the upload of one part over a slow uplink: a part is read at once and sent slowly."""
_SAMPLE_MS: Final = 5_000.0
_PATIENCE_MS: Final = 10 * PAUSE_MS
"""Time after which a partition that no longer asks loses its turn."""


class CopyBandwidth:
    """Used on the event loop; times are in milliseconds of a monotonic clock."""

    def __init__(self) -> None:
        self._active: dict[TopicIdPartition, tuple[int, Callable[[], int]]] = {}
        self._waiting: dict[TopicIdPartition, float] = {}
        self._finished_bytes = 0
        self._busy_ms = 0.0
        self._changed_ms = 0.0
        self._samples: deque[tuple[float, int]] = deque()
        self._largest_bytes = 0

    def may_begin(self, partition: TopicIdPartition, segment_bytes: int, now_ms: float, most: int) -> bool:
        """Whether a partition may copy a segment now; if not, it asks again after `PAUSE_MS`."""
        self._waiting = {each: ms for each, ms in self._waiting.items() if now_ms - ms < _PATIENCE_MS}
        self._largest_bytes = max([segment_bytes, *(size for size, _ in self._active.values())])
        ahead = list(self._waiting).index(partition) if partition in self._waiting else len(self._waiting)
        if len(self._active) + ahead < self.limit(now_ms, most):
            self._waiting.pop(partition, None)
            return True
        self._waiting[partition] = now_ms
        return False

    def begin(self, partition: TopicIdPartition, segment_bytes: int, moved: Callable[[], int], now_ms: float) -> None:
        """Note a copy; `moved` returns the bytes that it has moved."""
        self._sample(now_ms)
        self._active[partition] = segment_bytes, moved

    def end(self, partition: TopicIdPartition, now_ms: float) -> None:
        """Note the end of a copy, if there is one."""
        self._sample(now_ms)
        _, moved = self._active.pop(partition, (0, lambda: 0))
        self._finished_bytes += moved()

    def limit(self, now_ms: float, most: int) -> int:
        """Return the number of copies at once that the bandwidth allows."""
        return copies_at_once(self.bytes_per_second(now_ms), self._largest_bytes, most)

    def bytes_per_second(self, now_ms: float) -> float | None:
        """Return the bandwidth of all copies together; None if they have not run long enough."""
        self._sample(now_ms)
        if not self._samples:
            return None
        since_ms, before = self._samples[0]
        if self._busy_ms - since_ms < _SAMPLE_MS:
            return None
        return (self._moved - before) * 1000 / (self._busy_ms - since_ms)

    @property
    def _moved(self) -> int:
        return self._finished_bytes + sum(moved() for _, moved in self._active.values())

    def _sample(self, now_ms: float) -> None:
        """Advance the busy time, and keep a sample of the bytes moved every few seconds."""
        if self._active:
            self._busy_ms += now_ms - self._changed_ms
        self._changed_ms = now_ms
        if not self._samples or self._busy_ms - self._samples[-1][0] >= _SAMPLE_MS:
            self._samples.append((self._busy_ms, self._moved))
        while len(self._samples) > 1 and self._samples[1][0] <= self._busy_ms - WINDOW_MS:
            self._samples.popleft()
