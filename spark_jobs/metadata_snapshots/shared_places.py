"""Whether the machines of a cluster see one and the same directory where the job is told to write into one.

Of a bucket there is no question. But what an executor writes to a disk of its own is not there for anybody else: the
state would lack it sooner or later, the tables without a word.
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
"""How many tasks look for each that can run at a time: executors take what comes, and all should have their turn."""


def check_shared(spark: SparkSession, place: StoreUri) -> None:
    """Raises SourceRefused if an executor does not find what is written here, and as the store does.

    Who comes later is not asked.
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
            f"{place} is not the same directory on {hosts[0]}, where executors are: all machines must share it under"
            " this name, or it must be a bucket."
        )


def host_without(place: StoreUri, name: str, _look: int = 0) -> str:
    """In an executor: where it runs, if there is no such file; else nothing. Makes no directory that is not there."""
    try:
        at = open_store(place, must_exist=True)
        any(at.store.get(at.key(name)))
    except (ObjectNotFound, StoreUnavailable):
        return socket.gethostname()
    return ""
