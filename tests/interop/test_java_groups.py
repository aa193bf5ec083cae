"""Java consumers in groups: one program runs against Apache Kafka and against us, and must see the same of both."""

from pathlib import Path

import pytest

from tests.support.kafka.apache_kafka import apache_kafka, run_tool, unavailable_reason
from tests.support.processes.ottla_node import OttlaNode

pytestmark = pytest.mark.interop

PROGRAM = str(Path(__file__).parent / "java" / "GroupStories.java")
# Records are of a time long ago, and read before retention is first applied, however long that takes.
SETTINGS = {"group.initial.rebalance.delay.ms": "300", "log.initial.task.delay.ms": "3600000"}


def test_java_groups_see_of_us_what_they_see_of_apache_kafka(tmp_path: Path) -> None:
    if (reason := unavailable_reason()) is not None:
        pytest.skip(reason)
    with apache_kafka(tmp_path / "kafka", SETTINGS, heap="512m") as bootstrap:
        expected = run_tool(PROGRAM, bootstrap).splitlines()
    with OttlaNode(tmp_path / "ottla", SETTINGS) as node:
        seen = run_tool(PROGRAM, node.bootstrap).splitlines()
    assert len(expected) > 30
    assert not [line for line in expected if line.endswith("false")]
    assert seen == expected
