"""Long computations in slices (`broker.runtime.loop.sliced_work`)."""

import pytest

from broker.runtime.loop.sliced_work import SLICE_MS, SlicedSteps, SlicedWork
from tests.support.fakes.clock import ManualClock
from tests.support.fakes.manual_loop import ManualLoop

STEP_MS = 1
STEPS_PER_SLICE = int(SLICE_MS)


class World:
    """A loop and a clock; each step of `work` takes `STEP_MS`."""

    def __init__(self, steps: int, *, pauses: bool) -> None:
        self.loop, self.clock = ManualLoop(), ManualClock()
        self.done_steps = 0
        self.work = SlicedWork(self._steps(steps), self.loop, self.clock, pauses=pauses)

    def _steps(self, count: int) -> SlicedSteps[str]:
        for _ in range(count):
            self.clock.advance_ms(STEP_MS)
            self.done_steps += 1
            yield None
        return "result"

    def turn(self, others_ms: int = 0) -> None:
        """Run a turn of the loop in which other callbacks take a while before the work's."""
        self.clock.advance_ms(others_ms)
        self.loop.run_turn()


@pytest.mark.parametrize("pauses", [False, True])
def test_work_yields_to_the_loop_after_each_slice(pauses: bool) -> None:
    world = World(2 * STEPS_PER_SLICE, pauses=pauses)
    assert world.done_steps == 0
    world.turn()
    assert world.done_steps == STEPS_PER_SLICE
    world.turn()
    world.turn()
    assert world.work.done.result() == "result"
    assert world.work.longest_slice_ms == SLICE_MS


def test_polite_work_pauses_for_the_duration_of_a_slice_when_the_loop_is_busy() -> None:
    world = World(2 * STEPS_PER_SLICE, pauses=True)
    world.turn()
    world.turn(others_ms=1)
    assert world.done_steps == STEPS_PER_SLICE
    world.loop.advance(0.9 * SLICE_MS / 1000)
    assert world.done_steps == STEPS_PER_SLICE
    world.loop.advance(0.2 * SLICE_MS / 1000)
    assert world.done_steps == 2 * STEPS_PER_SLICE


def test_urgent_work_goes_on_beside_a_busy_loop() -> None:
    world = World(2 * STEPS_PER_SLICE, pauses=False)
    world.turn()
    world.turn(others_ms=50)
    assert world.done_steps == 2 * STEPS_PER_SLICE


def test_cancelled_work_stops_before_its_next_step() -> None:
    world = World(2 * STEPS_PER_SLICE, pauses=True)
    world.turn()
    world.work.done.cancel()
    world.loop.advance(1)
    assert world.done_steps == STEPS_PER_SLICE


def test_failed_step_ends_the_work_with_its_exception() -> None:
    def steps() -> SlicedSteps[None]:
        yield None
        raise ValueError("a bug")

    loop = ManualLoop()
    work = SlicedWork(steps(), loop, ManualClock(), pauses=True)
    loop.run_soon()
    assert isinstance(work.done.exception(), ValueError)


def test_work_waits_for_a_future_that_a_step_yields() -> None:
    loop = ManualLoop()
    written = loop.create_future()

    def steps() -> SlicedSteps[int]:
        yield written
        return int(written.result())

    work = SlicedWork(steps(), loop, ManualClock(), pauses=True)
    loop.run_soon()
    assert not work.done.done()
    written.set_result(7)
    loop.run_soon()
    assert work.done.result() == 7
