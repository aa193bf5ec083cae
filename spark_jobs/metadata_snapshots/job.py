"""The job: it streams rows into the fold and decides when to write a snapshot of the state.

Three modes: `once`, `at` an offset, and `tail`, which runs until it is stopped. Every mode may be killed at any moment
and started again.
"""

import contextlib
import json
import os
import shutil
import socket
import tempfile
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Final, Protocol

import pyarrow as pa
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.streaming.query import StreamingQuery

from broker.client import Client, ClientConfig
from broker.metadata.image.metadata_version import MetadataVersion
from broker.metadata.snapshot.manifest import SnapshotManifest
from spark_jobs.metadata.snapshot_file import EncodeContext
from spark_jobs.metadata_snapshots.changes import ChangeSink
from spark_jobs.metadata_snapshots.commits import Commit, Since, empty
from spark_jobs.metadata_snapshots.encoding import Encoding
from spark_jobs.metadata_snapshots.failures import failure_of
from spark_jobs.metadata_snapshots.micro_batch import MicroBatches
from spark_jobs.metadata_snapshots.out_check import check_out
from spark_jobs.metadata_snapshots.ownership import Ownership
from spark_jobs.metadata_snapshots.report import JobReport
from spark_jobs.metadata_snapshots.retrying import Retrying
from spark_jobs.metadata_snapshots.snapshot_store import ObjectSnapshotStore
from spark_jobs.metadata_snapshots.state_store import BRANCHES, STATE, StateStore
from spark_jobs.metadata_snapshots.stop_flag import StopFlag
from spark_jobs.metadata_source.metadata_log import LogTrimmed, MetadataLogClient, SourceRefused
from spark_jobs.metadata_source.packed import NAME, PACKS, PackedMetadata, packs
from spark_jobs.metadata_source.reading import snapshot_rows
from spark_jobs.metadata_source.settings import CLIENT_PREFIX, ENDING_OFFSET, MAX_ROWS, STARTING_OFFSET
from storage.tiered.errors import ObjectNotFound, ObjectStoreError
from storage.tiered.loading.store_uri import StoreUri

