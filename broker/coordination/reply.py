"""Where the answer to a parked request goes."""

from collections.abc import Callable
from typing import Generic, TypeVar

T = TypeVar("T")


class Reply(Generic[T]):
    """The open end of one request; takes an answer once and ignores any later one.

    A coordinator parks replies for minutes (a JoinGroup waits for all other members), so a reply is plain data that a
    member holds, and the core needs no futures.
    """

    __slots__ = ("_deliver",)

    def __init__(self, deliver: Callable[[T], None]) -> None:
        self._deliver: Callable[[T], None] | None = deliver

    @property
    def is_open(self) -> bool:
        """Whether no answer was given yet."""
        return self._deliver is not None

    def complete(self, answer: T) -> bool:
        """Answer; False when it had been answered before."""
        if self._deliver is None:
            return False
        deliver, self._deliver = self._deliver, None
        deliver(answer)
        return True
