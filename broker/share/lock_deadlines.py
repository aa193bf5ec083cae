"""Deadlines of acquisitions, in a heap without removal: an entry whose records have changed since is skipped."""

import heapq
from collections.abc import Iterable, Iterator
from typing import Final

from broker.share.in_flight import Run
from broker.share.records import OffsetSpan, RecordState

_REBUILD_FLOOR: Final = 64


class LockDeadlines:
    """The offsets that may have to be released, by time in ms."""

    __slots__ = ("_heap",)

    def __init__(self) -> None:
        self._heap: list[tuple[float, int, int]] = []

    @property
    def next_ms(self) -> float | None:
        """The earliest time at which a lock may elapse."""
        return self._heap[0][0] if self._heap else None

    def add(self, run: Run) -> None:
        """Note the deadline of acquired records."""
        heapq.heappush(self._heap, (run.deadline_ms, run.first, run.last))

    def due(self, now_ms: float) -> Iterator[OffsetSpan]:
        """Remove and return the offsets whose time is over."""
        while self._heap and self._heap[0][0] <= now_ms:
            _, first, last = heapq.heappop(self._heap)
            yield OffsetSpan(first, last)

    def trim(self, runs: Iterable[Run], run_count: int) -> None:
        """Forget outdated entries where most are outdated."""
        if len(self._heap) > 2 * run_count + _REBUILD_FLOOR:
            held = [run for run in runs if run.transition is not None or run.state is RecordState.ACQUIRED]
            self._heap = [(run.deadline_ms, run.first, run.last) for run in held]
            heapq.heapify(self._heap)
