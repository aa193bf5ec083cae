"""One Spark session for all tests of a process: local, small, quick to start. Tests skip without Java."""

import os
from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

from spark_jobs.session import open_session, unavailable_reason

QUICK_JVM = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -Xshare:auto"
"""JVM options for code that runs once or twice: the second compiler and parallel collectors would cost more than they
save.
"""

SMALL = {
    "spark.master": "local[2]",
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.streaming.minBatchesToRetain": "2",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
}


def require_spark() -> None:
    """Skip the test if Spark cannot run here."""
    if (reason := unavailable_reason()) is not None:
        pytest.skip(reason)


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    require_spark()
    os.environ["SPARK_SUBMIT_OPTS"] = QUICK_JVM
    session = open_session("tests", SMALL)
    yield session
    session.stop()
