"""Results that follow a future of the event loop without a task."""

import asyncio
import contextlib
from collections.abc import Callable, Generator
from typing import Any, Generic, TypeVar

from broker.direct_future import DirectFuture
from protocol.errors import KafkaError

R = TypeVar("R")


class PendingResult(Generic[R]):
    """A result that `take` returns or refuses with a KafkaError, once `future` is done.

    An await takes a task; a callback of `future` does not.
    """

    __slots__ = ("future", "take")

    def __init__(self, future: asyncio.Future[Any], take: Callable[[asyncio.Future[Any]], R]) -> None:
        self.future = future
        self.take = take

    def __await__(self) -> Generator[Any, None, R]:
        with contextlib.suppress(KafkaError):
            yield from self.future.__await__()
        return self.take(self.future)


class FollowingFuture(DirectFuture[R]):
    """A future whose result is made of that of `source`. Its cancellation cancels `source`, too."""

    def __init__(self, source: asyncio.Future[Any]) -> None:
        super().__init__(loop=source.get_loop())
        self._source = source

    def cancel(self, msg: Any | None = None) -> bool:
        """Cancel both."""
        self._source.cancel(msg)
        return super().cancel(msg)
