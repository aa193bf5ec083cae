"""A future of the event loop whose consumer continues at once, not in the next turn of the loop.

A busy loop reads all sockets that are ready between two turns. A response that passes two futures in turn waits for all
of them twice.
"""

import asyncio
from collections.abc import Callable
from typing import Any, TypeVar

R = TypeVar("R")


class DirectFuture(asyncio.Future[R]):
    """A future with one consumer that runs inside `set_result`, and in the next turn after an error or a cancellation.

    The consumer runs in the middle of the work of whoever sets the result. It may hand the result on, and begins no
    other work. Its own errors go to the handler of the loop.
    """

    _consume: Callable[[asyncio.Future[R]], object] | None = None
    _on_cancelled: Callable[[], object] | None = None

    def when_done(self, consume: Callable[[asyncio.Future[R]], object]) -> None:
        """Call `consume` with this future, once, when it is done; in the next turn if it is done already."""
        if self.done():
            self.get_loop().call_soon(consume, self)
        else:
            self._consume = consume

    def when_cancelled(self, callback: Callable[[], object]) -> None:
        """Call `callback` in the turn after a cancellation."""
        self._on_cancelled = callback

    def set_result(self, result: R, /) -> None:
        """Set the result, and call the consumer."""
        super().set_result(result)
        consume = self._consume
        if consume is not None:
            self._consume = self._on_cancelled = None
            try:
                consume(self)
            except Exception as error:  # noqa: BLE001  reported as that of any callback
                context = {"message": "the consumer of a result failed", "exception": error, "future": self}
                self.get_loop().call_exception_handler(context)

    def set_exception(self, exception: type | BaseException, /) -> None:
        """Set the error; the consumer is called in the next turn."""
        super().set_exception(exception)
        self._consume_later()

    def cancel(self, msg: Any | None = None) -> bool:
        """Cancel; the consumer is called in the next turn."""
        if not super().cancel(msg):
            return False
        if self._on_cancelled is not None:
            self.get_loop().call_soon(self._on_cancelled)
        self._consume_later()
        return True

    def _consume_later(self) -> None:
        consume, self._consume, self._on_cancelled = self._consume, None, None
        if consume is not None:
            self.get_loop().call_soon(consume, self)


def direct_future(loop: Any) -> DirectFuture[Any]:
    """Return a new future of an asyncio loop, or of a simulated one."""
    return DirectFuture(loop=loop)


def when_done(future: asyncio.Future[R], consume: Callable[[asyncio.Future[R]], object]) -> None:
    """Call `consume` with the future when it is done: inside `set_result` if the future is direct."""
    if isinstance(future, DirectFuture):
        future.when_done(consume)
    else:
        future.add_done_callback(consume)
