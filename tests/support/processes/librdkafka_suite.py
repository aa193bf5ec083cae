"""librdkafka's own integration tests, built once from the npm package of a pinned version, which has its whole source.

If something is missing on the machine (npm, a compiler, a reachable registry), `unavailable_reason` returns the reason,
so that a test can skip with it instead of failing. The build stays in `build/librdkafka`.
"""

import json
import os
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path

from tests.support.kafka.apache_kafka import REPOSITORY
from tests.support.processes.ottla_node import clean_environment

PACKAGE = "node-rdkafka@3.6.1"
"""librdkafka 2.12.0."""

BUILD = REPOSITORY / "build" / "librdkafka"
SOURCE = BUILD / "package" / "deps" / "librdkafka"
PROGRAM = SOURCE / "tests" / "test-runner"
STAMP = BUILD / ".built"
NEEDED = ("npm", "gcc", "g++", "make")
CONFIGURE = ("./configure", "--disable-gssapi", "--disable-curl", "--disable-lz4-ext", "--disable-regex-ext")
KAFKA_VERSION = "4.2.0"
TOOLS = ("acls", "configs", "topics")
WHOLE_RUN = "<MAIN>"


@cache
def unavailable_reason() -> str | None:
    """Return why the tests cannot be built on this machine, None if they are; may access a package registry."""
    if PROGRAM.exists() and STAMP.exists() and STAMP.read_text() == PACKAGE:
        return None
    for program in NEEDED:
        if shutil.which(program) is None:
            return f"{program} is not on PATH"
    return _build()


def _build() -> str | None:
    shutil.rmtree(BUILD, ignore_errors=True)
    BUILD.mkdir(parents=True)
    if (failure := _run(BUILD, "npm", "pack", "--silent", PACKAGE)) is not None:
        return failure
    (archive,) = BUILD.glob("*.tgz")
    with tarfile.open(archive) as package:
        package.extraction_filter = getattr(tarfile, "data_filter", None)  # from Python 3.11.4 on
        package.extractall(BUILD)
    (SOURCE / "configure").chmod(0o755)
    for command in (CONFIGURE, ("make", "-j2", "libs"), ("make", "-j2", "-C", "tests", "build")):
        if (failure := _run(SOURCE, *command)) is not None:
            return failure
    STAMP.write_text(PACKAGE)
    return None


def _run(directory: Path, *command: str) -> str | None:
    """Run a build step; return its failure."""
    done = subprocess.run(command, cwd=directory, capture_output=True, text=True, check=False)
    return (
        None if done.returncode == 0 else f"{' '.join(command)} failed: {(done.stderr or done.stdout).strip()[-500:]}"
    )


def write_tools(directory: Path, repository: Path) -> None:
    """Write scripts with the names of Kafka's tools, which some tests run, into `directory/bin`."""
    (directory / "bin").mkdir(parents=True)
    for tool in TOOLS:
        script = directory / "bin" / f"kafka-{tool}.sh"
        command = f"PYTHONPATH={repository} exec {sys.executable} -m broker {tool}"
        script.write_text(f'#!/bin/sh\n{command} "$@"\n')
        script.chmod(0o755)


def run_suite(
    bootstrap: str,
    directory: Path,
    options: Sequence[str],
    settings: Mapping[str, str] | None = None,
    **variables: str,
) -> dict[str, str]:
    """Run the tests; return the state of each: PASSED, FAILED, SKIPPED.

    `directory` has the tools of `write_tools`, and gets the output as `output.log`. `settings` are those of clients.
    """
    report, config = directory / "report.json", directory / "test.conf"
    config.write_text(
        f"metadata.broker.list={bootstrap}\n"
        "test.topic.random=true\nbroker.address.family=v4\ntest.timeout.multiplier=2\n"
        + "".join(f"{key}={value}\n" for key, value in (settings or {}).items())
    )
    environment = {
        **clean_environment(),
        "BROKERS": bootstrap,
        "KAFKA_PATH": str(directory),
        "LD_LIBRARY_PATH": os.pathsep.join(str(SOURCE / each) for each in ("src", "src-cpp")),
        "RDKAFKA_TEST_CONF": str(config),
        "TEST_KAFKA_VERSION": KAFKA_VERSION,
        "TEST_LEVEL": "1",
        "TEST_REPORT": str(report),
        **variables,
    }
    with (directory / "output.log").open("wb") as output:
        subprocess.run(
            [str(PROGRAM), *options],
            cwd=PROGRAM.parent,
            env=environment,
            stdout=output,
            stderr=subprocess.STDOUT,
            check=False,
        )
    tests = json.loads(report.read_text())["tests"]
    return {name: each["state"] for name, each in tests.items() if name != WHOLE_RUN}
