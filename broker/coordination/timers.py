"""Keyed timers over one heap: `schedule` replaces, `cancel` removes, `due` returns expired timers.

Members move their session timer to a later time with every heartbeat, so this must be cheap: the heap keeps the earlier
entry, and only when that entry comes up does the timer return to the heap with its current deadline. The heap thus
holds about one entry per key, however often a key is rescheduled.
"""

from collections.abc import Callable, Iterator
from heapq import heappop, heappush
from itertools import count
from math import inf
from typing import Generic, NamedTuple, Protocol, TypeVar

Cause = TypeVar("Cause")


class CoordinatorClock(Protocol):
    """The clocks of a coordinator: wall-clock time for stored timestamps, monotonic time for waiting."""

    def now_ms(self) -> int: ...

    def monotonic_ms(self) -> float: ...


class _Timer(Generic[Cause]):
    """A timer. `queued_ms` is the deadline of its valid heap entry; infinite when there is none."""

    __slots__ = ("cause", "deadline_ms", "queued_ms")

    def __init__(self, cause: Cause, deadline_ms: float) -> None:
        self.cause = cause
        self.deadline_ms = deadline_ms
        self.queued_ms = inf


class DueTimer(NamedTuple, Generic[Cause]):
    """A timer that has expired."""

    key: str
    cause: Cause


class TimerQueue(Generic[Cause]):
    """Timers by key. Each carries a cause: plain data about what has expired."""

    def __init__(self, monotonic_ms: Callable[[], float]) -> None:
        self._monotonic_ms = monotonic_ms
        self._timers: dict[str, _Timer[Cause]] = {}
        self._heap: list[tuple[float, int, str, _Timer[Cause]]] = []
        self._sequence = count()

    def __len__(self) -> int:
        return len(self._timers)

    def __iter__(self) -> Iterator[str]:
        return iter(self._timers)

    def __contains__(self, key: str) -> bool:
        return key in self._timers

    def schedule(self, key: str, delay_ms: float, cause: Cause) -> None:
        """Make `cause` due `delay_ms` from now, in place of any earlier timer of the key."""
        deadline_ms = self._monotonic_ms() + delay_ms
        timer = self._timers.get(key)
        if timer is None:
            timer = self._timers[key] = _Timer(cause, deadline_ms)
        else:
            timer.cause = cause
            timer.deadline_ms = deadline_ms
        if deadline_ms < timer.queued_ms:
            self._push(key, timer)

    def cancel(self, key: str) -> None:
        """Remove the key's timer, if there is one."""
        self._timers.pop(key, None)

    def clear(self) -> None:
        """Remove all timers."""
        self._timers.clear()
        self._heap.clear()

    def deadline_ms(self, key: str) -> float | None:
        """Return the key's deadline on the monotonic clock."""
        timer = self._timers.get(key)
        return None if timer is None else timer.deadline_ms

    def cause(self, key: str) -> Cause | None:
        """Return the cause of the key's timer; None without a timer."""
        timer = self._timers.get(key)
        return None if timer is None else timer.cause

    @property
    def next_wake_ms(self) -> float | None:
        """The earliest time at which a timer can be due. No timer is due before; possibly none is due at that time."""
        while self._heap and not self._counts(self._heap[0]):
            heappop(self._heap)
        return self._heap[0][0] if self._heap else None

    def due(self, now_ms: float) -> Iterator[Cause]:
        """Yield the causes of the timers due, as `due_timers` does."""
        for timer in self.due_timers(now_ms):
            yield timer.cause

    def due_timers(self, now_ms: float) -> Iterator[DueTimer[Cause]]:
        """Yield the timers due at `now_ms`, earliest first, and remove each as it is yielded.

        The caller handles each cause before it takes the next: a cause that the handling cancels or reschedules is not
        yielded.
        """
        for key, timer in self._take(now_ms):
            is_untouched = self._timers.get(key) is timer and timer.queued_ms == inf
            if is_untouched:
                del self._timers[key]
                yield DueTimer(key, timer.cause)

    def _take(self, now_ms: float) -> list[tuple[str, _Timer[Cause]]]:
        taken: list[tuple[str, _Timer[Cause]]] = []
        while self._heap and self._heap[0][0] <= now_ms:
            entry = heappop(self._heap)
            if not self._counts(entry):
                continue
            _, _, key, timer = entry
            timer.queued_ms = inf
            if timer.deadline_ms > now_ms:
                self._push(key, timer)
            else:
                taken.append((key, timer))
        return taken

    def _push(self, key: str, timer: _Timer[Cause]) -> None:
        timer.queued_ms = timer.deadline_ms
        heappush(self._heap, (timer.deadline_ms, next(self._sequence), key, timer))

    def _counts(self, entry: tuple[float, int, str, _Timer[Cause]]) -> bool:
        deadline_ms, _, key, timer = entry
        return self._timers.get(key) is timer and timer.queued_ms == deadline_ms
