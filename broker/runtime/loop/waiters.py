"""Callbacks that wait for an offset, a change of a partition, or a deadline, with O(log n) operations.

- `Deadlines`: any number of deadlines on one timer of the loop.
- `OffsetWaiters`: callbacks by offset threshold; one object per growing offset (a high watermark, a low watermark).
- `Watches`: interest in the *next* change of a partition. A watch is armed once and fires once, so idle readers and
  idle partitions cost nothing.

Cancelled entries stay in the heap until they reach its top. A heap of mostly cancelled entries is rebuilt, so that long
timeouts that never elapse do not fill the memory.

Callbacks run synchronously and must not block.
"""

import asyncio
import heapq
from collections.abc import Callable
from itertools import count
from typing import Any, Protocol

from protocol.errors import ErrorCode

# Rebuilding a heap is O(live entries), amortized over the cancellations. Smaller heaps are never rebuilt.
_COMPACTION_FLOOR = 64

WaitCallback = Callable[[ErrorCode], None]


class Loop(Protocol):
    """The part of an event loop that waiters use. asyncio loops and the simulator's loop have it."""

    def time(self) -> float: ...

    def call_at(self, when: float, callback: Callable[[], object], /) -> asyncio.TimerHandle: ...

    def call_soon(self, callback: Callable[[], object], /) -> asyncio.Handle: ...

    def create_future(self) -> "asyncio.Future[Any]": ...


class Deadline:
    """A time on the loop's clock at which a callback runs unless cancelled."""

    __slots__ = ("_callback", "_queue", "at")

    def __init__(self, at: float, callback: Callable[[], None], queue: "Deadlines") -> None:
        self.at = at
        self._callback: Callable[[], None] | None = callback
        self._queue: Deadlines | None = queue

    @property
    def is_pending(self) -> bool:
        return self._callback is not None

    def cancel(self) -> None:
        """Drop the callback. No effect after cancellation or execution."""
        if self._callback is not None:
            self._callback = None
            if self._queue is not None:
                self._queue.note_cancelled()

    def leave_queue(self) -> None:
        """Detach from the heap, so that a later cancellation is not counted."""
        self._queue = None

    def expire(self) -> None:
        """Run the callback, once."""
        callback, self._callback = self._callback, None
        if callback is not None:
            callback()


