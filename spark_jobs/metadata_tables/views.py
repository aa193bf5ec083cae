"""The tables in Spark: a view for each, and one of what is now for each history."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from spark_jobs.metadata_tables.schemas import KEYS, TABLES
from spark_jobs.metadata_tables.sink import live_files
from spark_jobs.metadata_tables.table_store import TableStore
from storage.tiered.store_uri import parse_store_uri

NAME: Final = "ottla_table"
QUERIES: Final = Path(__file__).parent / "queries"
"""A file for each example, with parameters as `:name`."""


def register_tables(spark: SparkSession, uri: str) -> None:
    """Temporary views of all tables, and `<table>_now` of histories: what exists, without what is gone."""
    spark.dataSource.register(MetadataTable)
    for table in TABLES:
        read_table(spark, uri, table).createOrReplaceTempView(table)
    for table, keys in KEYS.items():
        spark.sql(_now(table, keys)).createOrReplaceTempView(f"{table}_now")


def read_table(spark: SparkSession, uri: str, table: str) -> DataFrame:
    """The table as its files are listed when the query is planned."""
    return spark.read.format(NAME).option("uri", uri).option("table", table).load()


def query(name: str) -> str:
    """The text of an example."""
    return (QUERIES / f"{name}.sql").read_text()


def _now(table: str, keys: Sequence[str]) -> str:
    columns = ", ".join(name for name in TABLES[table].names if name != "removed")
    by = ", ".join(keys)
    latest = f"SELECT *, row_number() OVER (PARTITION BY {by} ORDER BY from_offset DESC) AS age FROM {table}"
    return f"SELECT {columns} FROM ({latest}) WHERE age = 1 AND NOT removed"


@dataclass
class Files(InputPartition):
    names: tuple[str, ...]


class MetadataTable(DataSource):
    """A table wherever it is: buckets need no Hadoop file system. Options: `uri`, `table`, `maxPartitions`."""

    @classmethod
    def name(cls) -> str:
        return NAME

    def schema(self) -> StructType:
        return from_arrow_schema(TABLES[self._table()])

    def reader(self, schema: StructType) -> "Reader":
        store = TableStore(parse_store_uri(self.options["uri"]))
        return Reader(store, self._table(), int(self.options.get("maxPartitions", DEFAULT_PARTITIONS)))

    def _table(self) -> str:
        table = self.options.get("table", "")
        if table not in TABLES:
            raise ValueError(f"table must be one of {', '.join(TABLES)}, not {table!r}.")
        return table


DEFAULT_PARTITIONS: Final = 8


class Reader(DataSourceReader):
    def __init__(self, store: TableStore, table: str, partitions: int) -> None:
        self._store = store
        self._table = table
        self._partitions = partitions

    def partitions(self) -> Sequence[InputPartition]:
        """Files dealt out by size, the largest first."""
        shares: list[list[str]] = [[] for _ in range(self._partitions)]
        sizes = [0] * self._partitions
        for file in sorted(live_files(self._store, self._table), key=lambda each: -each.size):
            lightest = sizes.index(min(sizes))
            shares[lightest].append(file.name)
            sizes[lightest] += file.size
        return [Files(tuple(share)) for share in shares if share] or [Files(())]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, Files)
        for name in partition.names:
            yield from self._store.read(name).cast(TABLES[self._table]).to_batches(max_chunksize=100_000)
