"""How long to wait after a failure: twice as long each time, up to a limit, and never quite the same.

`remote.log.manager.task.retry.backoff.ms`, `.backoff.max.ms` and `.jitter` (KIP-405, "RLM/RSM tasks").
"""

from collections.abc import Callable
from typing import NamedTuple

_MOST_DOUBLINGS = 40
"""Longer than any limit; powers beyond would only be large numbers."""


class Backoff(NamedTuple):
    """`jitter` is the part of a wait that is random: with 0.2, from 80 % to 120 % of it."""

    initial_ms: int
    max_ms: int
    jitter: float

    def delay_ms(self, failures: int, random: Callable[[], float]) -> float:
        """After so many failures in a row; 0 after none. `random()` draws from [0, 1)."""
        if not failures:
            return 0.0
        wait_ms = min(self.max_ms, self.initial_ms << min(failures - 1, _MOST_DOUBLINGS))
        return wait_ms * (1 + self.jitter * (2 * random() - 1))


class Failures:
    """Those of one task in a row."""

    __slots__ = ("count",)

    def __init__(self) -> None:
        self.count = 0

    def next_delay_ms(self, backoff: Backoff, random: Callable[[], float]) -> float:
        """It failed once more; how long to wait."""
        self.count += 1
        return backoff.delay_ms(self.count, random)

    def clear(self) -> None:
        """It went well."""
        self.count = 0
