"""The snapshot job as started by benchmarks: with its own command, on two cores of this machine."""

import sys
from typing import Final

from tests.support.processes.ottla_node import clean_environment

HEAP: Final = "1g"
"""Heap of Spark's JVM."""


def unavailable_reason() -> str | None:
    """Return the reason for which the job cannot run here, in one sentence, or None."""
    try:
        from spark_jobs.session import unavailable_reason
    except ImportError as error:
        return f"{error.name} is not installed: pip install 'ottla[spark]'."
    return unavailable_reason()


def command(*arguments: str) -> list[str]:
    """Return the job's command line."""
    return [sys.executable, "-m", "spark_jobs.metadata_snapshots", *arguments]


def environment(heap: str = HEAP) -> dict[str, str]:
    """Return an environment with Spark on local[2]."""
    submit = f"--master local[2] --driver-memory {heap} --conf spark.driver.host=127.0.0.1 pyspark-shell"
    return clean_environment() | {"PYSPARK_SUBMIT_ARGS": submit, "SPARK_LOCAL_IP": "127.0.0.1"}