_FAILURES: Final = (PySparkException, Py4JJavaError, ObjectStoreError)
"""Exceptions of a query, of a job of executors, and of the store."""
_LOCAL: Final = "file:"
"""Prefix of a path on the local disk: without a scheme it would be in the file system of a Spark cluster."""
POLL_S: Final = 1
"""Seconds between a tail's checks for a stop and for a snapshot due by time."""
OPEN_PATIENCE_S: Final = 60
"""Seconds that `once` waits for a metadata transaction to end: the controller ends them at once."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobSettings:
    """The settings of a job.

    `client` are client properties. `checkpoint` is the location of Spark's offsets (None: beside the state for a tail,
    else temporary). `trigger_s` is the minimum time between starts of micro-batches. `keep` is the number of snapshots
    to keep (None: all).
    """

    bootstrap: str
    out: StoreUri
    client: Mapping[str, str] = field(default_factory=dict)
    checkpoint: str | None = None
    trigger_s: float = 1.0
    max_rows: int | None = None
    keep: int | None = None
    sink: ChangeSink | None = None

    def options(self) -> dict[str, str]:
        """The options of the data source."""
        options = {f"{CLIENT_PREFIX}{key}": value for key, value in self.client.items()}
        if self.max_rows is not None:
            options[MAX_ROWS] = str(self.max_rows)
        return options | {f"{CLIENT_PREFIX}bootstrap.servers": self.bootstrap}

    def open_log(self) -> MetadataLogClient:
        """Open the log for the driver, which does not wait for an unavailable cluster. Raises the exceptions of its
        requests.
        """
        return MetadataLogClient(Client(ClientConfig.parse(self.bootstrap, self.client)), is_patient=False)


class Due(Protocol):
    """The rule that `Schedule` implements."""

    def is_due(self, commit: Commit, since_last_ms: float) -> bool: ...


class Stopping(Exception):
    """The job is stopping and begins no further step."""


class Job:
    """A run of the job. Raises the exceptions that `failures.failure_of` knows."""

    def __init__(self, spark: SparkSession, settings: JobSettings, log: MetadataLogClient, report: JobReport) -> None:
        """`log` is closed by the caller."""
        self._spark = spark
        self._settings = settings
        self._report = report
        self._snapshots = ObjectSnapshotStore(settings.out)
        self._trunk = StateStore(settings.out)
        self._owner = Ownership(self._trunk, uuid.uuid4().hex, f"process {os.getpid()} on {socket.gethostname()}")
        self._log = log
        self._cluster_id = log.cluster_id
        self._turn = threading.Lock()
        self._stop = StopFlag()
        self._retrying = Retrying(_FAILURES, self._stop, report.retries)
        self._distrusts_checkpoint = False
        self.is_tailing = False
        spark.dataSource.register(PackedMetadata)
        check_out(settings.out, self._cluster_id)
        now_ms = time.time_ns() // 1_000_000
        self._trunk.remove_left_branches(now_ms)
        self._snapshots.remove_left(now_ms)

    def stop(self) -> None:
        """Make `tail` return soon. May be called from a signal handler."""
        self._stop.set()

    @property
    def is_stopping(self) -> bool:
        return self._stop.is_set()

    # Modes

    def once(self) -> SnapshotManifest:
        """Write a snapshot at the current high watermark, or at the end of the state if that is further."""
        batches = self._begin()
        end, deadline = self._log.bounds().end, time.monotonic() + OPEN_PATIENCE_S
        self._fold_up_to(batches, end)
        while batches.commit.is_open or not batches.commit.end:
            if time.monotonic() >= deadline:
                since = batches.commit.open_since
                is_open = f"a metadata transaction has been open since offset {since}."
                raise SourceRefused(is_open if since >= 0 else "nothing is committed in the metadata log.")
            self._stop.wait(POLL_S)
            self._fold_up_to(batches, self._log.bounds().end)
        return self._cut(batches)

    def at(self, offset: int) -> SnapshotManifest:
        """Write the snapshot that ends at an offset, the end of a batch. The state of other runs stays unchanged."""
        found = self._snapshots.manifest_at(offset)
        if found is not None and found.cluster_id == self._cluster_id:
            self._report.snapshot(found, str(self._settings.out), is_new=False)
            return found
        branch = StateStore(self._settings.out, branch=f"{BRANCHES}{offset:020d}-{uuid.uuid4().hex}/")
        try:
            return self._at(branch, offset, uses_trunk=True)
        except _FAILURES as error:
            failure = failure_of(error)
            if failure is None or failure.kind != ObjectNotFound.__name__:
                raise
            branch.remove_branch()  # a tail may have removed files of its begin; the log has all records
            return self._at(branch, offset, uses_trunk=False)
        finally:
            branch.remove_branch()

    def _at(self, branch: StateStore, offset: int, *, uses_trunk: bool) -> SnapshotManifest:
        batches = self._before(branch, offset, self._trunk.newest_commit(offset) if uses_trunk else None)
        self._fold_up_to(batches, offset)
        if batches.commit.end > offset:
            raise SourceRefused(
                f"the metadata log no longer has the records before offset {offset}: it begins with a snapshot that"
                f" ends at {batches.commit.end}."
            )
        if batches.commit.is_open or batches.commit.end != offset:
            raise SourceRefused(f"offset {offset} lies in a metadata transaction.")
        return self._cut(batches, branch)

    def tail(self, schedule: Due) -> None:
        """Fold new records, and write a snapshot whenever one is due, until `stop`."""
        batches = self._begin()
        self.is_tailing = True
        last_s = self._last_snapshot_s()

        def cut_if_due() -> None:
            nonlocal last_s
            if schedule.is_due(batches.commit, 1000 * (time.monotonic() - last_s)):
                self._cut(batches)
                last_s = time.monotonic()

        def take(rows: DataFrame, _batch_id: int) -> None:
            with self._turn:
                if self._stop.is_set():
                    raise Stopping
                self._take(batches, rows)
                cut_if_due()

        self._report.begins("folded up to offset", batches.commit.end, None)

        def tail() -> None:
            self._owner.check()
            with self._checkpoint(beside=True) as checkpoint:
                self._run(self._stream(batches.commit, take, checkpoint), cut_if_due)

        while not self._stop.is_set():
            self._retrying.until_done(tail, lambda: batches.commit, is_patient=True)

    def _run(self, query: StreamingQuery, cut_if_due: Callable[[], None]) -> None:
        """Run until a failure or a stop; then finish the current step."""
        try:
            while not self._stop.is_set() and not query.awaitTermination(POLL_S):
                if self._turn.acquire(blocking=False):
                    try:
                        cut_if_due()
                    finally:
                        self._turn.release()
            with self._turn:  # the current step; a further step sees the stop
                pass
        finally:
            query.stop()

    # Initial state of a run

    def _begin(self) -> MicroBatches:
        self._owner.take()
        begin = self._trunk.settle() or empty(self._cluster_id)
        return MicroBatches(self._trunk, begin, self._read, self._settings.sink, self._owner.check)

    def _branched(self, branch: StateStore, begin: Commit | None) -> MicroBatches:
        return MicroBatches(branch, begin or empty(self._cluster_id), self._read, None, lambda: None)

    def _before(self, branch: StateStore, offset: int, commit: Commit | None) -> MicroBatches:
        """Return the latest available state at or before an offset: a commit, a snapshot of the job, or an empty
        state.
        """
        if commit is not None and commit.end == offset and not commit.is_open:
            return self._branched(branch, commit)
        self._check_boundary(offset)
        start = self._log.bounds().start
        if commit is not None and commit.end >= start:
            return self._branched(branch, commit)
        batches = self._branched(branch, None)
        manifest = self._snapshots.newest_at_most(offset)
        if start > 0 and manifest is not None and manifest.cluster_id == self._cluster_id:
            batches.take(self._packs_of(manifest))
        return batches

    def _check_boundary(self, offset: int) -> None:
        try:
            batch = self._log.batch_at(offset - 1)
        except LogTrimmed as error:
            raise SourceRefused(
                f"the metadata log begins after offset {offset}, and no snapshot here ends at it."
            ) from error
        if batch is None:
            raise SourceRefused(f"the metadata log ends at offset {self._log.bounds().end}, before {offset}.")
        if batch.next_offset != offset:
            raise SourceRefused(
                f"offset {offset} lies within a batch; the nearest batch ends are {batch.base_offset} and"
                f" {batch.next_offset}."
            )

    # Rows

    def _stream(
        self, begin: Commit, take: Callable[[DataFrame, int], None], checkpoint: str, end: int | None = None
    ) -> StreamingQuery:
        options = self._settings.options() | {STARTING_OFFSET: json.dumps(begin.position.to_json())}
        if end is not None:
            options[ENDING_OFFSET] = str(end)
        rows = self._spark.readStream.format(NAME).options(**options).load()
        writing = rows.writeStream.foreachBatch(take).option("checkpointLocation", checkpoint)
        if end is not None:
            return writing.trigger(availableNow=True).start()
        return writing.trigger(processingTime=f"{self._settings.trigger_s} seconds").start()

    def _fold_up_to(self, batches: MicroBatches, end: int) -> None:
        if batches.commit.end >= end:
            return
        self._report.begins("folding", batches.commit.end, end)

        def fold() -> None:
            with self._checkpoint() as checkpoint:
                query = self._stream(batches.commit, lambda rows, _: self._take(batches, rows), checkpoint, end)
                query.awaitTermination()

        self._retrying.until_done(fold, lambda: batches.commit)
        if batches.commit.end < end and not batches.commit.is_open:  # a checkpoint ahead of the state
            self._take(batches, self._read(batches.commit.end, end))

    def _take(self, batches: MicroBatches, rows: DataFrame) -> None:
        batches.take(rows)
        self._report.folded(batches.commit.end)

    def _read(self, start: int, end: int) -> DataFrame:
        position = empty(self._cluster_id).position._replace(offset=start)
        wanted = {STARTING_OFFSET: json.dumps(position.to_json()), ENDING_OFFSET: str(end)}
        return self._spark.read.format(NAME).options(**self._settings.options() | wanted).load()

    def _packs_of(self, manifest: SnapshotManifest) -> DataFrame:
        read = partial(_snapshot_packs, self._snapshots, manifest)
        return self._spark.range(1, numPartitions=1).mapInArrow(read, from_arrow_schema(PACKS))

    @contextlib.contextmanager
    def _checkpoint(self, *, beside: bool = False) -> Iterator[str]:
        """Yield the configured checkpoint location; else one beside a state on disk, or a temporary one."""
        directory = self._settings.out.directory
        own = _LOCAL + str(Path(directory, STATE, "checkpoint").absolute()) if directory else None
        place = self._settings.checkpoint or (own if beside else None)
        if place is None or self._distrusts_checkpoint:
            with tempfile.TemporaryDirectory(prefix="ottla-checkpoint-", ignore_cleanup_errors=True) as temporary:
                yield _LOCAL + temporary
            return
        try:
            yield place
        except _FAILURES as error:
            # A machine crash may have damaged the checkpoint, and the state is enough to continue.
            if failure_of(error) is None and not self._stop.is_set():
                self._distrusts_checkpoint = True
                if place == own:
                    shutil.rmtree(own.removeprefix(_LOCAL), ignore_errors=True)
            raise

    # Snapshots

    def _cut(self, batches: MicroBatches, store: StateStore | None = None) -> SnapshotManifest:
        """Write the snapshot of the current state, unless it exists."""
        commit = batches.commit
        found = self._snapshots.manifest(commit.end, commit.epoch)
        is_new = found is None or found.cluster_id != self._cluster_id
        if found is None or is_new:
            found = self._written(commit, store or self._trunk)
        else:
            self._snapshots.update_latest(found)
        if store is None:
            batches.put(replace(commit, snapshot_records=found.records, since=Since()))
        self._report.snapshot(found, str(self._settings.out), is_new=is_new)
        if self._settings.keep is not None:
            self._snapshots.remove_old(self._settings.keep)
        return found

    def _written(self, commit: Commit, store: StateStore) -> SnapshotManifest:
        context = EncodeContext(MetadataVersion(commit.metadata_version), commit.epoch, commit.timestamp_ms)
        encoding = Encoding(store, dict(commit.files), commit.end, context, commit.control)
        executors = self._spark.sparkContext
        slices = min(len(encoding.sections), 2 * executors.defaultParallelism)
        try:
            executors.parallelize(encoding.sections, slices).map(encoding.encode).collect()
            return self._snapshots.write(commit.cluster_id, commit.end, commit.epoch, encoding.pieces())
        except ObjectNotFound:
            found = self._snapshots.manifest(commit.end, commit.epoch)
            if found is None or found.cluster_id != self._cluster_id:
                raise
            return found  # another run wrote the same one meanwhile
        finally:
            encoding.remove()

    def _last_snapshot_s(self) -> float:
        """Return the monotonic time of the last snapshot, or the current time without one."""
        written_ms = self._snapshots.latest_ms()
        ago_s = 0.0 if written_ms is None else max(0.0, time.time() - written_ms / 1000)
        return time.monotonic() - ago_s


def _snapshot_packs(
    snapshots: ObjectSnapshotStore, manifest: SnapshotManifest, _batches: Iterator[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    return packs(snapshot_rows(snapshots.pieces(manifest), manifest.end_offset))
