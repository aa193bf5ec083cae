"""Bounded retries of store requests with exponential backoff, longest while the store throttles.

Independent of the store; time, waiting and randomness are passed in.
"""

from collections.abc import Callable
from random import Random
from typing import TypeVar

from protocol.lazy_dataclass import lazy_dataclass
from storage.tiered.errors import StoreThrottled, StoreUnavailable

T = TypeVar("T")


@lazy_dataclass(frozen=True, slots=True, kw_only=True)
class RetryLimits:
    """Limits of retries. No attempt begins after `call_timeout_ms`; a running attempt is not interrupted."""

    max_attempts: int
    call_timeout_ms: int | None = None
    backoff_ms: int = 100
    throttled_backoff_ms: int = 1_000
    max_backoff_ms: int = 10_000

    def delay_ms(self, failures: int, error: StoreUnavailable, chance: float) -> float:
        """Return the delay after `failures`: doubled each time, between half of that and all of it."""
        first = self.throttled_backoff_ms if isinstance(error, StoreThrottled) else self.backoff_ms
        return min(self.max_backoff_ms, first * (1 << (failures - 1))) * (0.5 + chance / 2)


@lazy_dataclass(frozen=True, slots=True)
class Retries:
    """Retry policy. `wait` takes seconds and returns whether to give up."""

    limits: RetryLimits
    monotonic_ms: Callable[[], float]
    wait: Callable[[float], bool]
    random: Random

    def call(self, attempt: Callable[[], T]) -> T:
        """Return the result of `attempt`, or raise its last StoreUnavailable; other errors are raised at once."""
        attempts = self.begin()
        while True:
            try:
                return attempt()
            except StoreUnavailable as error:
                if not attempts.may_go_on(error):
                    raise

    def begin(self) -> "Attempts":
        """Start a sequence of attempts for a caller with its own loop."""
        return Attempts(self)


class Attempts:
    """Attempts at one operation."""

    def __init__(self, retries: Retries) -> None:
        self._retries = retries
        self._began_ms = retries.monotonic_ms()
        self._failures = 0

    def may_go_on(self, error: StoreUnavailable) -> bool:
        """Count a failure; return whether another attempt is due, after waiting for it."""
        retries, limits = self._retries, self._retries.limits
        self._failures += 1
        if self._failures >= limits.max_attempts:
            return False
        delay_ms = limits.delay_ms(self._failures, error, retries.random.random())
        timeout_ms = limits.call_timeout_ms
        if timeout_ms is not None and retries.monotonic_ms() + delay_ms - self._began_ms >= timeout_ms:
            return False
        return not retries.wait(delay_ms / 1000)
