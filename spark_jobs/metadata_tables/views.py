"""The tables in Spark: a view of each table, and one of the current state for each history."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from spark_jobs.metadata_tables.reading import Share, read_share, shares
from spark_jobs.metadata_tables.schemas import KEYS, TABLES
from spark_jobs.metadata_tables.table_store import TableStore
from storage.tiered.loading.store_uri import parse_store_uri

NAME: Final = "ottla_table"
QUERIES: Final = Path(__file__).parent / "queries"
"""SQL files of the examples, with parameters as `:name`."""


def register_tables(spark: SparkSession, uri: str) -> None:
    """Create temporary views of all tables, and `<table>_now` views of existing entities for histories."""
    spark.dataSource.register(MetadataTable)
    for table in TABLES:
        read_table(spark, uri, table).createOrReplaceTempView(table)
    for table, keys in KEYS.items():
        spark.sql(_now(table, keys)).createOrReplaceTempView(f"{table}_now")


def read_table(spark: SparkSession, uri: str, table: str) -> DataFrame:
    """Return the table as of the planning of the query; the job may continue meanwhile."""
    return spark.read.format(NAME).option("uri", uri).option("table", table).load()


def query(name: str) -> str:
    """Return the SQL of an example."""
    return (QUERIES / f"{name}.sql").read_text()


def _now(table: str, keys: Sequence[str]) -> str:
    columns = ", ".join(name for name in TABLES[table].names if name != "removed")
    by = ", ".join(keys)
    latest = f"SELECT *, row_number() OVER (PARTITION BY {by} ORDER BY from_offset DESC) AS age FROM {table}"
    return f"SELECT {columns} FROM ({latest}) WHERE age = 1 AND NOT removed"


@dataclass
class TableInputPartition(InputPartition):
    shares: tuple[Share, ...]


class MetadataTable(DataSource):
    """A table in any location, without a Hadoop file system for buckets. Options: `uri`, `table`, `maxPartitions`."""

    @classmethod
    def name(cls) -> str:
        return NAME

    def schema(self) -> StructType:
        return from_arrow_schema(TABLES[self._table()])

    def reader(self, schema: StructType) -> "MetadataTableReader":
        store = TableStore(parse_store_uri(self.options["uri"]))
        return MetadataTableReader(store, self._table(), int(self.options.get("maxPartitions", DEFAULT_PARTITIONS)))

    def _table(self) -> str:
        table = self.options.get("table", "")
        if table not in TABLES:
            raise ValueError(f"table must be one of {', '.join(TABLES)}, not {table!r}.")
        return table


DEFAULT_PARTITIONS: Final = 8


class MetadataTableReader(DataSourceReader):
    def __init__(self, store: TableStore, table: str, partitions: int) -> None:
        self._store = store
        self._table = table
        self._partitions = partitions

    def partitions(self) -> Sequence[InputPartition]:
        """Distribute shares by size, the largest first."""
        dealt: list[list[Share]] = [[] for _ in range(self._partitions)]
        sizes = [0] * self._partitions
        for share in sorted(shares(self._store, self._table), key=lambda each: -each.size):
            lightest = sizes.index(min(sizes))
            dealt[lightest].append(share)
            sizes[lightest] += share.size
        return [TableInputPartition(tuple(each)) for each in dealt if each] or [TableInputPartition(())]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, TableInputPartition)
        for share in partition.shares:
            yield from read_share(self._store, self._table, share)
