"""A process that also runs coroutines: the simulated loop is the running loop during its callbacks."""

import asyncio
import inspect
from collections.abc import Coroutine
from typing import Any, cast

from tests.simulation.world import Process, World


class TaskProcess(Process):
    """A process whose tasks end when it dies."""

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
        """Run a coroutine; its exception propagates through the event in which it is raised."""
        task = asyncio.Task(work, loop=cast(asyncio.AbstractEventLoop, self))
        self._tasks[task] = work
        task.add_done_callback(self._on_done)

    def die(self) -> None:
        """Close all coroutines now, since garbage collection would close them at an arbitrary moment."""
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
