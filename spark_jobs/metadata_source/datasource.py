"""`ottla_metadata`: the Spark data source for streaming and batch reads.

    spark.dataSource.register(OttlaMetadata)
    rows = spark.readStream.format("ottla_metadata").option("kafka.bootstrap.servers", "broker:9092").load()

Rows are LOG_ROWS, including control records. Spark's checkpoint keeps positions with epoch and cluster id; both are
checked whenever a broker is looked up, so that the checkpoint of another or a recreated cluster is refused.
"""

from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from broker.client import Client
from spark_jobs.metadata.log_rows import LOG_ROWS
from spark_jobs.metadata_source.batch_end import TriggerLimit, next_end
from spark_jobs.metadata_source.metadata_log import MetadataLogClient, SourceRefused
from spark_jobs.metadata_source.plan import Part, plan
from spark_jobs.metadata_source.position import NO_EPOCH, InvalidPosition, MetadataPosition
from spark_jobs.metadata_source.reading import read_part
from spark_jobs.metadata_source.settings import LATEST, SourceSettings

NAME = "ottla_metadata"


@dataclass
class MetadataInputPartition(InputPartition):
    """The part that one executor reads, and its cluster."""

    part: Part
    cluster_id: str


class OttlaMetadata(DataSource):
    """The committed part of the metadata log of a cluster."""

    @classmethod
    def name(cls) -> str:
        return NAME

    def schema(self) -> StructType:
        return from_arrow_schema(LOG_ROWS)

    def reader(self, schema: StructType) -> "BatchReader":
        return BatchReader(SourceSettings.of(self.options))

    def streamReader(self, schema: StructType) -> "StreamReader":
        return StreamReader(SourceSettings.of(self.options))


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Plans micro-batches in the driver's worker, where the reader lives as long as the query; `read` runs in
    executors.
    """

    def __init__(self, settings: SourceSettings) -> None:
        self._settings = settings
        self._ending = settings.ending_offset
        self._log: MetadataLogClient | None = None
        self._checked = 0

    def initialOffset(self) -> dict[str, object]:
        return _starting(self._open(), self._settings).to_json()

    def getDefaultReadLimit(self) -> ReadLimit:
        if self._settings.max_bytes is not None:
            return ReadMaxBytes(self._settings.max_bytes)
        return ReadAllAvailable() if self._settings.max_rows is None else ReadMaxRows(self._settings.max_rows)

    def prepareForTriggerAvailableNow(self) -> None:
        if self._ending is None:
            self._ending = self._open().bounds().end

    def latestOffset(self, start: dict[str, object], limit: ReadLimit) -> dict[str, object]:
        """Wait a moment for new records, so that the tail costs one request per half a second."""
        position = _position(start)
        log = self._open(position.cluster_id)
        self._check(log, position)
        return next_end(log, position, _trigger_limit(limit, self._ending), self._settings.max_wait_ms).to_json()

    def partitions(self, start: dict[str, object], end: dict[str, object]) -> Sequence[InputPartition]:
        begin = _position(start)
        log = self._open(begin.cluster_id)
        self._check(log, begin)
        return _tasks(log, begin, _position(end), self._settings)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return _read(self._settings, partition)

    def stop(self) -> None:
        if self._log is not None:
            self._log.close()

    def _open(self, cluster_id: str | None = None) -> MetadataLogClient:
        if self._log is None:
            self._log = MetadataLogClient(Client(self._settings.client), cluster_id)
        elif cluster_id is not None and self._log.cluster_id != cluster_id:
            raise SourceRefused(
                f"the checkpoint belongs to cluster {cluster_id}, but the brokers belong to {self._log.cluster_id};"
                " use another checkpoint location."
            )
        return self._log

    def _check(self, log: MetadataLogClient, position: MetadataPosition) -> None:
        if log.contacts == 0 or log.contacts != self._checked:
            log.check(position)
            self._checked = log.contacts


class BatchReader(DataSourceReader):
    """Reads the records that are committed when the read is planned."""

    def __init__(self, settings: SourceSettings) -> None:
        self._settings = settings

    def partitions(self) -> Sequence[InputPartition]:
        with closing(MetadataLogClient(Client(self._settings.client))) as log:
            start = _starting(log, self._settings)
            if start.cluster_id != log.cluster_id:
                raise SourceRefused(f"{start} is a position in the log of another cluster than {log.cluster_id}.")
            log.check(start)
            end = MetadataPosition(self._settings.ending_offset or log.bounds().end, NO_EPOCH, start.cluster_id)
            return _tasks(log, start, end, self._settings)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return _read(self._settings, partition)


def _starting(log: MetadataLogClient, settings: SourceSettings) -> MetadataPosition:
    if isinstance(settings.starting, MetadataPosition):
        return settings.starting
    if settings.starting == LATEST:
        end = log.bounds().end
        last = log.batch_at(end - 1)
        if last is not None:
            return MetadataPosition(last.next_offset, last.leader_epoch, log.cluster_id)
    return MetadataPosition(0, NO_EPOCH, log.cluster_id)


def _position(offset: dict[str, object]) -> MetadataPosition:
    try:
        return MetadataPosition.from_json(offset)
    except InvalidPosition as error:
        raise SourceRefused(f"the checkpoint belongs to another data source: {error}.") from error


def _trigger_limit(limit: ReadLimit, ending: int | None) -> TriggerLimit:
    rows = limit.max_rows if isinstance(limit, ReadMaxRows) else None
    size = limit.max_bytes if isinstance(limit, ReadMaxBytes) else None
    return TriggerLimit(rows, size, ending)


def _tasks(
    log: MetadataLogClient, start: MetadataPosition, end: MetadataPosition, settings: SourceSettings
) -> list[InputPartition]:
    return [MetadataInputPartition(part, start.cluster_id) for part in plan(log, start, end, settings.max_partitions)]


def _read(settings: SourceSettings, partition: InputPartition) -> Iterator[pa.RecordBatch]:
    assert isinstance(partition, MetadataInputPartition)
    with closing(MetadataLogClient(Client(settings.client), partition.cluster_id)) as log:
        yield from read_part(log, partition.part)
