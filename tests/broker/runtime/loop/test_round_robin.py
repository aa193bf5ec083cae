"""Round-robin scheduling (`broker.runtime.loop.round_robin`)."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from broker.runtime.loop.round_robin import RoundRobinScheduler
from tests.support.fakes.fast_forward_loop import run_fast


class Worker:
    """A task that works `work_s` per run and returns `delays` one after the other, then None."""

    def __init__(self, name: str, log: list[tuple[str, float]], delays: list[float | None], work_s: float = 0) -> None:
        self.name = name
        self.log = log
        self.delays = delays
        self.work_s = work_s

    async def run_once(self) -> float | None:
        loop = asyncio.get_running_loop()
        self.log.append((self.name, round(loop.time() - 1000, 3)))
        await asyncio.sleep(self.work_s)
        return self.delays.pop(0) if self.delays else None


def over(
    seconds: float, width: int, begin: Callable[[RoundRobinScheduler, list[tuple[str, float]]], Awaitable[None] | None]
) -> list[tuple[str, float]]:
    log: list[tuple[str, float]] = []

    async def main() -> None:
        scheduler = RoundRobinScheduler(asyncio.get_running_loop(), lambda: width)
        running = asyncio.ensure_future(scheduler.run())
        await asyncio.sleep(0)
        waited = begin(scheduler, log)
        if waited is not None:
            await waited
        await asyncio.sleep(seconds)
        running.cancel()
        await asyncio.wait([running])

    run_fast(main())
    return log


def test_task_due_again_queues_behind_the_others() -> None:
    def begin(scheduler: RoundRobinScheduler, log: list[tuple[str, float]]) -> None:
        for name in "abc":
            scheduler.schedule(Worker(name, log, [0.0, None], work_s=1))

    assert over(20, 1, begin) == [("a", 0), ("b", 1), ("c", 2), ("a", 3), ("b", 4), ("c", 5)]


def test_concurrent_runs_are_limited_by_the_width() -> None:
    def begin(scheduler: RoundRobinScheduler, log: list[tuple[str, float]]) -> None:
        for name in "abc":
            scheduler.schedule(Worker(name, log, [], work_s=2))

    assert over(20, 2, begin) == [("a", 0), ("b", 0), ("c", 2)]


def test_delay_starts_at_the_end_of_a_run() -> None:
    def begin(scheduler: RoundRobinScheduler, log: list[tuple[str, float]]) -> None:
        scheduler.schedule(Worker("a", log, [500.0, 1000.0, None], work_s=1), delay_ms=250)

    assert over(20, 1, begin) == [("a", 0.25), ("a", 1.75), ("a", 3.75)]


def test_scheduling_again_only_moves_a_run_earlier() -> None:
    def begin(scheduler: RoundRobinScheduler, log: list[tuple[str, float]]) -> None:
        worker = Worker("a", log, [])
        scheduler.schedule(worker, delay_ms=5000)
        scheduler.schedule(worker, delay_ms=1000)
        scheduler.schedule(worker, delay_ms=9000)

    assert over(20, 1, begin) == [("a", 1)]


def test_task_scheduled_during_its_run_runs_again() -> None:
    async def begin(scheduler: RoundRobinScheduler, log: list[tuple[str, float]]) -> None:
        worker = Worker("a", log, [None, 60_000.0, None], work_s=2)
        scheduler.schedule(worker)
        await asyncio.sleep(1)
        scheduler.schedule(worker)
        scheduler.schedule(worker, delay_ms=1500)
        assert scheduler.is_scheduled(worker)

    assert over(20, 1, begin) == [("a", 0), ("a", 2)]


def test_cancelled_task_does_not_run() -> None:
    async def begin(scheduler: RoundRobinScheduler, log: list[tuple[str, float]]) -> None:
        worker = Worker("a", log, [])
        scheduler.schedule(worker, delay_ms=1000)
        scheduler.cancel(worker)
        assert not scheduler.is_scheduled(worker)

    assert over(20, 1, begin) == []


def test_drain_waits_for_running_tasks_and_starts_none() -> None:
    async def begin(scheduler: RoundRobinScheduler, log: list[tuple[str, float]]) -> None:
        scheduler.schedule(Worker("a", log, [0.0], work_s=3))
        scheduler.schedule(Worker("b", log, [0.0], work_s=3))
        await asyncio.sleep(1)
        await scheduler.drain()
        assert asyncio.get_running_loop().time() == pytest.approx(1003)

    assert over(20, 1, begin) == [("a", 0)]


def test_exception_of_a_task_ends_the_scheduler() -> None:
    class Broken:
        async def run_once(self) -> float | None:
            raise ZeroDivisionError

    async def main() -> None:
        scheduler = RoundRobinScheduler(asyncio.get_running_loop(), lambda: 2)
        scheduler.schedule(Broken())
        scheduler.schedule(Worker("a", [], [0.0] * 1000, work_s=1))
        await scheduler.run()

    with pytest.raises(ExceptionGroup) as raised:
        run_fast(main())
    assert isinstance(raised.value.exceptions[0], ZeroDivisionError)
