"""A run of the job from a command line: session, signals, and translation of failures to sentences."""

import contextlib
import os
from collections.abc import Iterator
from typing import NamedTuple

from py4j.protocol import Py4JError, Py4JNetworkError
from pyspark.sql import SparkSession

from broker.cli.shared.failure import CommandFailed
from broker.client import ClientError
from protocol.errors import KafkaError
from spark_jobs.metadata_snapshots.failures import failure_of, in_short
from spark_jobs.metadata_snapshots.job import Job, JobSettings
from spark_jobs.metadata_snapshots.monitoring import ListenAt, listening
from spark_jobs.metadata_snapshots.out_check import check_out
from spark_jobs.metadata_snapshots.progress import JobProgress
from spark_jobs.metadata_snapshots.report import JobReport
from spark_jobs.metadata_snapshots.schedule import Schedule
from spark_jobs.metadata_snapshots.shared_directory import check_shared
from spark_jobs.metadata_snapshots.signals import stopped_by_signals
from spark_jobs.metadata_source.settings import SourceSettings
from spark_jobs.session import open_session
from storage.tiered.loading.store_uri import StoreUri

_TRACEBACK = "OTTLA_TRACEBACK"
_SPARK = {
    # There are at most 33 sections to distribute.
    "spark.sql.shuffle.partitions": "16",
    # The state has its own offsets, so those of a few micro-batches are enough.
    "spark.sql.streaming.minBatchesToRetain": "10",
    # As for reading rows and encoding sections, which never simplify: otherwise Spark would keep two sets of Python
    # workers, each with its own daemon. The failure is found in any traceback.
    "spark.sql.execution.pyspark.udf.simplifiedTraceback.enabled": "false",
}


class Mode(NamedTuple):
    """The mode of the job: one snapshot, one that ends at an offset, or, without either, any that is due."""

    is_once: bool
    at: int | None
    schedule: Schedule


def run_job(
    settings: JobSettings,
    mode: Mode,
    tables: StoreUri | None = None,
    *,
    as_json: bool = False,
    http: ListenAt | None = None,
) -> None:
    """Run the job; `tables` is the location of the sink, `http` the address for health and metrics, if there is one.

    Raises CommandFailed.
    """
    progress = JobProgress() if http is None else JobProgress(http.stalled_after_s)
    with plain_failures(), contextlib.closing(settings.open_log()) as log, contextlib.ExitStack() as stack:
        # Report wrong options before the seconds that Spark takes to start.
        SourceSettings.of(settings.options())
        log.bounds()
        check_out(settings.out, log.cluster_id)
        if http is not None:
            stack.enter_context(listening(progress, http, settings.open_log))
        with _session() as spark, JobReport(as_json=as_json, progress=progress) as report:
            check_shared(spark, settings.out)
            if tables is not None:
                check_shared(spark, tables)
            job = Job(spark, settings, log, report)
            with stopped_by_signals(job):
                _run(job, mode)


@contextlib.contextmanager
def _session() -> Iterator[SparkSession]:
    """Yield a session and stop it at the end, unless Spark has ended by itself."""
    spark = open_session("ottla-metadata-snapshots", _SPARK, is_light=True)
    try:
        yield spark
    finally:
        with contextlib.suppress(Py4JError, ConnectionError):
            spark.stop()


def _run(job: Job, mode: Mode) -> None:
    if mode.is_once:
        job.once()
    elif mode.at is not None:
        job.at(mode.at)
    else:
        job.tail(mode.schedule)


@contextlib.contextmanager
def plain_failures() -> Iterator[None]:
    """Raise known failures as CommandFailed, and other failures in one line unless OTTLA_TRACEBACK is set."""
    try:
        yield
    except (CommandFailed, KeyboardInterrupt):
        raise
    except KafkaError as error:
        raise CommandFailed(error.message) from error
    except ClientError as error:
        raise CommandFailed(str(error)) from error
    except (Py4JNetworkError, ConnectionError) as error:
        raise CommandFailed("the JVM of Spark has ended, because it was stopped or ran out of memory.") from error
    except Exception as error:
        failure = failure_of(error)
        if failure is not None:
            raise CommandFailed(failure.sentence) from error
        if os.environ.get(_TRACEBACK):
            raise
        raise CommandFailed(f"{in_short(error)} ({_TRACEBACK}=1 shows where it happened)") from error
