"""Java consumer groups: one program runs against Apache Kafka and Ottla and must print the same."""

from pathlib import Path

import pytest

from tests.support.kafka.apache_kafka import apache_kafka, run_tool, unavailable_reason
from tests.support.processes.ottla_node import OttlaNode

pytestmark = pytest.mark.interop

PROGRAM = str(Path(__file__).parent / "java" / "GroupScenarios.java")
# Records have old timestamps. They must be read before retention is first applied, however slow the machine.
SETTINGS = {"group.initial.rebalance.delay.ms": "300", "log.initial.task.delay.ms": "3600000"}


def test_java_groups_behave_as_with_apache_kafka(tmp_path: Path) -> None:
    if (reason := unavailable_reason()) is not None:
        pytest.skip(reason)
    with apache_kafka(tmp_path / "kafka", SETTINGS, heap="512m") as bootstrap:
        expected = run_tool(PROGRAM, bootstrap).splitlines()
    with OttlaNode(tmp_path / "ottla", SETTINGS) as node:
        seen = run_tool(PROGRAM, node.bootstrap).splitlines()
    assert len(expected) > 30
    assert not [line for line in expected if line.endswith("false")]
    assert seen == expected
