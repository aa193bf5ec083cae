"""Quantiles of a histogram in constant space: never too low, at most one bucket too high."""

import math

from hypothesis import given
from hypothesis import strategies as st

from broker.metrics.histogram import BUCKETS_PER_DOUBLING, Histogram


@given(values=st.lists(st.integers(0, 2**42), min_size=1), quantile=st.floats(0.0, 1.0))
def test_quantile_is_at_most_one_bucket_above_the_true_value(values: list[int], quantile: float) -> None:
    histogram = Histogram()
    for value in values:
        histogram.record(value)
    (found,) = histogram.quantiles((quantile,))
    true = sorted(values)[max(0, math.ceil(quantile * len(values)) - 1)]
    if true < 2**40:
        assert true <= found <= true * (1 + 1 / BUCKETS_PER_DOUBLING)
    assert (histogram.count, histogram.total) == (len(values), sum(values))


def test_quantiles_ascend() -> None:
    histogram = Histogram()
    for value in range(1000):
        histogram.record(value)
    median, high, top = histogram.quantiles((0.5, 0.99, 1.0))
    assert 499 <= median <= 530
    assert 989 <= high <= 1052
    assert 999 <= top <= 1062


def test_quantiles_without_observations_are_zero() -> None:
    assert Histogram().quantiles((0.5, 0.99)) == [0, 0]


def test_negative_duration_counts_as_zero() -> None:
    histogram = Histogram()
    histogram.record(-5)
    assert (histogram.count, histogram.total, histogram.quantiles((1.0,))) == (1, 0, [0])


def test_observations_leave_quantiles_after_two_rotations_but_not_totals() -> None:
    histogram = Histogram()
    histogram.record(1000)
    histogram.rotate()
    histogram.record(10)
    assert histogram.quantiles((1.0,))[0] >= 1000
    histogram.rotate()
    assert histogram.quantiles((1.0,)) == [10]
    histogram.rotate()
    assert histogram.quantiles((1.0,)) == [0]
    assert (histogram.count, histogram.total) == (2, 1010)
