"""Rates over windows."""

import pytest

from broker.rates.windowed_rate import QuotaWindows, WindowedRate

ELEVEN_SECONDS = QuotaWindows()


def test_first_second_is_averaged_over_the_full_windows() -> None:
    rate = WindowedRate(ELEVEN_SECONDS)
    rate.record(10_000, 0.0)
    assert rate.per_second(0.0) == 1_000.0
    assert rate.per_second(500.0) == 1_000.0
    assert rate.per_second(9_999.0) == 1_000.0


def test_elapsed_time_never_falls_at_the_end_of_a_window() -> None:
    rate = WindowedRate(QuotaWindows(2, 1_000))
    rate.record(1_500, 0.0)
    assert rate.throttle_ms(1_000, 999.0) == rate.throttle_ms(1_000, 1_000.0) == 500


def test_idle_client_may_use_all_windows_but_one_at_once() -> None:
    rate = WindowedRate(ELEVEN_SECONDS)
    rate.record(1_000 * ELEVEN_SECONDS.burst_s, 0.0)
    assert rate.throttle_ms(1_000, 0.0) == 0


def test_throttle_time_brings_the_rate_down_to_the_bound() -> None:
    rate = WindowedRate(ELEVEN_SECONDS)
    for second in range(11):
        rate.record(1_050, second * 1_000.0)
    pause_ms = rate.throttle_ms(1_000, 10_000.0)
    assert pause_ms == 1_550
    assert rate.throttle_ms(1_000, 10_999.0) == pytest.approx(1_550 - 999, abs=1)


def test_pause_in_the_first_windows_is_computed_over_all_windows() -> None:
    rate = WindowedRate(ELEVEN_SECONDS)
    rate.record(15_000, 0.0)
    assert rate.throttle_ms(1_000, 0.0) == 5_000
    assert rate.throttle_ms(1_000, 5_000.0) == 5_000
    assert rate.throttle_ms(1_000, 10_500.0) == 4_500
    assert rate.throttle_ms(1_000, 11_000.0) == 0


def test_negative_record_takes_a_value_back() -> None:
    rate = WindowedRate(ELEVEN_SECONDS)
    rate.record(700, 10.0)
    rate.record(-700, 10.0)
    assert rate.is_empty(10.0)


def test_sample_expires_after_all_windows_without_an_event() -> None:
    rate = WindowedRate(QuotaWindows(2, 1_000))
    rate.record(100, 0.0)
    rate.record(100, 900.0)
    assert rate.per_second(2_899.0) > 0
    assert rate.per_second(2_900.0) == 0.0


def test_older_overlapping_sample_lengthens_the_elapsed_time() -> None:
    rate = WindowedRate(QuotaWindows(2, 1_000))
    rate.record(300, 0.0)
    rate.record(0, 900.0)
    rate.record(300, 1_500.0)
    assert rate.per_second(2_500.0) == pytest.approx(600 / 2.5)


def test_samples_are_bounded() -> None:
    rate = WindowedRate(QuotaWindows(3, 100))
    for now_ms in range(0, 100_000, 50):
        rate.record(5, now_ms)
    assert len(rate._samples) <= 4
    assert rate.per_second(99_950.0) == pytest.approx(100, rel=0.25)


@pytest.mark.parametrize("windows", [QuotaWindows(11, 1_000), QuotaWindows(2, 1_000), QuotaWindows(5, 2_000)])
@pytest.mark.parametrize("request_bytes", [1_000, 64_000, 1_000_000])
def test_obedient_client_uses_its_quota_and_no_more(windows: QuotaWindows, request_bytes: int) -> None:
    rate, bound, now_ms, total = WindowedRate(windows), 1_000_000.0, 0.0, 0
    while now_ms < 120_000:
        rate.record(request_bytes, now_ms)
        total += request_bytes
        now_ms += max(rate.throttle_ms(bound, now_ms), 0.1)
    most = bound * (now_ms / 1000 + windows.burst_s) + request_bytes
    assert 0.99 * bound * now_ms / 1000 <= total <= 1.001 * most
