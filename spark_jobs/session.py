"""The Spark session of all jobs, and the check that this machine can run Spark.

The settings here are those that the jobs need for correctness or acceptable speed. `spark-submit`,
`spark-defaults.conf` and the environment decide where they run, and with how much memory, and take precedence.
Executors need the driver's packages: `pip install 'ottla[spark]'` in their image, or in the environment of
`PYSPARK_PYTHON`.
"""

import logging
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Final

from pyspark import SparkConf, SparkContext
from pyspark.sql import SparkSession

OLDEST_JAVA: Final = 17
_SETTINGS: Final = {
    "spark.ui.enabled": "false",
    # Rows have a few columns of bytes: Arrow copies them between JVM and Python, in batches of this many.
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "100000",
    # Each section's state is folded separately; splitting or joining these tasks by size would only cost time.
    "spark.sql.adaptive.enabled": "false",
    # The source's rows have no expressions worth compiling; a micro-batch would spend more time on that than on rows.
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.streaming.forceDeleteTempCheckpointLocation": "true",
}
_JVM_OPTIONS: Final = "SPARK_SUBMIT_OPTS"
_LIGHT_JVM: Final = "-XX:TieredStopAtLevel=1"
"""For a JVM that only forwards bytes: its second compiler takes a third of the processor time of a one-minute run
without benefit. No garbage collector is chosen here, because Java refuses to start with two of them.
"""
_LOG4J: Final = Path(__file__).with_name("log4j2.properties")
_VERSION: Final = re.compile(r'version "(\d+)')


@cache
def unavailable_reason() -> str | None:
    """Return the reason why Spark cannot run on this machine, in a sentence; None if it can."""
    java = _java()
    if java is None:
        return f"Spark needs Java {OLDEST_JAVA}, but there is no java on PATH and JAVA_HOME is not set."
    output = subprocess.run([java, "-version"], capture_output=True, text=True, check=False)
    found = _VERSION.search(output.stderr + output.stdout)
    if found is None or int(found[1]) < OLDEST_JAVA:
        version = f"version {found[1]}" if found else "an unknown version"
        return f"Spark needs Java {OLDEST_JAVA}, but {java} has {version}."
    return None


def _java() -> str | None:
    home = os.environ.get("JAVA_HOME")
    if home and (Path(home) / "bin" / "java").exists():
        return str(Path(home) / "bin" / "java")
    return shutil.which("java")


def open_session(name: str, settings: Mapping[str, str] | None = None, *, is_light: bool = False) -> SparkSession:
    """Return the session of this process, creating one if needed. Settings of the environment are kept.

    Workers run the current interpreter, unless the environment names another. `is_light`: the work is in Python, so a
    JVM started here starts fast and stays small, unless the environment says otherwise.
    """
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    logging.getLogger("py4j").setLevel(logging.CRITICAL)  # the failure of a callback is raised to its caller
    _prepare_jvm(is_light)
    builder = SparkSession.builder.appName(name)
    submitted = _submitted()
    for key, value in {**_SETTINGS, **(settings or {})}.items():
        if key not in submitted:
            builder = builder.config(key, value)
    # PySpark enables Spark's progress bars on any terminal; a job shows its own progress.
    return builder.config("spark.ui.showConsoleProgress", "false").getOrCreate()


def _prepare_jvm(is_light: bool) -> None:
    """Configure a JVM to be started here without output on stderr, unless configured otherwise."""
    options = os.environ.get(_JVM_OPTIONS, "")
    if is_light and "-XX:" not in options:
        options = f"{options} {_LIGHT_JVM}"
    if "log4j" not in options:
        options = f"{options} -Dlog4j2.configurationFile={_LOG4J.as_uri()}"
    os.environ[_JVM_OPTIONS] = options.strip()


def _submitted() -> frozenset[str]:
    """Return the settings of `spark-submit --conf` and spark-defaults.conf, which a builder's setting would
    override.
    """
    SparkContext._ensure_initialized()
    return frozenset(key for key, _ in SparkConf().getAll())
