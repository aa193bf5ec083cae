"""The effect of a query's filters on the plan. No Spark runs."""

from datetime import UTC, datetime, timedelta

import pytest

pytest.importorskip("pyspark", reason="PySpark is not installed: pip install 'ottla[spark]'")

import pyarrow as pa
from pyspark.sql.datasource import (
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    LessThan,
    LessThanOrEqual,
    Not,
)
from pyspark.sql.pandas.types import from_arrow_schema

from spark_jobs.tiered_records.bounds import EVER, EVERYTHING, ReadBounds
from spark_jobs.tiered_records.datasource import columns_of
from spark_jobs.tiered_records.filters import narrowed
from spark_jobs.tiered_records.options import InvalidOption
from spark_jobs.tiered_records.schema import RECORDS

TIME = datetime(2026, 1, 2, tzinfo=UTC)
TIME_MS = int(TIME.timestamp()) * 1000
BETWEEN = TIME + timedelta(microseconds=1)


@pytest.mark.parametrize(
    ("filter", "bounds"),
    [
        (EqualTo(("topic",), "a"), ReadBounds(topics=frozenset("a"))),
        (In(("topic",), ("a", "b")), ReadBounds(topics=frozenset("ab"))),
        (EqualTo(("partition",), 3), ReadBounds(partitions=frozenset({3}))),
        (In(("partition",), (3, 4)), ReadBounds(partitions=frozenset({3, 4}))),
        (EqualTo(("offset",), 7), ReadBounds(first=7, end=8)),
        (GreaterThan(("offset",), 7), ReadBounds(first=7)),
        (GreaterThanOrEqual(("offset",), 7), ReadBounds(first=7)),
        (LessThan(("offset",), 7), ReadBounds(end=8)),
        (LessThanOrEqual(("offset",), 7), ReadBounds(end=8)),
        (GreaterThanOrEqual(("timestamp",), TIME), ReadBounds(from_ms=TIME_MS)),
        (LessThanOrEqual(("timestamp",), BETWEEN), ReadBounds(to_ms=TIME_MS + 1)),
        (EqualTo(("timestamp",), TIME), ReadBounds(from_ms=TIME_MS, to_ms=TIME_MS + 1)),
        (LessThan(("timestamp",), datetime(2026, 1, 2)), ReadBounds()),
        (Not(EqualTo(("offset",), 7)), ReadBounds()),
        (IsNotNull(("offset",)), ReadBounds()),
        (EqualTo(("key",), b"k"), ReadBounds()),
        (EqualTo(("headers", "key"), "k"), ReadBounds()),
    ],
)
def test_filter_excludes_no_matching_record(filter: Filter, bounds: ReadBounds) -> None:
    assert narrowed(ReadBounds(), [filter]) == bounds


def test_filters_and_options_are_combined() -> None:
    given = ReadBounds(partitions=frozenset({1, 2}), first=5, end=50, from_ms=TIME_MS + 5)
    filters = [EqualTo(("partition",), 2), GreaterThan(("offset",), 3), LessThan(("offset",), 20)]
    found = narrowed(given, [*filters, GreaterThan(("timestamp",), TIME)])
    assert found == ReadBounds(partitions=frozenset({2}), first=5, end=21, from_ms=TIME_MS + 5)
    assert found.wants("any", 2)
    assert not found.wants("any", 1)
    assert narrowed(found, [EqualTo(("partition",), 1)]).partitions == frozenset()


def test_offsets_are_set_by_topic_by_partition_and_for_all() -> None:
    bounds = ReadBounds(first=1, firsts={("a", 0): 7, ("", 0): 5, ("", 1): 0}, ends={("a", 0): 9})
    assert bounds.offsets_of("a", 0) == (7, 9)
    assert bounds.offsets_of("b", 0) == (5, EVERYTHING)
    assert bounds.offsets_of("b", 1) == (1, EVERYTHING)
    assert bounds.from_ms == EVER


def test_columns_are_those_of_a_record() -> None:
    assert columns_of(from_arrow_schema(RECORDS)) == RECORDS
    few = pa.schema([pa.field("offset", pa.int64()), pa.field("key", pa.binary())])
    assert columns_of(from_arrow_schema(few)) == few
    with pytest.raises(InvalidOption, match="no column offsets; the columns are topic, partition, offset"):
        columns_of(from_arrow_schema(pa.schema([pa.field("offsets", pa.int64())])))
    with pytest.raises(InvalidOption, match="column key has type binary, not string"):
        columns_of(from_arrow_schema(pa.schema([pa.field("key", pa.string())])))
