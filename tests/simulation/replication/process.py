"""A process that also runs coroutines: the simulated loop poses as the running one while its callbacks run."""

import asyncio
import inspect
from collections.abc import Coroutine
from typing import Any, cast

from tests.simulation.world import Process, World


class TaskProcess(Process):
    """Its tasks die with it, wherever they are."""

    def __init__(self, world: World, node_id: int, *, rate: float = 1.0, wall_offset_ms: int = 0) -> None:
        super().__init__(world, node_id, rate=rate, wall_offset_ms=wall_offset_ms)
        self._tasks: dict[asyncio.Task[None], Coroutine[Any, Any, None]] = {}

    def run_soon(self) -> None:
        asyncio._set_running_loop(cast(asyncio.AbstractEventLoop, self))
        try:
            super().run_soon()
        finally:
            asyncio._set_running_loop(None)

    def spawn(self, work: Coroutine[Any, Any, None]) -> None:
        """Run a coroutine; what it raises passes through the event in which it does."""
        task = asyncio.Task(work, loop=cast(asyncio.AbstractEventLoop, self))
        self._tasks[task] = work
        task.add_done_callback(self._on_done)

    def die(self) -> None:
        """Coroutines are closed here and now: left to the garbage collector, they would be at any moment."""
        super().die()
        tasks, self._tasks = self._tasks, {}
        for work in tasks.values():
            if inspect.getcoroutinestate(work) != inspect.CORO_RUNNING:
                work.close()

    def _on_done(self, task: "asyncio.Task[None]") -> None:
        self._tasks.pop(task, None)
        if not task.cancelled():
            error = task.exception()
            if error is not None:
                raise error
