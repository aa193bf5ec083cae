"""Kafka Streams applications with both group protocols: exactly once while an instance and nodes are killed with -9.

Each case takes a minute of processor time, and the application's jars have 70 MB, so the test runs only with
OTTLA_KAFKA_STREAMS=1. `make streams` runs one application for longer.
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.exactly_once.word_count import unavailable_streams_reason
from tests.support.kafka.apache_kafka import REPOSITORY

pytestmark = [pytest.mark.interop, pytest.mark.slow]


@pytest.mark.parametrize("protocol", ["streams", "classic"])
def test_word_count_is_exact_while_instances_and_nodes_are_killed(protocol: str, tmp_path: Path) -> None:
    if os.environ.get("OTTLA_KAFKA_STREAMS") != "1":
        pytest.skip("set OTTLA_KAFKA_STREAMS=1")
    if (reason := unavailable_streams_reason()) is not None:
        pytest.skip(reason)
    command = [sys.executable, "-m", "tests.exactly_once.word_count", "--nodes", "--lines", "6000", "--kills", "2"]
    done = subprocess.run(
        [*command, "--protocol", protocol, "--directory", str(tmp_path / "run"), "--seed", "1"],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
