"""Recent use of a byte quota: bytes per second, and waiting times of throttled work (KIP-956).

Like Kafka's sensors: a rate over the quota's own windows, and waits over the last one or two half minutes.
"""

from collections import deque
from typing import Final

from broker.clock import Clock
from protocol.lazy_dataclass import lazy_dataclass

WAIT_SLOT_MS: Final = 30_000
WAIT_SLOTS: Final = 2
RATE_SLOTS: Final = 11


@lazy_dataclass(slots=True)
class _Slot:
    number: int
    count: int = 0
    sum: float = 0.0
    greatest: float = 0.0


class _Recent:
    """Values of the last `slots` periods of `slot_ms`, including the current one."""

    def __init__(self, clock: Clock, slot_ms: float, slots: int) -> None:
        self._clock = clock
        self._slot_ms = slot_ms
        self._slots: deque[_Slot] = deque(maxlen=slots)

    def add(self, value: float) -> None:
        number = int(self._clock.monotonic_ms() // self._slot_ms)
        if not self._slots or self._slots[-1].number != number:
            self._slots.append(_Slot(number))
        slot = self._slots[-1]
        slot.count += 1
        slot.sum += value
        slot.greatest = max(slot.greatest, value)

    def slots(self) -> list[_Slot]:
        assert self._slots.maxlen is not None
        oldest = int(self._clock.monotonic_ms() // self._slot_ms) - self._slots.maxlen
        return [slot for slot in self._slots if slot.number > oldest]


class QuotaUse:
    """Use of one quota. `window_ms` is the length of all windows of the quota together."""

    def __init__(self, clock: Clock, window_ms: int = 11_000) -> None:
        self._window_ms = max(1, window_ms)
        self._waits = _Recent(clock, WAIT_SLOT_MS, WAIT_SLOTS)
        self._bytes = _Recent(clock, self._window_ms / RATE_SLOTS, RATE_SLOTS)

    def waited(self, wait_ms: float) -> None:
        """Record that throttled work waited, or begins to wait."""
        self._waits.add(wait_ms)

    def used(self, size_bytes: int) -> None:
        """Record bytes that passed; a negative number takes back bytes that did not pass after all."""
        self._bytes.add(size_bytes)

    @property
    def wait_avg_ms(self) -> float:
        slots = self._waits.slots()
        count = sum(slot.count for slot in slots)
        return sum(slot.sum for slot in slots) / count if count else 0.0

    @property
    def wait_max_ms(self) -> float:
        return max((slot.greatest for slot in self._waits.slots()), default=0.0)

    @property
    def bytes_per_second(self) -> float:
        return max(0.0, sum(slot.sum for slot in self._bytes.slots()) * 1000 / self._window_ms)
