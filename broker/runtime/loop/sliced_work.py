"""Long computations on the event loop, in slices of a few milliseconds.

Pure-Python work gains nothing on a thread, which would hold the interpreter lock against the loop. Here it yields to
the loop after `SLICE_MS`. Work that is not urgent also pauses if the loop has run other work since the slice, for as
long as the slice took: it takes at most half of a busy loop, and all of an idle one.
"""

from asyncio import Future
from collections.abc import Generator
from typing import Any, Final, Generic, TypeAlias, TypeVar

from broker.clock import Clock
from broker.runtime.loop.waiters import Loop

R = TypeVar("R")

SLICE_MS: Final = 3.0
IDLE_MS: Final = 0.1
"""Longest time between two turns of an idle loop; a small request takes about as long."""

SlicedSteps: TypeAlias = Generator[Future[Any] | None, None, R]
"""Steps of about a millisecond. A yielded future is awaited before the next step, which reads its result."""


class SlicedWork(Generic[R]):
    """Runs steps to their end, starting in a later loop iteration. `done` gets their result or exception.

    Cancelling `done` stops the work before its next step.
    """

    def __init__(self, steps: SlicedSteps[R], loop: Loop, clock: Clock, *, pauses: bool) -> None:
        self._steps = steps
        self._loop = loop
        self._clock = clock
        self._pauses = pauses
        self._worked_ms = 0.0
        self._ended_ms = 0.0
        self.longest_slice_ms = 0.0
        self.done: Future[R] = loop.create_future()
        self.done.add_done_callback(self._on_done)
        loop.call_soon(self._slice)

    def _slice(self, _waited_for: object = None) -> None:
        if self.done.done():
            return
        began_ms = self._clock.monotonic_ms()
        worked_ms, waiting = 0.0, None
        try:
            while worked_ms < SLICE_MS and waiting is None:
                waiting = next(self._steps)
                worked_ms = self._clock.monotonic_ms() - began_ms
        except StopIteration as stop:
            self.done.set_result(stop.value)
        except Exception as error:  # noqa: BLE001  the owner handles the exception
            self.done.set_exception(error)
        else:
            self._continue(waiting, worked_ms)
        self.longest_slice_ms = max(self.longest_slice_ms, worked_ms)

    def _continue(self, waiting: "Future[Any] | None", worked_ms: float) -> None:
        if waiting is not None:
            waiting.add_done_callback(self._slice)
        elif self._pauses:
            self._worked_ms, self._ended_ms = worked_ms, self._clock.monotonic_ms()
            self._loop.call_soon(self._slice_or_pause)
        else:
            self._loop.call_soon(self._slice)

    def _slice_or_pause(self) -> None:
        """Run the next slice at once if the loop was idle since the last one; otherwise pause first."""
        if self._clock.monotonic_ms() - self._ended_ms <= IDLE_MS:
            self._slice()
        else:
            self._loop.call_at(self._loop.time() + self._worked_ms / 1000, self._slice)

    def _on_done(self, done: "Future[R]") -> None:
        if done.cancelled():
            self._steps.close()
