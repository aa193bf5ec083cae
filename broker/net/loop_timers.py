"""The part of an event loop that connections use."""

from collections.abc import Callable
from typing import Protocol


class EventLoopTimers(Protocol):
    """The part of an event loop that runs callbacks later."""

    def call_soon(self, callback: Callable[[], object]) -> object:
        """Run `callback` in the next turn of the loop."""
        ...

    def call_later(self, delay: float, callback: Callable[[], object]) -> object:
        """Run `callback` after `delay` seconds."""
        ...
