"""The job on Spark, on random histories served from memory, against the bytes that a node writes.

Tests without Spark are beside each module; real clusters are in `tests/integration/test_spark_snapshots.py`.
"""

import contextlib
import hashlib
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

pytest.importorskip("pyspark", reason="PySpark is not installed: pip install 'ottla[spark]'")

from pyspark.sql import SparkSession

from broker.metadata.image.delta import MetadataDelta
from broker.metadata.image.loader import MetadataLoader
from broker.metadata.image.metadata_image import EMPTY_IMAGE, Provenance
from broker.metadata.snapshot.codec import image_batches, read_snapshot
from protocol.records.builder import build_value_batch
from protocol.records.quorum_control import read_control_state
from spark_jobs.metadata_snapshots import micro_batch
from spark_jobs.metadata_snapshots.commits import Commit
from spark_jobs.metadata_snapshots.failures import Failure, failure_of
from spark_jobs.metadata_snapshots.job import Job, JobSettings
from spark_jobs.metadata_snapshots.progress import JobProgress
from spark_jobs.metadata_snapshots.report import JobReport
from spark_jobs.metadata_snapshots.snapshot_store import ObjectSnapshotStore
from spark_jobs.metadata_snapshots.state_store import StateStore
from spark_jobs.metadata_source.metadata_log import SourceRefused
from spark_jobs.metadata_tables.reading import live_files
from spark_jobs.metadata_tables.sink import TablesSink
from spark_jobs.metadata_tables.table_store import TableStore
from storage.tiered.loading.store_uri import StoreUri
from tests.spark_jobs.metadata.logs import EveryHistory, Log
from tests.support.fakes.served_metadata_log import ServedMetadataLog
from tests.support.processes.spark_session import spark as spark

pytestmark = pytest.mark.integration

SEED = 20
STEPS = 150


@pytest.fixture(scope="module")
def log() -> Log:
    return Log.of(EveryHistory(SEED, STEPS).batches, SEED)


@pytest.fixture
def served(log: Log) -> Iterator[ServedMetadataLog]:
    with ServedMetadataLog(log.data) as serving:
        yield serving


@pytest.fixture
def settings(served: ServedMetadataLog, tmp_path: Path) -> JobSettings:
    return JobSettings(bootstrap=served.address, out=StoreUri(directory=str(tmp_path / "out")), trigger_s=0)


@contextlib.contextmanager
def opened(spark: SparkSession, settings: JobSettings, progress: JobProgress | None = None) -> Iterator[Job]:
    with contextlib.closing(settings.open_log()) as log:
        yield Job(spark, settings, log, JobReport(is_shown=False, progress=progress))


def once(spark: SparkSession, settings: JobSettings) -> str:
    """Run the job once; return the digest of the file."""
    with opened(spark, settings) as job:
        manifest = job.once()
    content = Path(settings.out.directory, manifest.file).read_bytes()
    assert hashlib.sha256(content).hexdigest() == manifest.sha256
    return manifest.sha256


def by_a_node(log: Log, number: int) -> bytes:
    """Return the snapshot that a node writes after a batch."""
    image = log.images[number]
    assert image is not None
    return b"".join(image_batches(image, log.controls[number]))


def by_a_late_node(log: Log, loaded: int, number: int) -> bytes:
    """Return the snapshot of a node that loaded the snapshot after batch `loaded`, whose metadata version may omit
    fields.
    """
    snapshot = read_snapshot(by_a_node(log, loaded))
    delta = MetadataDelta(EMPTY_IMAGE)
    delta.replay_all(snapshot.records)
    end = log.batches[loaded].last_offset
    loader = MetadataLoader(supported=None)
    loader.install(delta.apply(Provenance(end, snapshot.epoch, snapshot.last_timestamp_ms)))
    loader.load(log.batches[loaded + 1 : number + 1])
    control = snapshot.control
    for after in range(loaded + 1, number + 1):
        control = control if log.batches[after].records else read_control_state(log.data[after], 0, control)
    return b"".join(image_batches(loader.image, control))


def digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def test_snapshot_does_not_depend_on_micro_batches(
    spark: SparkSession, log: Log, settings: JobSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One or several micro-batches, in one task or divided among 7, at the end or before it."""
    expected = digest(by_a_node(log, -1))
    out = settings.out.directory
    assert once(spark, settings) == expected
    tables = TableStore(StoreUri(directory=f"{out}-tables"))
    several = replace(settings, out=StoreUri(directory=f"{out}-several"), max_rows=log.batches[-1].last_offset // 4)
    assert once(spark, replace(several, sink=TablesSink(tables, several.out))) == expected
    assert tables.end() == log.batches[-1].last_offset + 1
    assert len({file.span for file in live_files(tables, "changes")}) > 1, "each step writes a file"
    monkeypatch.setattr(micro_batch, "SMALL_ROWS", 0)
    spark.conf.set("spark.sql.shuffle.partitions", 7)
    assert once(spark, replace(settings, out=StoreUri(directory=f"{out}-7"))) == expected
    spark.conf.set("spark.sql.shuffle.partitions", 2)
    number = log.aligned()[len(log.aligned()) // 2]
    with opened(spark, settings) as job:
        assert job.at(log.batches[number].last_offset + 1).sha256 == digest(by_a_node(log, number))
        latest = ObjectSnapshotStore(settings.out).latest()
    assert latest is not None
    assert latest.sha256 == expected, "an older snapshot is not the latest"
    assert not list(Path(out, "_state", "at").rglob("*.arrow")), "the branch of --at is removed"
    Path(out, latest.name).unlink()
    next(Path(out, "_state", "sections").rglob("*.arrow")).unlink()
    with opened(spark, settings) as job:
        assert job.at(latest.end_offset).sha256 == expected, "the tail has removed the files of its commit"


def test_job_resumes_after_a_failure_at_any_stage(spark: SparkSession, log: Log, settings: JobSettings) -> None:
    """A directory in place of a file is an obstacle that no user can overwrite, here or in an executor."""
    end, epoch = log.batches[-1].last_offset + 1, log.batches[-1].epoch
    name, out = f"{end:020d}-{epoch:010d}", Path(settings.out.directory)
    section = _topic_id(log)[0] >> 3
    for obstacle in (
        f"_state/sections/{section:02d}/{end:020d}.arrow",
        f"_state/registry/{end:020d}.checkpoint",
        f"_state/commits/{name}.json",
        f"_state/encoded/{name}/{section:02d}",
        f"_state/encoded/{name}/opening",
        f"_state/aside/{name}.checkpoint",
        f"{name}.checkpoint",
        f"{name}.json",
        "latest.json",
    ):
        with _in_the_way(out / obstacle), pytest.raises(Exception, match=r"\[Errno "):
            once(spark, settings)
        manifest = ObjectSnapshotStore(settings.out).manifest(end, epoch)
        assert (manifest is not None) == (obstacle == "latest.json"), obstacle
    assert once(spark, settings) == digest(by_a_node(log, -1))
    left = {path.relative_to(out).parts[1] for path in (out / "_state").rglob("*") if path.is_file()}
    assert left == {"commits", "owner.json", "registry", "sections"}, "failed attempts leave no files"


def test_job_continues_after_the_log_was_trimmed(spark: SparkSession, log: Log, settings: JobSettings) -> None:
    """A node's snapshot replaces the deleted records, as for a node that joins late."""
    aligned = log.aligned()
    first, second, third = (aligned[len(aligned) * part // 4] for part in (1, 2, 3))
    with ServedMetadataLog(log.data, visible=first + 1) as served:
        settings = replace(settings, bootstrap=served.address)
        assert once(spark, settings) == digest(by_a_node(log, first))
        served.trim(second + 1, by_a_node(log, second))
        before = log.batches[aligned[aligned.index(first) - 1]].last_offset + 1
        with opened(spark, settings) as job, pytest.raises(SourceRefused, match=f"begins after offset {before}, and"):
            job.at(before)
        served.grow(third + 1)
        assert once(spark, settings) == digest(by_a_late_node(log, second, third))
        served.grow(len(log.data))
        assert once(spark, settings) == digest(by_a_late_node(log, second, len(log.data) - 1))
        fresh = replace(settings, out=StoreUri(directory=f"{settings.out.directory}-fresh"))
        assert once(spark, fresh) == digest(by_a_late_node(log, second, len(log.data) - 1)), "also without a state"


def test_invalid_log_stops_the_job_with_a_sentence(
    spark: SparkSession, log: Log, settings: JobSettings, tmp_path: Path
) -> None:
    """An unknown record, another cluster, an offset within a batch; no state is lost."""
    end, epoch = log.batches[-1].last_offset + 1, log.batches[-1].epoch
    future = build_value_batch([b"\x01\xff\x7f\x00"], 5, base_offset=end, leader_epoch=epoch)
    with ServedMetadataLog([*log.data, future]) as served:
        settings = replace(settings, bootstrap=served.address)
        failure = _failure(spark, settings)
        assert (failure.kind, failure.is_retriable) == ("UnknownRecord", False)
        assert str(end) in failure.sentence
        with opened(spark, settings) as job:
            assert job.at(end).sha256 == digest(by_a_node(log, -1)), "the records before it can be folded"
        served.grow(len(log.data))
        assert once(spark, settings) == digest(by_a_node(log, -1))
        with opened(spark, settings) as job, pytest.raises(Exception, match="the nearest batch ends are"):
            job.at(next(each for each in log.batches if len(each.records) > 1).last_offset)
        with opened(spark, settings) as job, pytest.raises(Exception, match=f"ends at offset {end}, before"):
            job.at(end + 1)
        served.cluster_id = "another"
        failure = _failure(spark, settings)
        assert (failure.kind, failure.is_retriable) == ("SourceRefused", False)
        assert failure.sentence.endswith(
            "belongs to cluster fake, but the brokers belong to another; use another --out."
        )


def test_tailing_job_can_be_stopped_and_restarted(spark: SparkSession, log: Log, settings: JobSettings) -> None:
    """The checkpoint is broken, lost, or ahead of a lost state."""
    aligned = log.aligned()
    ends = [aligned[len(aligned) * part // 4] for part in (1, 2, 3)] + [len(log.data) - 1]
    with ServedMetadataLog(log.data, visible=ends[0] + 1) as served:
        settings = replace(settings, bootstrap=served.address)
        trunk = StateStore(settings.out)
        for number, end in enumerate(ends):
            served.grow(end + 1)
            if number == 1:
                _empty_the_newest(Path(settings.out.directory, "_state", "checkpoint", "offsets"))
            if number == 2:
                trunk.delete([found.key for found in trunk.listed("checkpoint/")])
            if number == 3:
                trunk.delete([found.key for found in trunk.listed("commits/")])
            expected = digest(by_a_node(log, end))
            progress = JobProgress()
            with opened(spark, settings, progress) as job:
                job.tail(_StoppedAt(job, log.batches[end].last_offset + 1))
            progress.saw_high_watermark(served.end)
            assert (progress.lag, progress.snapshots_written, progress.not_ready_because()) == (0, 1, None)
            latest = ObjectSnapshotStore(settings.out).latest()
            assert latest is not None
            assert (latest.sha256, number) == (expected, number)


def test_earlier_of_two_jobs_in_one_location_ends(spark: SparkSession, log: Log, settings: JobSettings) -> None:
    """The earlier job ends before its step counts, and does not damage the other one's state."""
    with opened(spark, settings) as job, pytest.raises(Exception, match="TakenOver") as caught:
        job.tail(_Overtaken(lambda: once(spark, settings)))
    failure = failure_of(caught.value)
    assert failure is not None
    assert failure.sentence.endswith(f"now folds into {settings.out}, so this job ends.")
    assert once(spark, settings) == digest(by_a_node(log, -1))


class _Overtaken:
    """A schedule that starts and completes another job."""

    def __init__(self, begin_other: Callable[[], str]) -> None:
        self._begin_other = begin_other

    def is_due(self, commit: Commit, since_last_ms: float) -> bool:
        if not commit.end:
            return False
        self._begin_other()
        return True


class _StoppedAt:
    """A schedule that stops the job when the state reaches an offset."""

    def __init__(self, job: Job, end: int) -> None:
        self._job = job
        self._end = end

    def is_due(self, commit: Commit, since_last_ms: float) -> bool:
        if commit.end < self._end or self._job.is_stopping:
            return False
        self._job.stop()
        return True


def _empty_the_newest(directory: Path) -> None:
    """Empty the newest file, as a power loss may."""
    newest = max((path for path in directory.iterdir() if path.name.isdigit()), key=lambda path: int(path.name))
    newest.write_bytes(b"")
    newest.with_name(f".{newest.name}.crc").unlink()


def _failure(spark: SparkSession, settings: JobSettings) -> Failure:
    with pytest.raises(Exception) as caught:
        once(spark, settings)
    failure = failure_of(caught.value)
    assert failure is not None
    return failure


def _topic_id(log: Log) -> bytes:
    image = log.images[-1]
    assert image is not None
    return bytes(next(iter(image.topics)).id)


@contextlib.contextmanager
def _in_the_way(path: Path) -> Iterator[None]:
    """Hold a directory at `path`; tasks of the attempt before may run on and write a file there until then."""
    while not (path / "occupied").is_dir():
        path.unlink(missing_ok=True)
        with contextlib.suppress(FileExistsError, NotADirectoryError):
            (path / "occupied").mkdir(parents=True)
    yield
    (path / "occupied").rmdir()
    path.rmdir()
