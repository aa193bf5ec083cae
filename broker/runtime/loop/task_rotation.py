"""Many that have something to do now and then, and a few hands: everybody gets turns, nobody keeps a hand for long.

Whoever is due first has the next turn. One that wants another turn at once queues behind those that were due before it,
so that ten partitions with slow uploads do not keep all others waiting. A turn that raises ends everything: what can go
wrong in a turn is for the turn to know.
"""

import asyncio
import heapq
from collections.abc import Callable
from typing import Protocol


class Turn(Protocol):
    """Compared by identity."""

    async def take(self) -> float | None:
        """Do a piece of work; in how many milliseconds to be called again (0: as soon as others had their turn), or
        None for never."""
        ...


class Turns:
    """`width` is how many turns may be under way at once; it is asked every time."""

    def __init__(self, loop: asyncio.AbstractEventLoop, width: Callable[[], int]) -> None:
        self._loop = loop
        self._width = width
        self._queue: list[tuple[float, int, Turn]] = []
        self._pending: dict[Turn, tuple[float, int]] = {}
        self._count = 0
        self._running: dict[Turn, asyncio.Task[None]] = {}
        self._again_s: dict[Turn, float] = {}
        self._group: asyncio.TaskGroup | None = None
        self._timer: asyncio.TimerHandle | None = None

    async def run(self) -> None:
        """Give turns, until cancelled or until one raises."""
        try:
            async with asyncio.TaskGroup() as group:
                self._group = group
                self._go_on()
                await self._loop.create_future()
        finally:
            self._group = None
            if self._timer is not None:
                self._timer.cancel()

    def call(self, turn: Turn, delay_ms: float = 0.0) -> None:
        """Give `turn` a turn in a while, or sooner if it had one coming. One that is under way gets another."""
        due_s = self._loop.time() + delay_ms / 1000
        if turn in self._running:
            self._again_s[turn] = min(due_s, self._again_s.get(turn, due_s))
            return
        if turn in self._pending and self._pending[turn][0] <= due_s:
            return
        self._count += 1
        self._pending[turn] = (due_s, self._count)
        heapq.heappush(self._queue, (due_s, self._count, turn))
        self._go_on()

    def forget(self, turn: Turn) -> None:
        """Give it no turn any more; one that is under way comes to its end."""
        self._pending.pop(turn, None)
        self._again_s.pop(turn, None)

    def is_expected(self, turn: Turn) -> bool:
        """Whether it has a turn, or has one coming."""
        return turn in self._running or turn in self._pending

    async def until_idle(self) -> None:
        """Begin no turns any more, and return when none is under way."""
        self._group = None
        while self._running:
            await asyncio.wait(list(self._running.values()))

    def _go_on(self) -> None:
        """Begin what is due, and come back when the next one is."""
        if self._group is None:
            return
        now_s = self._loop.time()
        while self._queue and (self._is_stale() or (self._queue[0][0] <= now_s and len(self._running) < self._width())):
            due_s, number, turn = heapq.heappop(self._queue)
            if self._pending.get(turn) == (due_s, number):
                del self._pending[turn]
                self._running[turn] = self._group.create_task(self._give(turn))
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._queue and self._queue[0][0] > now_s:
            self._timer = self._loop.call_at(self._queue[0][0], self._go_on)

    def _is_stale(self) -> bool:
        """Whether the head of the queue was called again since, or is forgotten."""
        due_s, number, turn = self._queue[0]
        return self._pending.get(turn) != (due_s, number)

    async def _give(self, turn: Turn) -> None:
        try:
            delay_ms = await turn.take()
        finally:
            del self._running[turn]
        again_s = self._again_s.pop(turn, None)
        if again_s is not None:
            wanted_ms = max(0.0, (again_s - self._loop.time()) * 1000)
            delay_ms = wanted_ms if delay_ms is None else min(wanted_ms, delay_ms)
        if delay_ms is not None:
            self.call(turn, delay_ms)
        else:
            self._go_on()
