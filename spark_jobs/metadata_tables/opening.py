"""The start of the commands that query the tables: a session with views, or a failure in one sentence."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from broker.cli.shared.failure import CommandFailed
from spark_jobs.metadata_snapshots.failures import failure_of
from spark_jobs.metadata_tables.table_store import TableStore
from spark_jobs.metadata_tables.views import register_tables
from spark_jobs.session import open_session, unavailable_reason
from storage.tiered.errors import ObjectStoreError
from storage.tiered.loading.store_uri import StoreUri, StoreUriError, parse_store_uri

_SETTINGS: Final = {
    # Output is grouped by days and hours in UTC.
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.shuffle.partitions": "4",
}


@contextmanager
def session_of(tables: str, name: str) -> Iterator[SparkSession]:
    """Open a session with the views. Raises CommandFailed, also for failures inside the block."""
    try:
        _require_tables(parse_store_uri(tables))
        if (reason := unavailable_reason()) is not None:
            raise CommandFailed(reason)
        spark = open_session(name, _SETTINGS, is_light=True)
        try:
            register_tables(spark, tables)
            yield spark
        finally:
            spark.stop()
    except StoreUriError as error:
        raise CommandFailed(f"--tables: {error}.") from error
    except ObjectStoreError as error:
        raise CommandFailed(f"--tables: {error}") from error
    except (PySparkException, Py4JJavaError) as error:
        failure = failure_of(error)
        raise CommandFailed(failure.sentence if failure is not None else _first_lines(error)) from error


def _require_tables(place: StoreUri) -> None:
    """Raise CommandFailed for a missing directory: opening a store on disk would create it."""
    if (place.directory and not Path(place.directory).is_dir()) or TableStore(place).end() is None:
        raise CommandFailed(f"--tables: {place} has no tables.")


def _first_lines(error: Exception) -> str:
    """Return the problem in the SQL and its position, without the query plan."""
    return str(error).strip().split("\n\nJVM stacktrace")[0].split(";\n'")[0].strip()
