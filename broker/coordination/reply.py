"""The reply to a parked request."""

from collections.abc import Callable
from typing import Generic, TypeVar

T = TypeVar("T")


class Reply(Generic[T]):
    """The reply to one request; delivers the first response and ignores any later one.

    A coordinator parks replies for minutes (a JoinGroup waits for all other members), so a reply is plain data that a
    member holds, and the core needs no futures.
    """

    __slots__ = ("_deliver",)

    def __init__(self, deliver: Callable[[T], None]) -> None:
        self._deliver: Callable[[T], None] | None = deliver

    @property
    def is_open(self) -> bool:
        """Whether no response has been given yet."""
        return self._deliver is not None

    def complete(self, answer: T) -> bool:
        """Deliver the response. Return False when there was one before."""
        if self._deliver is None:
            return False
        deliver, self._deliver = self._deliver, None
        deliver(answer)
        return True
