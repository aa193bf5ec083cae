"""The configuration of a command's JVM, and the requirements of spark-submit."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("pyspark", reason="PySpark is not installed: pip install 'ottla[spark]'")

from spark_jobs.metadata_snapshots import __main__ as command
from spark_jobs.metadata_snapshots.running import _SPARK
from spark_jobs.session import _SETTINGS, _prepare_jvm

OPTIONS = "SPARK_SUBMIT_OPTS"
LIGHT = "-XX:TieredStopAtLevel=1"


def prepared(monkeypatch: pytest.MonkeyPatch, options: str, *, is_light: bool = True) -> list[str]:
    """Return the resulting JVM options."""
    monkeypatch.setenv(OPTIONS, options)
    _prepare_jvm(is_light)
    return os.environ[OPTIONS].split()


def test_light_jvm_is_silent_and_has_one_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    light, log4j = prepared(monkeypatch, "")
    assert light == LIGHT
    assert log4j.startswith("-Dlog4j2.configurationFile=file:/")
    assert prepared(monkeypatch, "", is_light=False) == [log4j]
    assert prepared(monkeypatch, f"{light} {log4j}") == [light, log4j], "options are not repeated"


def test_settings_of_the_environment_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    assert prepared(monkeypatch, "-XX:+UseG1GC -Dlog4j2.level=info") == ["-XX:+UseG1GC", "-Dlog4j2.level=info"]
    assert prepared(monkeypatch, "-Xss4m -Dlog4j2.level=info") == ["-Xss4m", "-Dlog4j2.level=info", LIGHT]


def test_session_leaves_master_and_sizes_to_spark_submit() -> None:
    """A master or sizes set here would override the values of spark-submit, or take effect too late."""
    theirs = ("spark.master", "spark.submit.", "spark.driver.", "spark.executor.", "spark.cores.", "spark.jars")
    assert not [key for key in {**_SETTINGS, **_SPARK} if key.startswith(theirs)]


def test_job_file_can_be_submitted(tmp_path: Path) -> None:
    """The script runs by its path from any directory, with only the installed package."""
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    command_line = [sys.executable, command.__file__, "--help"]
    done = subprocess.run(command_line, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "--bootstrap-server" in done.stdout
