"""When to ask a store again, and how long to wait before: bounded, longer each time, longest where it is throttling.

Knows no store. Time, waiting and chance are passed in.
"""

from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import TypeVar

from storage.tiered.errors import StoreThrottled, StoreUnavailable

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryLimits:
    """`call_timeout_ms` is for all attempts together: after it none begins; one that runs is not cut short."""

    max_attempts: int
    call_timeout_ms: int | None = None
    backoff_ms: int = 100
    throttled_backoff_ms: int = 1_000
    max_backoff_ms: int = 10_000

    def delay_ms(self, failures: int, error: StoreUnavailable, chance: float) -> float:
        """How long to wait after that many failures: doubled each time, and between half of that and all of it."""
        first = self.throttled_backoff_ms if isinstance(error, StoreThrottled) else self.backoff_ms
        return min(self.max_backoff_ms, first * (1 << (failures - 1))) * (0.5 + chance / 2)


@dataclass(frozen=True, slots=True)
class Retries:
    """`wait` takes seconds and tells whether to give up, because nobody wants the answer any more."""

    limits: RetryLimits
    monotonic_ms: Callable[[], float]
    wait: Callable[[float], bool]
    random: Random

    def call(self, attempt: Callable[[], T]) -> T:
        """What `attempt` returns, or the StoreUnavailable of its last time; any other error goes through at once."""
        began_ms = self.monotonic_ms()
        failures = 0
        while True:
            try:
                return attempt()
            except StoreUnavailable as error:
                failures += 1
                if not self._try_again(failures, error, began_ms):
                    raise

    def _try_again(self, failures: int, error: StoreUnavailable, began_ms: float) -> bool:
        if failures >= self.limits.max_attempts:
            return False
        delay_ms = self.limits.delay_ms(failures, error, self.random.random())
        timeout_ms = self.limits.call_timeout_ms
        if timeout_ms is not None and self.monotonic_ms() + delay_ms - began_ms >= timeout_ms:
            return False
        return not self.wait(delay_ms / 1000)
