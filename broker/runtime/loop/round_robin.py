"""Round-robin scheduling of many recurring tasks on a bounded number of concurrent runs.

The task with the earliest due time runs first. A task that is due again at once queues behind the tasks that were due
before it, so ten partitions with slow uploads do not hold up all others. A task must handle its expected failures: an
exception out of `run_once` ends the scheduler.
"""

import asyncio
import heapq
from collections.abc import Callable
from typing import Protocol


class RecurringTask(Protocol):
    """Compared by identity."""

    async def run_once(self) -> float | None:
        """Do one step of work.

        Return the delay in ms until the next step, or None for no further step. A delay of 0 lets due tasks run first.
        """
        ...


class RoundRobinScheduler:
    """Runs up to `width()` tasks at once; the width is read before each start."""

    def __init__(self, loop: asyncio.AbstractEventLoop, width: Callable[[], int]) -> None:
        self._loop = loop
        self._width = width
        self._queue: list[tuple[float, int, RecurringTask]] = []
        self._pending: dict[RecurringTask, tuple[float, int]] = {}
        self._count = 0
        self._running: dict[RecurringTask, asyncio.Task[None]] = {}
        self._rerun_at_s: dict[RecurringTask, float] = {}
        self._group: asyncio.TaskGroup | None = None
        self._timer: asyncio.TimerHandle | None = None

    async def run(self) -> None:
        """Run tasks until cancelled or until a task raises."""
        try:
            async with asyncio.TaskGroup() as group:
                self._group = group
                self._start_due()
                await self._loop.create_future()
        finally:
            self._group = None
            if self._timer is not None:
                self._timer.cancel()

    def schedule(self, task: RecurringTask, delay_ms: float = 0.0) -> None:
        """Run `task` after the delay, or earlier if it is already due earlier. A running task runs once more."""
        due_s = self._loop.time() + delay_ms / 1000
        if task in self._running:
            self._rerun_at_s[task] = min(due_s, self._rerun_at_s.get(task, due_s))
            return
        if task in self._pending and self._pending[task][0] <= due_s:
            return
        self._count += 1
        self._pending[task] = (due_s, self._count)
        heapq.heappush(self._queue, (due_s, self._count, task))
        self._start_due()

    def cancel(self, task: RecurringTask) -> None:
        """Drop the scheduled runs of `task`. A run in progress completes."""
        self._pending.pop(task, None)
        self._rerun_at_s.pop(task, None)

    def is_scheduled(self, task: RecurringTask) -> bool:
        """Whether `task` is running or has a scheduled run."""
        return task in self._running or task in self._pending

    async def drain(self) -> None:
        """Start no further runs, and return when all runs in progress have completed."""
        self._group = None
        while self._running:
            await asyncio.wait(list(self._running.values()))

    def _start_due(self) -> None:
        """Start due tasks, and set the timer for the next due time."""
        if self._group is None:
            return
        now_s = self._loop.time()
        while self._queue and (self._is_stale() or (self._queue[0][0] <= now_s and len(self._running) < self._width())):
            due_s, number, task = heapq.heappop(self._queue)
            if self._pending.get(task) == (due_s, number):
                del self._pending[task]
                self._running[task] = self._group.create_task(self._run_task(task))
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._queue and self._queue[0][0] > now_s:
            self._timer = self._loop.call_at(self._queue[0][0], self._start_due)

    def _is_stale(self) -> bool:
        """Whether the head of the queue was rescheduled or cancelled after it was queued."""
        due_s, number, task = self._queue[0]
        return self._pending.get(task) != (due_s, number)

    async def _run_task(self, task: RecurringTask) -> None:
        try:
            delay_ms = await task.run_once()
        finally:
            del self._running[task]
        rerun_at_s = self._rerun_at_s.pop(task, None)
        if rerun_at_s is not None:
            wanted_ms = max(0.0, (rerun_at_s - self._loop.time()) * 1000)
            delay_ms = wanted_ms if delay_ms is None else min(wanted_ms, delay_ms)
        if delay_ms is not None:
            self.schedule(task, delay_ms)
        else:
            self._start_due()
