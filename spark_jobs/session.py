"""The Spark session of every job here, and whether this machine can have one.

What is set here is what the jobs need to be right or bearable; where they run, and with how much memory, is for
`spark-submit`, `spark-defaults.conf` and the environment to say, which all go first. Executors need what the driver
has: `pip install 'ottla[spark]'` in their image, or in the environment that `PYSPARK_PYTHON` names.
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
    # The rows are few columns of bytes: copies between JVM and Python are Arrow's, in batches of this many.
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "100000",
    # A state for each section is folded by itself; to split or join these tasks by size would only cost time.
    "spark.sql.adaptive.enabled": "false",
    # The source's rows have no expressions worth compiling; a micro-batch would spend more time on that than on rows.
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.streaming.forceDeleteTempCheckpointLocation": "true",
}
_JVM_OPTIONS: Final = "SPARK_SUBMIT_OPTS"
_LIGHT_JVM: Final = "-XX:TieredStopAtLevel=1"
"""Where the JVM only passes bytes on: its second compiler takes a third of the processor time of a run of a minute, and
gives none of it back. A collector is not chosen here, for Java refuses to start with two of them.
"""
_LOG4J: Final = Path(__file__).with_name("log4j2.properties")
_VERSION: Final = re.compile(r'version "(\d+)')


@cache
def unavailable_reason() -> str | None:
    """Why Spark cannot run on this machine, in a sentence; None if it can."""
    java = _java()
    if java is None:
        return f"Spark needs Java {OLDEST_JAVA}, and there is no java on PATH nor a JAVA_HOME."
    told = subprocess.run([java, "-version"], capture_output=True, text=True, check=False)
    found = _VERSION.search(told.stderr + told.stdout)
    if found is None or int(found[1]) < OLDEST_JAVA:
        return f"Spark needs Java {OLDEST_JAVA}, and {java} is {found[1] if found else 'not saying what it is'}."
    return None


def _java() -> str | None:
    home = os.environ.get("JAVA_HOME")
    if home and (Path(home) / "bin" / "java").exists():
        return str(Path(home) / "bin" / "java")
    return shutil.which("java")


def open_session(name: str, settings: Mapping[str, str] | None = None, *, is_light: bool = False) -> SparkSession:
    """The session of this process, made if there is none. What the environment sets is kept.

    Workers run the interpreter that runs this, unless the environment names another. `is_light`: the work is in Python,
    and the JVM, if it is started here and the environment says nothing else, is one that starts fast and stays small.
    """
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    logging.getLogger("py4j").setLevel(logging.CRITICAL)  # what fails in a callback is raised where it was waited for
    _prepare_jvm(is_light)
    builder = SparkSession.builder.appName(name)
    submitted = _submitted()
    for key, value in {**_SETTINGS, **(settings or {})}.items():
        if key not in submitted:
            builder = builder.config(key, value)
    # PySpark itself asks for Spark's own bars, on any terminal; a job shows its progress in its own words.
    return builder.config("spark.ui.showConsoleProgress", "false").getOrCreate()


def _prepare_jvm(is_light: bool) -> None:
    """For one that is still to be started here: nothing on stderr but what a command says, unless told otherwise."""
    options = os.environ.get(_JVM_OPTIONS, "")
    if is_light and "-XX:" not in options:
        options = f"{options} {_LIGHT_JVM}"
    if "log4j" not in options:
        options = f"{options} -Dlog4j2.configurationFile={_LOG4J.as_uri()}"
    os.environ[_JVM_OPTIONS] = options.strip()


def _submitted() -> frozenset[str]:
    """What `spark-submit --conf` or spark-defaults.conf sets: known to the JVM, and a builder's setting would win."""
    SparkContext._ensure_initialized()
    return frozenset(key for key, _ in SparkConf().getAll())