class Deadlines:
    """A heap of deadlines on one timer. Times are seconds of `loop.time()`."""

    def __init__(self, loop: Loop) -> None:
        self._loop = loop
        self._heap: list[tuple[float, int, Deadline]] = []
        self._order = count()
        self._cancelled = 0
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = 0.0

    def __len__(self) -> int:
        """Return the number of pending entries."""
        return len(self._heap) - self._cancelled

    def after_ms(self, delay_ms: float, callback: Callable[[], None]) -> Deadline:
        """Run `callback` after `delay_ms`; never inside this call, even without a delay."""
        return self.at(self._loop.time() + max(0.0, delay_ms) / 1000, callback)

    def at(self, moment: float, callback: Callable[[], None]) -> Deadline:
        """Run `callback` at `moment` on the loop's clock."""
        deadline = Deadline(moment, callback, self)
        heapq.heappush(self._heap, (moment, next(self._order), deadline))
        if self._timer is None or moment < self._timer_at:
            self._set_timer(moment)
        return deadline

    def note_cancelled(self) -> None:
        """Count a cancelled deadline, and rebuild a mostly cancelled heap."""
        self._cancelled += 1
        if self._cancelled > _COMPACTION_FLOOR and self._cancelled * 2 > len(self._heap):
            self._heap = [entry for entry in self._heap if entry[2].is_pending]
            heapq.heapify(self._heap)
            self._cancelled = 0

    def close(self) -> None:
        """Stop the timer and cancel all pending deadlines."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        for _, _, deadline in tuple(self._heap):
            deadline.cancel()
        self._heap.clear()
        self._cancelled = 0

    def _set_timer(self, moment: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer_at = moment
        self._timer = self._loop.call_at(moment, self._on_timer)

    def _on_timer(self) -> None:
        self._timer = None
        for deadline in self._pop_due(max(self._loop.time(), self._timer_at)):  # a timer may fire slightly early
            deadline.expire()
        self._set_timer_for_first()

    def _set_timer_for_first(self) -> None:
        if self._heap and (self._timer is None or self._heap[0][0] < self._timer_at):
            self._set_timer(self._heap[0][0])

    def _pop_due(self, now: float) -> list[Deadline]:
        """Remove due deadlines and the cancelled entries before the first pending one."""
        due: list[Deadline] = []
        while self._heap and (self._heap[0][0] <= now or not self._heap[0][2].is_pending):
            deadline = heapq.heappop(self._heap)[2]
            if deadline.is_pending:
                deadline.leave_queue()
                due.append(deadline)
            else:
                self._cancelled -= 1
        return due


class OffsetWaiter:
    """One callback that waits for an offset."""

    __slots__ = ("_callback", "_waiters")

    def __init__(self, callback: WaitCallback, waiters: "OffsetWaiters") -> None:
        self._callback: WaitCallback | None = callback
        self._waiters: OffsetWaiters | None = waiters

    @property
    def is_pending(self) -> bool:
        return self._callback is not None

    def cancel(self) -> None:
        """Drop the callback. No effect after cancellation or execution."""
        if self._callback is not None:
            self._callback = None
            if self._waiters is not None:
                self._waiters.note_cancelled()

    def leave_heap(self) -> None:
        """Detach from the heap, so that a later cancellation is not counted."""
        self._waiters = None

    def settle(self, error: ErrorCode) -> None:
        """Run the callback, once."""
        callback, self._callback = self._callback, None
        if callback is not None:
            callback(error)


class OffsetWaiters:
    """Callbacks by offset threshold. An empty object needs little memory."""

    __slots__ = ("_cancelled", "_heap", "_order")

    def __init__(self) -> None:
        self._heap: list[tuple[int, int, OffsetWaiter]] = []
        self._order = 0
        self._cancelled = 0

    def __len__(self) -> int:
        """Return the number of pending entries."""
        return len(self._heap) - self._cancelled

    def add(self, threshold: int, callback: WaitCallback) -> OffsetWaiter:
        """Call `callback(NONE)` when `reached` gets an offset >= `threshold`, or `callback(error)` from `fail`."""
        waiter = OffsetWaiter(callback, self)
        self._order += 1
        heapq.heappush(self._heap, (threshold, self._order, waiter))
        return waiter

    def reached(self, offset: int) -> None:
        """Settle every waiter whose threshold is at most `offset`, lowest threshold first."""
        while self._heap and self._heap[0][0] <= offset:
            self._settle_first(ErrorCode.NONE)

    def fail(self, error: ErrorCode) -> None:
        """Settle all waiters with `error`, after a leader change or log failure. Waiters added meanwhile stay."""
        failed = [waiter for _, _, waiter in sorted(self._heap)]
        self._heap, self._cancelled = [], 0
        for waiter in failed:
            waiter.leave_heap()
        for waiter in failed:
            waiter.settle(error)

    def note_cancelled(self) -> None:
        """Count a cancelled waiter, and rebuild a mostly cancelled heap."""
        self._cancelled += 1
        if self._cancelled > _COMPACTION_FLOOR and self._cancelled * 2 > len(self._heap):
            self._heap = [entry for entry in self._heap if entry[2].is_pending]
            heapq.heapify(self._heap)
            self._cancelled = 0

    def _settle_first(self, error: ErrorCode) -> None:
        waiter = heapq.heappop(self._heap)[2]
        if waiter.is_pending:
            waiter.settle(error)
        else:
            self._cancelled -= 1


class Watch:
    """A reader's interest in the next change of a partition. `on_change` runs when the watch fires.

    `bounds` are the collections that the armed watch joins: a consumer watches the high watermark only, a follower both
    the high watermark and the log end offset.
    """

    __slots__ = ("bounds", "is_armed", "on_change")

    def __init__(self, bounds: tuple["Watches", ...], on_change: Callable[[], None]) -> None:
        self.bounds = bounds
        self.on_change = on_change
        self.is_armed = False

    def arm(self) -> None:
        """Fire at the next change. No effect on an armed watch."""
        if not self.is_armed:
            self.is_armed = True
            for bound in self.bounds:
                bound.armed[self] = None

    def disarm(self) -> None:
        """Do not fire. No effect on a watch that is not armed."""
        if self.is_armed:
            self.is_armed = False
            for bound in self.bounds:
                bound.armed.pop(self, None)


class Watches:
    """The armed watches of one bound of a partition. A dict keeps their order for deterministic simulations."""

    __slots__ = ("armed",)

    def __init__(self) -> None:
        self.armed: dict[Watch, None] = {}

    def fire(self) -> None:
        """Disarm all watches and run their callbacks. A watch armed by a callback waits for the next change."""
        if self.armed:
            for watch in tuple(self.armed):
                watch.disarm()
                watch.on_change()

    def fire_first(self) -> None:
        """Disarm the watch that was armed first, and run its callback."""
        first = next(iter(self.armed), None)
        if first is not None:
            first.disarm()
            first.on_change()
