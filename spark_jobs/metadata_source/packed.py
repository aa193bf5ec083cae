"""The rows of the metadata log in packs: the content of one fetch, divided by section where it was read.

A pack is one row for Spark, whatever its size. Thousands of records travel between executors as Arrow bytes; the JVM,
which would take most of the time for single records, only forwards packs. The summary that a job needs before the fold
precedes them.
"""

from collections.abc import Iterable, Iterator
from typing import Final

import pyarrow as pa
from pyspark.sql.datasource import InputPartition
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from spark_jobs.metadata.log_rows import FROM_LOG, LOG_ROWS, split_by_section
from spark_jobs.metadata.summary import summarize
from spark_jobs.metadata_source.datasource import BatchReader, OttlaMetadata, StreamReader
from spark_jobs.metadata_source.settings import SourceSettings

NAME: Final = "ottla_metadata_packs"
HEAD: Final = -1
"""In place of a section: the content is a summary, as JSON."""
NOTHING: Final = -1

PACKS: Final = pa.schema(
    [
        pa.field("section", pa.int32(), nullable=False),
        pa.field("first", pa.int64(), nullable=False),
        pa.field("content", pa.binary(), nullable=False),
    ]
)
"""`section` is the section of the rows, or HEAD; rows of several sections are in the packs of each. `first` of a HEAD
is the first offset from the log (NOTHING without one). `content` of a section is a stream of LOG_ROWS.
"""

_ARROW: Final = pa.ipc.IpcWriteOptions(compression="lz4")


class PackedMetadata(OttlaMetadata):
    """The same log as `ottla_metadata`, with the same options."""

    @classmethod
    def name(cls) -> str:
        return NAME

    def schema(self) -> StructType:
        return from_arrow_schema(PACKS)

    def reader(self, schema: StructType) -> "PackedBatchReader":
        return PackedBatchReader(SourceSettings.of(self.options))

    def streamReader(self, schema: StructType) -> "PackedStreamReader":
        return PackedStreamReader(SourceSettings.of(self.options))


class PackedStreamReader(StreamReader):
    """A stream reader whose `read` packs rows."""

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return packs(super().read(partition))


class PackedBatchReader(BatchReader):
    """A batch reader whose `read` packs rows."""

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return packs(super().read(partition))


def packs(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Pack LOG_ROWS. Raises UnknownRecord for the first unknown record."""
    return (_packed(batch) for batch in batches if len(batch))


def _packed(rows: pa.RecordBatch) -> pa.RecordBatch:
    summary = summarize(rows)
    own = rows.column("offset").to_numpy()[rows.column("origin").to_numpy() == FROM_LOG]
    found = [{"section": HEAD, "first": int(own.min()) if len(own) else NOTHING, "content": summary.to_json()}]
    for section, mine in split_by_section(pa.Table.from_batches([rows]), summary.sections):
        found.append({"section": section, "first": NOTHING, "content": pack(mine)})
    return pa.RecordBatch.from_pylist(found, PACKS)


def pack(rows: pa.Table) -> bytes:
    """Encode LOG_ROWS as the content of a pack."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, LOG_ROWS, options=_ARROW) as writer:
        writer.write_table(rows)
    return bytes(sink.getvalue())


def unpacked(contents: Iterable[bytes]) -> pa.Table:
    """Return the LOG_ROWS of some packs."""
    return pa.concat_tables([LOG_ROWS.empty_table(), *(pa.ipc.open_stream(each).read_all() for each in contents)])
