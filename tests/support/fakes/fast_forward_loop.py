"""An asyncio event loop without waiting: where nothing is ready, its clock jumps to the next timer."""

import asyncio
import selectors
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")

BREATH_S = 0.01
"""Real time given to what moves outside of the loop when the loop has neither work nor a timer."""


class _Selector(selectors.DefaultSelector):
    """Tells of what is ready, and counts the time it would have waited."""

    def __init__(self) -> None:
        super().__init__()
        self.skipped_s = 0.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if timeout is None:
            return super().select(BREATH_S)
        self.skipped_s += max(timeout, 0.0)
        return super().select(0)


class FastForwardLoop(asyncio.SelectorEventLoop):
    """Timers ring in order, at once."""

    def __init__(self) -> None:
        self._fast = _Selector()
        super().__init__(self._fast)

    def time(self) -> float:
        return 1000.0 + self._fast.skipped_s


def run_fast(main: Coroutine[Any, Any, T]) -> T:
    """`asyncio.run` on such a loop."""
    with asyncio.Runner(loop_factory=FastForwardLoop) as runner:
        return runner.run(main)
