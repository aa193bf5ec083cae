"""Clocks of the broker: wall-clock time for stored timestamps, monotonic time for waiting."""

import time
from typing import Protocol


class Clock(Protocol):
    def now_ms(self) -> int:
        """Return milliseconds since the epoch. May jump when the system's clock is set."""
        ...

    def monotonic_ms(self) -> float:
        """Return milliseconds since an arbitrary moment. Never decreases."""
        ...


class SystemClock:
    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def monotonic_ms(self) -> float:
        return time.monotonic() * 1000.0
