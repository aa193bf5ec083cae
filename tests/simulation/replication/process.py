"""A process that also runs coroutines: the simulated loop is the running loop during its callbacks."""

import asyncio
import inspect
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar, cast

from tests.simulation.world import Process, SimulatedIo, World

T = TypeVar("T")


class TaskProcess(Process):
    """A process whose tasks end when it dies."""

    def __init__(self, world: World, node_id: int, *, rate: float = 1.0, wall_offset_ms: int = 0) -> None:
        super().__init__(world, node_id, rate=rate, wall_offset_ms=wall_offset_ms)
        self._tasks: dict[asyncio.Task[Any], Coroutine[Any, Any, Any]] = {}

    def run(self, callback: Callable[..., object], *args: object) -> None:
        with self._as_running_loop():
            callback(*args)
            super().run_soon()

    def step_wall_clock(self, step_ms: int) -> None:
        """Set the wall clock forward or back; the monotonic clock continues."""
        self._wall_offset_ms += step_ms

    def run_soon(self) -> None:
        with self._as_running_loop():
            super().run_soon()

    @contextmanager
    def _as_running_loop(self) -> Iterator[None]:
        outer = asyncio._get_running_loop()
        asyncio._set_running_loop(cast(asyncio.AbstractEventLoop, self))
        try:
            yield
        finally:
            asyncio._set_running_loop(outer)

    def spawn(self, work: Coroutine[Any, Any, None]) -> None:
        """Run a coroutine; its exception propagates through the event in which it is raised."""
        task = asyncio.Task(work, loop=cast(asyncio.AbstractEventLoop, self))
        self._tasks[task] = work
        task.add_done_callback(self._on_done)

    def create_task(self, work: Coroutine[Any, Any, Any], **_: object) -> "asyncio.Task[Any]":
        """Run a coroutine for `asyncio.ensure_future` and task groups; the awaiting caller gets its exception."""
        task = asyncio.Task(work, loop=cast(asyncio.AbstractEventLoop, self))
        self._tasks[task] = work
        task.add_done_callback(self._forget)
        return task

    def adopt(self, task: "asyncio.Task[Any]") -> None:
        """Let the process end a task that others have created on it."""
        work = task.get_coro()
        assert isinstance(work, Coroutine)
        self._tasks[task] = work
        task.add_done_callback(self._forget)

    def die(self) -> None:
        """Close all coroutines now, since garbage collection would close them at an arbitrary moment."""
        super().die()
        tasks, self._tasks = self._tasks, {}
        for work in tasks.values():
            if not _is_running(work):
                work.close()

    def _forget(self, task: "asyncio.Task[Any]") -> None:
        self._tasks.pop(task, None)

    def _on_done(self, task: "asyncio.Task[None]") -> None:
        self._tasks.pop(task, None)
        if not task.cancelled():
            error = task.exception()
            if error is not None:
                raise error


class StallingIo(SimulatedIo):
    """File work that waits until `stalled_until_ms`, in order."""

    stalled_until_ms = 0.0

    def submit(self, work: Callable[[], T]) -> "asyncio.Future[T]":
        inline_share = self._inline_share
        if self._process.world.now_ms < self.stalled_until_ms:
            self._inline_share = 0.0
        try:
            return super().submit(work)
        finally:
            self._inline_share = inline_share

    def _schedule(self) -> None:
        remaining_ms = self.stalled_until_ms - self._process.world.now_ms
        if remaining_ms > 0:
            self._process.world.schedule(remaining_ms, super()._schedule, process=self._process)
        else:
            super()._schedule()


def _is_running(work: Coroutine[Any, Any, Any]) -> bool:
    """Whether a coroutine is on the stack. `inspect` cannot tell for compiled ones; none of these ends its process."""
    return inspect.iscoroutine(work) and inspect.getcoroutinestate(work) == inspect.CORO_RUNNING
