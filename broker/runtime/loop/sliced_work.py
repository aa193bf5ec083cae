"""Long computations on the event loop: so many steps as fit a few milliseconds, then everybody else's turn.

Work that is Python through and through gains nothing on a thread, which would hold the interpreter's lock against the
loop for as long. Here it gives the loop back after `SLICE_MS`. Work that is not urgent also rests for as long as it
worked, so that it takes half of the processor at most.
"""

from asyncio import Future
from collections.abc import Generator
from typing import Any, Final, Generic, TypeAlias, TypeVar

from broker.clock import Clock
from broker.runtime.loop.waiters import Loop

R = TypeVar("R")

SLICE_MS: Final = 3.0

SlicedSteps: TypeAlias = Generator[Future[Any] | None, None, R]
"""Steps of about a millisecond. One that yields a future is waited for; the steps look at its outcome themselves."""


class SlicedWork(Generic[R]):
    """Drives steps to their end, beginning in a turn of its own. `done` has their result, or what they raised.

    Cancelling `done` ends the work before its next step.
    """

    def __init__(self, steps: SlicedSteps[R], loop: Loop, clock: Clock, *, rests: bool) -> None:
        self._steps = steps
        self._loop = loop
        self._clock = clock
        self._rests = rests
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
        except Exception as error:  # noqa: BLE001  it is the owner's to handle, whatever it is
            self.done.set_exception(error)
        else:
            self._continue(waiting, worked_ms)
        self.longest_slice_ms = max(self.longest_slice_ms, worked_ms)

    def _continue(self, waiting: "Future[Any] | None", worked_ms: float) -> None:
        if waiting is not None:
            waiting.add_done_callback(self._slice)
        elif self._rests:
            self._loop.call_at(self._loop.time() + worked_ms / 1000, self._slice)
        else:
            self._loop.call_soon(self._slice)

    def _on_done(self, done: "Future[R]") -> None:
        if done.cancelled():
            self._steps.close()
