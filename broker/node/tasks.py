"""Background tasks of a node, and the two events that end it: a failure, or a request to stop."""

import asyncio
from collections.abc import Coroutine
from typing import Any

from broker.logs import EventLog

_log = EventLog("ottla")


class StopRequested(Exception):
    """The node was requested to stop while it waited for an event."""


class NodeTasks:
    """Runs the node's background tasks. The first failure of a task or callback stops the node.

    The caller sets `stop_requested`, the event given to the constructor.
    """

    def __init__(
        self, group: asyncio.TaskGroup, stop_requested: asyncio.Event, loop: asyncio.AbstractEventLoop
    ) -> None:
        self._group = group
        self._stop_requested = stop_requested
        self._failure: asyncio.Future[None] = loop.create_future()
        self._running: set[asyncio.Task[None]] = set()
        loop.set_exception_handler(self._on_loop_error)

    @property
    def has_failed(self) -> bool:
        return self._failure.done()

    def spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Run a background task until it ends or the node stops."""
        task = self._group.create_task(work)
        self._running.add(task)
        task.add_done_callback(self._on_ended)
        return task

    def fail(self, error: BaseException) -> None:
        """Stop the node with `error`, unless the node has failed already."""
        if not self._failure.done():
            self._failure.set_exception(error)
            self._failure.exception()  # Mark as retrieved: a task that waits for it may have been cancelled already.

    async def wait_for(self, awaited: Coroutine[Any, Any, Any]) -> None:
        """Await `awaited`. Raise the node's failure or StopRequested if one of them comes first."""
        task, stop = asyncio.ensure_future(awaited), asyncio.ensure_future(self._stop_requested.wait())
        try:
            await asyncio.wait({task, stop, self._failure}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            task.cancel()
            stop.cancel()
        if self._failure.done():
            self._failure.result()
        if not task.done():
            raise StopRequested
        task.result()

    async def wait_for_stop(self) -> None:
        """Return when the node is requested to stop. Raise the node's failure."""
        await self.wait_for(self._stop_requested.wait())

    async def cancel_all(self) -> None:
        """Cancel every background task and wait for its end. The task group would wait forever for endless tasks."""
        for task in tuple(self._running):
            task.cancel()
        await asyncio.gather(*self._running, return_exceptions=True)

    def close(self) -> None:
        """Release tasks that wait for a failure."""
        if not self._failure.done():
            self._failure.cancel()

    def _on_ended(self, task: asyncio.Task[None]) -> None:
        """Stop the node when the task failed: the group cancels all other tasks, so no caller may wait for them."""
        self._running.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            _log.error("Background task failed; stopping the node", _first_of(error))
            self.fail(error)

    def _on_loop_error(self, _loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        """Handle an exception of a callback. In a transport it costs one connection, elsewhere it stops the node."""
        error = context.get("exception")
        if error is None or "transport" in context or "protocol" in context:
            _log.warning("Event loop reports an error", reason=context.get("message"), error=error)
        else:
            _log.error("Callback failed; stopping the node", error)
            self.fail(error)


def _first_of(error: BaseException) -> BaseException:
    """Return the first error of nested groups of task failures."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error
