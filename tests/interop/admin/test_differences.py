"""The same admin calls against Apache Kafka and Ottla; `differences.json` records differences with their reason.

An unrecorded difference fails, and so does a recorded one that no longer exists.
"""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.interop.admin import calls
from tests.interop.admin.run import REGISTERING
from tests.support.kafka.apache_kafka import apache_kafka, unavailable_reason
from tests.support.processes.ottla_node import OttlaNode

# Records have old timestamps. They must be read before retention is first applied, however slow the machine.
LATER = {"log.initial.task.delay.ms": "3600000"}
SETTINGS = {"num.partitions": "1", "group.initial.rebalance.delay.ms": "500", **LATER}
RECORDED: dict[str, dict[str, object]] = json.loads((Path(__file__).parent / "differences.json").read_text())

Outcomes = tuple[dict[str, object], dict[str, object]]

pytestmark = pytest.mark.interop


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory: pytest.TempPathFactory) -> Outcomes:
    if (reason := unavailable_reason()) is not None:
        pytest.skip(reason)
    with apache_kafka(tmp_path_factory.mktemp("kafka"), SETTINGS) as bootstrap:
        theirs = outcomes_at(bootstrap)
    with OttlaNode(tmp_path_factory.mktemp("ottla"), SETTINGS) as node:
        ours = outcomes_at(node.bootstrap)
    return theirs, ours


def outcomes_at(bootstrap: str) -> dict[str, object]:
    command = [sys.executable, "-m", "tests.interop.admin.run", bootstrap]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, done.stderr[-3000:]
    outcomes: dict[str, object] = json.loads(done.stdout)
    return outcomes


@pytest.mark.parametrize("name", calls.CALLS)
def test_call_matches_kafka_or_a_recorded_difference(outcomes: Outcomes, name: str) -> None:
    theirs, ours = outcomes
    if name in RECORDED:
        assert {"kafka": theirs[name], "ottla": ours[name]} == {key: RECORDED[name][key] for key in ("kafka", "ottla")}
        assert RECORDED[name]["why"]
        assert theirs[name] != ours[name], "a recorded difference no longer exists"
    else:
        assert ours[name] == theirs[name]


def test_recorded_differences_name_calls() -> None:
    assert set(RECORDED) <= set(calls.CALLS)
    assert len(REGISTERING) == 3
