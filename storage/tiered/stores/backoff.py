"""Exponential backoff with jitter.

`remote.log.manager.task.retry.backoff.ms`, `.backoff.max.ms` and `.jitter` (KIP-405, "RLM/RSM tasks").
"""

from collections.abc import Callable
from typing import NamedTuple

_MOST_DOUBLINGS = 40
"""Maximum number of doublings; more would exceed any limit."""


class Backoff(NamedTuple):
    """Settings of a backoff. `jitter` is the random part of a delay: 0.2 varies it from 80 % to 120 %."""

    initial_ms: int
    max_ms: int
    jitter: float

    def delay_ms(self, failures: int, random: Callable[[], float]) -> float:
        """Return the delay after consecutive failures; 0 after none. `random()` draws from [0, 1)."""
        if not failures:
            return 0.0
        wait_ms = min(self.max_ms, self.initial_ms << min(failures - 1, _MOST_DOUBLINGS))
        return wait_ms * (1 + self.jitter * (2 * random() - 1))


class Failures:
    """Count of consecutive failures of one task."""

    __slots__ = ("count",)

    def __init__(self) -> None:
        self.count = 0

    def next_delay_ms(self, backoff: Backoff, random: Callable[[], float]) -> float:
        """Count a failure and return the delay before the next attempt."""
        self.count += 1
        return backoff.delay_ms(self.count, random)

    def clear(self) -> None:
        """Reset the count after a success."""
        self.count = 0
