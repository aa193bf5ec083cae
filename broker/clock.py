"""Time, as everything in the broker asks for it: the wall clock for what is stored, a monotonic one for waiting."""

import time
from typing import Protocol


class Clock(Protocol):
    def now_ms(self) -> int:
        """Milliseconds since the epoch. May jump when the system's clock is set."""
        ...

    def monotonic_ms(self) -> float:
        """Milliseconds since some moment in the past. Never goes backwards."""
        ...


class SystemClock:
    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def monotonic_ms(self) -> float:
        return time.monotonic() * 1000.0
