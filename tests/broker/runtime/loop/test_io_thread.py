"""The thread for blocking file operations (`broker.runtime.loop.io_thread`)."""

import asyncio
import threading
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from broker.runtime.loop.io_thread import IoBacklogFull, IoThread


@pytest_asyncio.fixture
async def io() -> AsyncIterator[IoThread]:
    thread = IoThread(asyncio.get_running_loop())
    yield thread
    await thread.stop()


async def test_work_runs_in_order_on_one_other_thread(io: IoThread) -> None:
    seen: list[tuple[int, int]] = []
    futures = [io.submit(lambda n=n: seen.append((n, threading.get_ident()))) for n in range(100)]  # type: ignore[misc]
    await asyncio.gather(*futures)
    assert [n for n, _ in seen] == list(range(100))
    assert {ident for _, ident in seen} == {io._thread.ident}
    assert io.backlog == 0


async def test_future_gets_the_result_or_the_exception(io: IoThread) -> None:
    def fail() -> None:
        raise OSError(28, "No space left on device")

    good, bad, after = io.submit(lambda: 42), io.submit(fail), io.submit(lambda: "still running")
    assert await good == 42
    with pytest.raises(OSError, match="No space"):
        await bad
    assert await after == "still running"


async def test_completions_wake_the_loop_in_batches(io: IoThread) -> None:
    """All completions of a busy period arrive with one wake-up."""
    wake_ups = 0
    settle = io._settle_finished

    def count_wake_ups() -> None:
        nonlocal wake_ups
        wake_ups += 1
        settle()

    io._settle_finished = count_wake_ups  # type: ignore[method-assign]
    finished = threading.Event()
    futures = [io.submit(lambda: None) for _ in range(50)]
    futures.append(io.submit(finished.set))
    finished.wait(10)  # block the loop
    await asyncio.gather(*futures)
    assert wake_ups <= 2


async def test_full_queue_refuses_work() -> None:
    gate = threading.Event()
    io = IoThread(asyncio.get_running_loop(), capacity=3)
    waiting = [io.submit(lambda: gate.wait(10)) for _ in range(3)]
    with pytest.raises(IoBacklogFull, match="3 file operations"):
        io.submit(lambda: None)
    gate.set()
    await asyncio.gather(*waiting)
    assert await io.submit(lambda: "room again") == "room again"
    await io.stop()


async def test_cancelling_the_future_does_not_cancel_the_work(io: IoThread) -> None:
    gate, done = threading.Event(), threading.Event()
    io.submit(lambda: gate.wait(10))
    future = io.submit(done.set)
    future.cancel()
    gate.set()
    await io.submit(lambda: None)
    assert done.is_set()
    assert future.cancelled()


async def test_stop_finishes_submitted_work() -> None:
    io = IoThread(asyncio.get_running_loop())
    done: list[int] = []
    futures = [io.submit(lambda n=n: done.append(n)) for n in range(20)]  # type: ignore[misc]
    await io.stop()
    await io.stop()
    assert done == list(range(20))
    assert all(future.done() for future in futures)
    with pytest.raises(RuntimeError, match="stopped"):
        io.submit(lambda: None)
