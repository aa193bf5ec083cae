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
        attempts = self.begin()
        while True:
            try:
                return attempt()
            except StoreUnavailable as error:
                if not attempts.may_go_on(error):
                    raise

    def begin(self) -> "Attempts":
        """For who attempts in a way of its own."""
        return Attempts(self)


class Attempts:
    """Of one thing that may fail several times."""

    def __init__(self, retries: Retries) -> None:
        self._retries = retries
        self._began_ms = retries.monotonic_ms()
        self._failures = 0

    def may_go_on(self, error: StoreUnavailable) -> bool:
        """After a failure: whether there is another attempt, for which the time has come when this returns."""
        retries, limits = self._retries, self._retries.limits
        self._failures += 1
        if self._failures >= limits.max_attempts:
            return False
        delay_ms = limits.delay_ms(self._failures, error, retries.random.random())
        timeout_ms = limits.call_timeout_ms
        if timeout_ms is not None and retries.monotonic_ms() + delay_ms - self._began_ms >= timeout_ms:
            return False
        return not retries.wait(delay_ms / 1000)
