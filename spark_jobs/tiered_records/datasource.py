"""`ottla_tiered`: the data source as Spark meets it. What it reads: `spark_jobs.tiered_records`.

With `register`, filters on `topic`, `partition`, `offset` and `timestamp` leave out segments, and parts of them; Spark
applies them to rows as well. It refuses a source that takes filters while `spark.sql.python.filterPushdown.enabled` is
off, which is its default, so OttlaTiered registered by itself takes none, and options alone leave out segments.

Which columns a query needs is not told to data sources in Python: who wants few gives a schema of these alone, and the
others are not made.
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
    """Make the source known to a session, and have Spark hand it filters, as it does then to all sources in Python."""
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
    """As OttlaTiered, without the segments that a query's filters leave out."""

    def reader(self, schema: StructType) -> "FilteredTieredReader":
        return FilteredTieredReader(Options.of(self.options), columns_of(schema))


def columns_of(schema: StructType) -> pa.Schema:
    """Those of RECORDS that a schema asks for, as nullable as it says. Raises InvalidOption."""
    wanted = to_arrow_schema(schema, timezone="UTC")
    for column in wanted:
        if column.name not in RECORDS.names:
            raise InvalidOption(f"There is no column {column.name}, but {', '.join(RECORDS.names)}.")
        if column.type != RECORDS.field(column.name).type:
            raise InvalidOption(f"Column {column.name} is {RECORDS.field(column.name).type}, not {column.type}.")
    return wanted


class TieredReader(DataSourceReader):
    def __init__(self, options: Options, columns: pa.Schema) -> None:
        self._options = options
        self._columns = columns

    def partitions(self) -> Sequence[InputPartition]:
        return [TieredInputPartition(part) for part in plan(self._options)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Where nothing is to be read, Spark asks for a partition all the same, which is none of ours."""
        if isinstance(partition, TieredInputPartition):
            storage = bucket_of(self._options).storage
            yield from read(storage, partition.part, schema=self._columns, may_miss=self._options.may_miss)


class FilteredTieredReader(TieredReader):
    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:
        """All of them are Spark's to apply, too."""
        self._options = replace(self._options, bounds=narrowed(self._options.bounds, filters))
        return filters
