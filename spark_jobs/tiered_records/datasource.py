"""`ottla_tiered`: the data source as Spark meets it. What it reads: `spark_jobs.tiered_records`.

Filters on `partition`, `offset` and `timestamp` leave out segments, and parts of them, where
`spark.sql.python.filterPushdown.enabled` is on; Spark applies them to rows as well.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, Filter, InputPartition
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from spark_jobs.tiered_records.bucket import first_position, plan, storage_of
from spark_jobs.tiered_records.filters import narrowed
from spark_jobs.tiered_records.options import Options
from spark_jobs.tiered_records.planning import Slice
from spark_jobs.tiered_records.rows import rows_of
from spark_jobs.tiered_records.schema import RECORDS

NAME = "ottla_tiered"


@dataclass
class Task(InputPartition):
    part: Slice


class OttlaTiered(DataSource):
    """Records of one topic, from remote storage alone."""

    @classmethod
    def name(cls) -> str:
        return NAME

    def schema(self) -> StructType:
        return from_arrow_schema(RECORDS)

    def reader(self, schema: StructType) -> "Reader":
        return Reader(Options.of(self.options))


class Reader(DataSourceReader):
    def __init__(self, options: Options) -> None:
        self._options = options

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:
        self._options = replace(self._options, bounds=narrowed(self._options.bounds, filters))
        return filters

    def partitions(self) -> Sequence[InputPartition]:
        return [Task(part) for part in plan(self._options)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, Task)
        part = partition.part
        with storage_of(self._options) as storage:
            position = first_position(storage, part)
            yield from rows_of(part, storage.read_segment(part.segment, position), position)
