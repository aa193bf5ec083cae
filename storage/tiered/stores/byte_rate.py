"""Bytes per second, shared by threads (KIP-956): how long to wait, who goes first, and a limit that can change.

A bucket of tokens that may run into debt: whoever finds any tokens takes what it needs, however much that is, and the
next one waits until the debt is paid. So an amount beyond the rate passes too, and nobody has to cut it up. Idle time
fills the bucket up to what the windows of Kafka's quota hold together.
"""

import threading
from collections import deque
from collections.abc import Callable


class WaitCancelled(Exception):
    """Whoever waited for its turn does not want it any more."""


class TokenBucket:
    """The arithmetic. Times are in milliseconds and do not go backwards. Begins full."""

    def __init__(self, bytes_per_second: int, window_ms: int, now_ms: float) -> None:
        assert bytes_per_second > 0, "a rate of nothing would never let anybody pass"
        assert window_ms > 0, "idle time must count for something"
        self.bytes_per_second = bytes_per_second
        self._window_ms = window_ms
        self._updated_ms = now_ms
        self._tokens = self._capacity

    @property
    def _capacity(self) -> float:
        return self.bytes_per_second * self._window_ms / 1000

    def delay_ms(self, now_ms: float) -> float:
        """How long until there are tokens; 0 if there are."""
        self._fill(now_ms)
        return max(0.0, (1 - self._tokens) * 1000 / self.bytes_per_second)

    def take(self, amount: int, now_ms: float) -> None:
        """Whether or not there are tokens."""
        self._fill(now_ms)
        self._tokens -= amount

    def change(self, bytes_per_second: int, now_ms: float) -> None:
        """From now on. A debt stays the same number of bytes."""
        assert bytes_per_second > 0, "a rate of nothing would never let anybody pass"
        self._fill(now_ms)
        self.bytes_per_second = bytes_per_second
        self._tokens = min(self._tokens, self._capacity)

    def _fill(self, now_ms: float) -> None:
        earned = max(0.0, now_ms - self._updated_ms) * self.bytes_per_second / 1000
        self._tokens = min(self._capacity, self._tokens + earned)
        self._updated_ms = max(self._updated_ms, now_ms)


class ByteRate:
    """A bucket that threads wait for, in the order in which they came."""

    def __init__(self, bytes_per_second: int, window_ms: int, monotonic_ms: Callable[[], float]) -> None:
        """`window_ms` is all windows together: how much idle time can be made up for in one go."""
        self._monotonic_ms = monotonic_ms
        self._bucket = TokenBucket(bytes_per_second, window_ms, monotonic_ms())
        self._changed = threading.Condition()
        self._waiting: deque[object] = deque()

    def acquire(self, amount: int, is_cancelled: Callable[[], bool] = lambda: False) -> float:
        """Waits until it is this caller's turn, and takes `amount`; returns how many milliseconds that took.

        `is_cancelled` is asked before and after each wait: `wake` makes it be asked at once. Raises WaitCancelled.
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
        """Has everybody who waits look again, at the clock and at whether it is cancelled."""
        with self._changed:
            self._changed.notify_all()
