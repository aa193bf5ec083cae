"""An asyncio event loop without waiting: when nothing is ready, its clock jumps to the next timer."""

import asyncio
import selectors
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")

BREATH_S = 0.01
"""Real time for work outside of the loop, when the loop has neither ready callbacks nor timers."""


class _Selector(selectors.DefaultSelector):
    """A selector that returns ready files at once and adds up the skipped waiting time."""

    def __init__(self) -> None:
        super().__init__()
        self.skipped_s = 0.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if timeout is None:
            return super().select(BREATH_S)
        self.skipped_s += max(timeout, 0.0)
        return super().select(0)


class FastForwardLoop(asyncio.SelectorEventLoop):
    """A loop whose timers fire in order, without waiting."""

    def __init__(self) -> None:
        self._fast = _Selector()
        super().__init__(self._fast)

    def time(self) -> float:
        return 1000.0 + self._fast.skipped_s


def run_fast(main: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine on such a loop, like `asyncio.run`."""
    with asyncio.Runner(loop_factory=FastForwardLoop) as runner:
        return runner.run(main)
