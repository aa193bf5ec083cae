"""Rate limits in bytes (KIP-956): arithmetic, then waiting threads. Tests advance clocks and never sleep."""

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor

import pytest
from hypothesis import given
from hypothesis import strategies as st

from storage.tiered.stores.byte_rate import ByteRate, TokenBucket, WaitCancelled
from tests.support.fakes.clock import ManualClock

WINDOWS_MS = 11_000


# -- the bucket --------------------------------------------------------------------------------------------------------


def test_idle_time_gives_credit_for_the_windows_only() -> None:
    bucket = TokenBucket(1_000, WINDOWS_MS, 0)
    bucket.take(11_000, 3_600_000)
    assert bucket.delay_ms(3_600_000) == 1
    assert bucket.delay_ms(3_600_001) == 0


def test_large_amount_passes_and_delays_the_next() -> None:
    bucket = TokenBucket(1_000, WINDOWS_MS, 0)
    assert bucket.delay_ms(0) == 0
    bucket.take(111_000, 0)
    assert bucket.delay_ms(0) == 100_001
    assert bucket.delay_ms(50_000) == 50_001
    assert bucket.delay_ms(100_001) == 0


def test_changed_rate_does_not_apply_retroactively() -> None:
    bucket = TokenBucket(1_000, 1_000, 0)
    bucket.take(11_000, 0)
    bucket.change(10_000, 5_000)
    assert bucket.delay_ms(5_000) == pytest.approx(500.1)


def test_lower_rate_reduces_the_credit() -> None:
    bucket = TokenBucket(10_000, 1_000, 0)
    bucket.change(100, 0)
    bucket.take(100, 0)
    assert bucket.delay_ms(0) == 10


def test_unlimited_rate_leaves_no_debt() -> None:
    bucket = TokenBucket(2**63 - 1, WINDOWS_MS, 0)
    for _ in range(1_000):
        assert bucket.delay_ms(0) == 0
        bucket.take(2**40, 0)
    bucket.change(1_000, 0)
    assert bucket.delay_ms(0) == 0


@given(
    rate=st.integers(1, 10**9),
    steps=st.lists(st.tuples(st.integers(0, 10**9), st.integers(0, 10_000)), min_size=1, max_size=50),
)
def test_throughput_is_bounded_by_rate_windows_and_one_amount(rate: int, steps: list[tuple[int, int]]) -> None:
    bucket = TokenBucket(rate, WINDOWS_MS, 0)
    now_ms, taken = 0.0, 0
    for amount, idle_ms in steps:
        now_ms += idle_ms
        now_ms += bucket.delay_ms(now_ms)
        assert bucket.delay_ms(now_ms) < 1e-3, "the returned delay is sufficient"
        assert taken <= rate * (now_ms + WINDOWS_MS) / 1000 * 1.000001
        bucket.take(amount, now_ms)
        taken += amount


# -- threads -----------------------------------------------------------------------------------------------------------


class Waiters:
    """Threads that acquire bytes; each waits before the next one starts."""

    def __init__(self, rate: ByteRate, clock: ManualClock, pool: ThreadPoolExecutor) -> None:
        self.rate = rate
        self.clock = clock
        self._pool = pool
        self.order: list[str] = []

    @property
    def waiting_count(self) -> int:
        return len(self.rate._waiting)

    def start(self, name: str, amount: int, is_cancelled: Callable[[], bool] = lambda: False) -> "Future[float]":
        before = self.waiting_count
        future = self._pool.submit(self._acquire, name, amount, is_cancelled)
        while self.waiting_count == before:
            assert not future.done(), "the thread did not wait"
        return future

    def _acquire(self, name: str, amount: int, is_cancelled: Callable[[], bool]) -> float:
        waited_ms = self.rate.acquire(amount, is_cancelled)
        self.order.append(name)
        return waited_ms

    def advance_ms(self, milliseconds: int) -> None:
        self.clock.advance_ms(milliseconds)
        self.rate.wake()


@pytest.fixture
def waiters() -> Iterator[Waiters]:
    clock = ManualClock()
    with ThreadPoolExecutor(4) as pool:
        rate = ByteRate(1_000, 1_000, clock.monotonic_ms)
        rate.acquire(1_001_000)
        yield Waiters(rate, clock, pool)


def test_waiters_pass_in_arrival_order(waiters: Waiters) -> None:
    first, second = waiters.start("first", 500_000), waiters.start("second", 1)
    waiters.advance_ms(999_999)
    assert waiters.order == []
    waiters.advance_ms(2)
    assert first.result(10) == 1_000_001
    assert waiters.waiting_count == 1
    waiters.advance_ms(500_000)
    assert second.result(10) == 1_500_001
    assert waiters.order == ["first", "second"]


def test_cancelled_waiter_lets_the_next_pass(waiters: Waiters) -> None:
    cancelled = threading.Event()
    first = waiters.start("first", 10, cancelled.is_set)
    second = waiters.start("second", 10)
    cancelled.set()
    waiters.rate.wake()
    with pytest.raises(WaitCancelled):
        first.result(10)
    waiters.advance_ms(1_000_001)
    second.result(10)
    assert waiters.order == ["second"]


def test_cancelled_wait_consumes_no_bytes() -> None:
    clock = ManualClock()
    rate = ByteRate(1_000, 1_000, clock.monotonic_ms)
    with pytest.raises(WaitCancelled):
        rate.acquire(10**9, lambda: True)
    assert rate.acquire(10) == 0


def test_waiter_continues_without_wake() -> None:
    """A waiter continues without `wake` when the tokens are there."""
    clock = ManualClock()

    def later() -> float:
        clock.advance_ms(1)
        return clock.monotonic_ms()

    rate = ByteRate(1_000_000, 1, later)
    rate.acquire(10_000)
    assert rate.acquire(1) > 0
