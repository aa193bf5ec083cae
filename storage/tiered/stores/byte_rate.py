"""Rate limit in bytes per second, shared by threads in order of arrival (KIP-956).

A token bucket that may go into debt: a caller that finds any tokens takes its whole amount, and the next one waits
until the debt is paid. So amounts above the rate pass without being split. Idle time fills the bucket up to the sum of
the windows of Kafka's quota.
"""

import threading
from collections import deque
from collections.abc import Callable


class WaitCancelled(Exception):
    """The wait for the rate limit was cancelled."""


class TokenBucket:
    """Token arithmetic. Times are in milliseconds and monotonic. The bucket starts full."""

    def __init__(self, bytes_per_second: int, window_ms: int, now_ms: float) -> None:
        assert bytes_per_second > 0, "a rate of zero would block every caller"
        assert window_ms > 0, "the bucket needs a capacity"
        self.bytes_per_second = bytes_per_second
        self._window_ms = window_ms
        self._updated_ms = now_ms
        self._tokens = self._capacity

    @property
    def _capacity(self) -> float:
        return self.bytes_per_second * self._window_ms / 1000

    def delay_ms(self, now_ms: float) -> float:
        """Return the time until there are tokens; 0 if there are some."""
        self._fill(now_ms)
        return max(0.0, (1 - self._tokens) * 1000 / self.bytes_per_second)

    def take(self, amount: int, now_ms: float) -> None:
        """Take tokens, even if there are none."""
        self._fill(now_ms)
        self._tokens -= amount

    def change(self, bytes_per_second: int, now_ms: float) -> None:
        """Change the rate. A debt keeps its number of bytes."""
        assert bytes_per_second > 0, "a rate of zero would block every caller"
        self._fill(now_ms)
        self.bytes_per_second = bytes_per_second
        self._tokens = min(self._tokens, self._capacity)

    def _fill(self, now_ms: float) -> None:
        earned = max(0.0, now_ms - self._updated_ms) * self.bytes_per_second / 1000
        self._tokens = min(self._capacity, self._tokens + earned)
        self._updated_ms = max(self._updated_ms, now_ms)


class ByteRate:
    """A token bucket that threads wait for in order of arrival."""

    def __init__(self, bytes_per_second: int, window_ms: int, monotonic_ms: Callable[[], float]) -> None:
        """`window_ms` is the sum of all windows: the idle time that a burst can use."""
        self._monotonic_ms = monotonic_ms
        self._bucket = TokenBucket(bytes_per_second, window_ms, monotonic_ms())
        self._changed = threading.Condition()
        self._waiting: deque[object] = deque()

    def acquire(self, amount: int, is_cancelled: Callable[[], bool] = lambda: False) -> float:
        """Wait for this caller's turn and take `amount`; return the wait in milliseconds.

        `is_cancelled` is called before and after each wait; `wake` triggers a call. Raises WaitCancelled.
        """
        turn = object()
        with self._changed:
            began_ms = self._monotonic_ms()
            self._waiting.append(turn)
            try:
                self._wait_for(turn, is_cancelled)
                self._bucket.take(amount, self._monotonic_ms())
            finally:
                self._waiting.remove(turn)
                self._changed.notify_all()
            return self._monotonic_ms() - began_ms

    def _wait_for(self, turn: object, is_cancelled: Callable[[], bool]) -> None:
        while True:
            if is_cancelled():
                raise WaitCancelled
            if self._waiting[0] is not turn:
                self._changed.wait()
            elif delay_ms := self._bucket.delay_ms(self._monotonic_ms()):
                self._changed.wait(delay_ms / 1000)
            else:
                return

    def wake(self) -> None:
        """Make all waiting callers check the clock and their cancellation again."""
        with self._changed:
            self._changed.notify_all()
