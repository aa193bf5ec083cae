"""`ottla_tiered`: the Spark data source of `spark_jobs.tiered_records`.

After `register`, filters on `topic`, `partition`, `offset` and `timestamp` exclude segments and parts of them; Spark
applies the filters to rows as well. Spark refuses a source with filters while `spark.sql.python.filterPushdown.enabled`
is off, its default, so OttlaTiered alone uses options only.

Spark does not pass the columns of a query to data sources in Python: a schema with few columns avoids the others.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSource, DataSourceReader, Filter, InputPartition
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema
from pyspark.sql.types import StructType

from spark_jobs.tiered_records.bucket import bucket_of, plan
from spark_jobs.tiered_records.filters import narrowed
from spark_jobs.tiered_records.options import InvalidOption, Options
from spark_jobs.tiered_records.planning import SegmentRange
from spark_jobs.tiered_records.reading import read
from spark_jobs.tiered_records.schema import RECORDS

NAME = "ottla_tiered"
_TAKES_FILTERS = "spark.sql.python.filterPushdown.enabled"


def register(spark: SparkSession) -> None:
    """Register the source in a session and enable filter push-down, which then applies to all sources in Python."""
    spark.conf.set(_TAKES_FILTERS, "true")
    spark.dataSource.register(FilteredTiered)


@dataclass
class TieredInputPartition(InputPartition):
    part: SegmentRange


class OttlaTiered(DataSource):
    """Records of topics, from remote storage alone."""

    @classmethod
    def name(cls) -> str:
        return NAME

    def schema(self) -> StructType:
        return from_arrow_schema(RECORDS)

    def reader(self, schema: StructType) -> "TieredReader":
        return TieredReader(Options.of(self.options), columns_of(schema))


class FilteredTiered(OttlaTiered):
    """OttlaTiered without the segments that a query's filters exclude."""

    def reader(self, schema: StructType) -> "FilteredTieredReader":
        return FilteredTieredReader(Options.of(self.options), columns_of(schema))


def columns_of(schema: StructType) -> pa.Schema:
    """Return the columns of RECORDS in a schema, with its nullability. Raises InvalidOption."""
    wanted = to_arrow_schema(schema, timezone="UTC")
    for column in wanted:
        if column.name not in RECORDS.names:
            raise InvalidOption(f"there is no column {column.name}; the columns are {', '.join(RECORDS.names)}.")
        if column.type != RECORDS.field(column.name).type:
            raise InvalidOption(f"column {column.name} has type {RECORDS.field(column.name).type}, not {column.type}.")
    return wanted


class TieredReader(DataSourceReader):
    def __init__(self, options: Options, columns: pa.Schema) -> None:
        self._options = options
        self._columns = columns

    def partitions(self) -> Sequence[InputPartition]:
        return [TieredInputPartition(part) for part in plan(self._options)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Read a partition; for an empty plan Spark passes a partition of another type."""
        if isinstance(partition, TieredInputPartition):
            storage = bucket_of(self._options).storage
            yield from read(storage, partition.part, schema=self._columns, may_miss=self._options.may_miss)


class FilteredTieredReader(TieredReader):
    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:
        """Return all filters, so that Spark applies them too."""
        self._options = replace(self._options, bounds=narrowed(self._options.bounds, filters))
        return filters
