"""Recent use of a quota (`broker.metrics.quota_use`)."""

import pytest

from broker.metrics.quota_use import QuotaUse
from tests.support.fakes.clock import ManualClock


def test_waits_cover_the_last_half_minutes() -> None:
    clock = ManualClock()
    use = QuotaUse(clock)
    assert (use.wait_avg_ms, use.wait_max_ms) == (0, 0)
    use.waited(100)
    clock.advance_ms(30_000)
    use.waited(10)
    use.waited(40)
    assert (use.wait_avg_ms, use.wait_max_ms) == (50, 100)
    clock.advance_ms(30_000)
    assert (use.wait_avg_ms, use.wait_max_ms) == (25, 40)
    clock.advance_ms(30_000)
    assert (use.wait_avg_ms, use.wait_max_ms) == (0, 0)


def test_rate_covers_the_quotas_windows() -> None:
    clock = ManualClock()
    use = QuotaUse(clock, 11_000)
    for _ in range(22):
        use.used(1_500)
        use.used(-500)
        clock.advance_ms(1_000)
    assert use.bytes_per_second == pytest.approx(1_000, rel=0.1)
    clock.advance_ms(11_000)
    assert use.bytes_per_second == 0
