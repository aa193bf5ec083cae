"""The rate limit for remote reads (`broker.fetch.remote_reads.quota`)."""

from broker.fetch.remote_reads.quota import UNLIMITED, RemoteReadQuota
from tests.support.fakes.clock import ManualClock

RATE = 1000


def test_reservations_queue_behind_the_unused_bandwidth() -> None:
    clock = ManualClock()
    quota = RemoteReadQuota(clock, window_ms=2000)
    assert [quota.reserve(1000, RATE) for _ in range(5)] == [0, 0, 0, 1000, 2000]
    assert (quota.use.wait_avg_ms, quota.use.wait_max_ms) == (1500, 2000)


def test_rate_holds_and_unused_bandwidth_is_limited_to_a_window() -> None:
    clock = ManualClock()
    quota = RemoteReadQuota(clock, window_ms=2000)
    clock.advance_ms(1_000_000)
    assert [quota.reserve(1000, RATE) for _ in range(4)] == [0, 0, 0, 1000]


def test_unread_bytes_are_given_back() -> None:
    quota = RemoteReadQuota(ManualClock(), window_ms=0)
    quota.reserve(5000, RATE)
    quota.give_back(4000, RATE)
    assert quota.reserve(1, RATE) == 1000


def test_unlimited_rate_never_waits() -> None:
    quota = RemoteReadQuota(ManualClock())
    for _ in range(3):
        assert quota.reserve(2**40, UNLIMITED) == 0
    quota.give_back(2**40, UNLIMITED)
    assert quota.reserve(1, RATE) == 0
