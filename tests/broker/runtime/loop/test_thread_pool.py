"""The bounded thread pool (`broker.runtime.loop.thread_pool`)."""

import asyncio
import threading

import pytest

from broker.runtime.loop.thread_pool import IDLE_WINDOW_MS, PoolFull, ThreadPool
from tests.support.fakes.clock import ManualClock

PATIENCE_S = 60


class Gate:
    """Work that blocks until the gate opens, and counts concurrent runs."""

    def __init__(self) -> None:
        self._open = threading.Event()
        self._lock = threading.Lock()
        self.inside = 0
        self.most = 0
        self._entered = threading.Semaphore(0)

    def __call__(self) -> int:
        with self._lock:
            self.inside += 1
            self.most = max(self.most, self.inside)
        self._entered.release()
        assert self._open.wait(PATIENCE_S)
        with self._lock:
            self.inside -= 1
        return threading.get_ident()

    def wait_for_entry(self) -> None:
        assert self._entered.acquire(timeout=PATIENCE_S)

    def open(self) -> None:
        self._open.set()


async def test_concurrent_work_is_limited_by_the_threads() -> None:
    pool, gate = ThreadPool(2, 10, "test"), Gate()
    futures = [pool.submit(gate) for _ in range(6)]
    gate.wait_for_entry()
    gate.wait_for_entry()
    gate.open()
    threads = set(await asyncio.gather(*futures))
    assert gate.most == 2
    assert len(threads) == 2
    await pool.stop()


async def test_waiting_work_is_bounded_and_more_is_refused() -> None:
    pool, gate = ThreadPool(1, 2, "test"), Gate()
    futures = [pool.submit(gate) for _ in range(3)]
    with pytest.raises(PoolFull, match="2 pieces of work wait for the 1 threads of test"):
        pool.submit(gate)
    gate.open()
    await asyncio.gather(*futures)
    assert await pool.submit(lambda: 42) == 42
    await pool.stop()


async def test_unbounded_pool_queues_all_work() -> None:
    pool, gate = ThreadPool(1, None, "test"), Gate()
    futures = [pool.submit(gate) for _ in range(1_000)]
    pool.resize(1)
    futures.append(pool.submit(gate))
    assert pool.size == 1
    gate.open()
    await asyncio.gather(*futures)
    await pool.stop()


async def test_future_gets_the_exception_of_the_work() -> None:
    pool = ThreadPool(1, 1, "test")

    def fail() -> None:
        raise OSError(5, "Input/output error")

    with pytest.raises(OSError, match="Input/output"):
        await pool.submit(fail)
    await pool.stop()


async def test_cancelling_drops_work_that_has_not_started() -> None:
    pool, gate = ThreadPool(1, 2, "test"), Gate()
    first, ran = pool.submit(gate), threading.Event()
    second = pool.submit(ran.set)
    gate.wait_for_entry()
    first.cancel()
    second.cancel()
    gate.open()
    await pool.drain()
    assert not ran.is_set()
    await pool.stop()


async def test_larger_pool_starts_waiting_work() -> None:
    pool, gate = ThreadPool(1, 5, "test"), Gate()
    futures = [pool.submit(gate) for _ in range(3)]
    gate.wait_for_entry()
    pool.resize(3)
    gate.wait_for_entry()
    gate.wait_for_entry()
    gate.open()
    await asyncio.gather(*futures)
    assert all(future.done() for future in futures)
    await pool.stop()


async def test_smaller_pool_completes_running_work() -> None:
    pool, gate = ThreadPool(3, 5, "test"), Gate()
    futures = [pool.submit(gate) for _ in range(3)]
    for _ in range(3):
        gate.wait_for_entry()
    pool.resize(1)
    gate.open()
    await asyncio.gather(*futures)
    second = Gate()
    later = [pool.submit(second) for _ in range(3)]
    second.wait_for_entry()
    second.open()
    await asyncio.gather(*later)
    assert second.most == 1
    await pool.stop()


async def test_completions_wake_the_loop_in_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    pool, wake_ups = ThreadPool(1, 100, "test"), 0
    settle = pool._settle_finished

    def count() -> None:
        nonlocal wake_ups
        wake_ups += 1
        settle()

    monkeypatch.setattr(pool, "_settle_finished", count)
    finished = threading.Event()
    futures = [pool.submit(lambda: None) for _ in range(50)]
    futures.append(pool.submit(finished.set))
    assert finished.wait(PATIENCE_S)  # block the loop
    await asyncio.gather(*futures)
    assert wake_ups <= 2
    await pool.stop()


async def test_stop_finishes_submitted_work_and_refuses_more() -> None:
    pool, gate = ThreadPool(1, 5, "test"), Gate()
    futures = [pool.submit(gate) for _ in range(2)]
    gate.open()
    await pool.stop()
    assert all(future.done() and not future.cancelled() for future in futures)
    with pytest.raises(RuntimeError, match="stopped"):
        pool.submit(gate)
    await pool.stop()


async def test_stop_can_drop_waiting_work() -> None:
    pool, gate = ThreadPool(1, 5, "test"), Gate()
    first, second = pool.submit(gate), pool.submit(gate)
    gate.wait_for_entry()
    stopping = asyncio.ensure_future(pool.stop(drop_waiting=True))
    await asyncio.sleep(0)
    gate.open()
    await stopping
    assert first.done()
    assert second.cancelled()


async def test_unused_pool_has_no_threads() -> None:
    before = threading.active_count()
    pool = ThreadPool(10, 5, "test")
    assert threading.active_count() == before
    await pool.stop()


async def test_idle_ratio_is_an_average_over_the_last_minute() -> None:
    clock, gate = ManualClock(), Gate()
    pool = ThreadPool(2, 5, "test", clock=clock)
    clock.advance_ms(10_000)
    assert pool.idle_ratio() == 1.0
    working = pool.submit(gate)
    gate.wait_for_entry()
    clock.advance_ms(10_000)
    assert pool.idle_ratio() == pytest.approx(0.75)  # one of two threads is busy half of the time
    clock.advance_ms(int(IDLE_WINDOW_MS))
    assert pool.idle_ratio() == pytest.approx(0.5)
    gate.open()
    await working
    clock.advance_ms(int(IDLE_WINDOW_MS))
    assert pool.idle_ratio() == pytest.approx(1.0)
    await pool.stop()
