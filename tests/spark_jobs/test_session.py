"""How the JVM of a command is set up, where this process is the one that starts it."""

import os

import pytest

pytest.importorskip("pyspark", reason="PySpark is not installed: pip install 'ottla[spark]'")

from spark_jobs.session import _prepare_jvm

OPTIONS = "SPARK_SUBMIT_OPTS"
LIGHT = "-XX:TieredStopAtLevel=1"


def prepared(monkeypatch: pytest.MonkeyPatch, options: str, *, is_light: bool = True) -> list[str]:
    """What is set in the end."""
    monkeypatch.setenv(OPTIONS, options)
    _prepare_jvm(is_light)
    return os.environ[OPTIONS].split()


def test_a_light_jvm_is_silent_and_has_one_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    light, log4j = prepared(monkeypatch, "")
    assert light == LIGHT
    assert log4j.startswith("-Dlog4j2.configurationFile=file:/")
    assert prepared(monkeypatch, "", is_light=False) == [log4j]
    assert prepared(monkeypatch, f"{light} {log4j}") == [light, log4j], "once is enough"


def test_what_the_environment_says_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    assert prepared(monkeypatch, "-XX:+UseG1GC -Dlog4j2.level=info") == ["-XX:+UseG1GC", "-Dlog4j2.level=info"]
    assert prepared(monkeypatch, "-Xss4m -Dlog4j2.level=info") == ["-Xss4m", "-Dlog4j2.level=info", LIGHT]
