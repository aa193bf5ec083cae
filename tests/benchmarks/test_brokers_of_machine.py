"""Rows of several brokers of one machine: how many are measured, and the part of each."""

import pytest

from tests.benchmarks.brokers_of_machine import broker_counts, per_broker
from tests.benchmarks.report.rows import of_runs


@pytest.mark.parametrize(("cores", "counts"), [(1, [1, 2]), (2, [1, 2]), (4, [1, 2, 4]), (32, [1, 2, 4, 8])])
def test_more_brokers_are_measured_where_there_are_cores(cores: int, counts: list[int]) -> None:
    assert broker_counts(cores) == counts


def test_part_of_each_broker_has_no_counterpart() -> None:
    (total,) = of_runs(
        {"rate": ("1/s", "higher")}, {"ottla": [{"rate": 10.0}, {"rate": 30.0}], "kafka": [{"rate": 5.0}]}
    )
    each = per_broker(total, 2)
    assert (each.name, each.ottla, each.ottla_spread) == ("rate, per broker", 10.0, (5.0, 15.0))
    assert (each.kafka, each.kafka_spread, each.ratio) == (None, None, None)
