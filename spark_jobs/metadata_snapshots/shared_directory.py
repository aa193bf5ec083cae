"""The check that the machines of a Spark cluster share the directory that the job writes to.

Buckets are always shared. A file that an executor writes to its own disk is invisible to the others: the state would
miss it later, and the tables silently.
"""

import socket
import uuid
from functools import partial
from typing import Final

from pyspark.sql import SparkSession

from spark_jobs.metadata_source.metadata_log import SourceRefused
from spark_jobs.store_directory import StoreDirectory
from storage.tiered.errors import ObjectNotFound, StoreUnavailable
from storage.tiered.loading.store_uri import StoreUri, open_store

LOOKS: Final = 4
"""Tasks per parallel slot: executors take tasks as they come, and every executor should get one."""


def check_shared(spark: SparkSession, place: StoreUri) -> None:
    """Raise SourceRefused if an executor does not find a file written here; also the exceptions of the store.

    Executors that join later are not checked.
    """
    executors = spark.sparkContext
    if not place.directory or (executors.master or "").startswith("local"):
        return
    directory, name = StoreDirectory(place), f"_looked-for-{uuid.uuid4()}"
    directory.put(name, [b"here"])
    try:
        looks = LOOKS * executors.defaultParallelism
        without = executors.parallelize(range(looks), looks).map(partial(host_without, place, name)).collect()
    finally:
        directory.delete([name])
    if hosts := sorted(filter(None, without)):
        raise SourceRefused(
            f"{place} is another directory on {hosts[0]}, where executors run: all machines must share it under"
            " this name, or it must be a bucket."
        )


def host_without(place: StoreUri, name: str, _look: int = 0) -> str:
    """Return the executor's host if the file is missing there, else an empty text. Does not create a missing
    directory.
    """
    try:
        at = open_store(place, must_exist=True)
        any(at.store.get(at.key(name)))
    except (ObjectNotFound, StoreUnavailable):
        return socket.gethostname()
    return ""
