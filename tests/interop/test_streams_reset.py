"""`ottla streams-application-reset` and Kafka's own tool on a Kafka Streams application, running and killed.

The application of `tests.exactly_once.word_count` runs once for each protocol of its group. Its jars have 70 MB, so the
test runs only with OTTLA_KAFKA_STREAMS=1.
"""

import argparse
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import confluent_kafka
import pytest
from confluent_kafka import ConsumerGroupTopicPartitions, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from tests.exactly_once.word_count import APPLICATION, SOURCE, TARGET, Application, unavailable_streams_reason
from tests.support.clients.partition_states import until
from tests.support.kafka.apache_kafka import java_command
from tests.support.kafka.kafka_commands import COMMANDS
from tests.support.processes.ottla_node import OttlaNode, clean_environment

pytestmark = [pytest.mark.interop, pytest.mark.slow]

LINES = 20
PATIENCE_S = 120
SESSION_TIMEOUT_MS = 120_000
"""Long enough for both tools after the application has ended."""
SETTINGS = {
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.num.partitions": "1",
    "group.initial.rebalance.delay.ms": "0",
    "group.streams.initial.rebalance.delay.ms": "0",
}
RESET = COMMANDS["kafka-streams-application-reset"]


class Outcome(NamedTuple):
    code: int
    output: str
    errors: str


class Case:
    """A node with an application that has counted the words of all lines."""

    def __init__(self, node: OttlaNode, directory: Path, protocol: str) -> None:
        self.node = node
        self.protocol = protocol
        self.admin = AdminClient({"bootstrap.servers": node.bootstrap})
        for created in self.admin.create_topics([NewTopic(name, 1, 1) for name in (SOURCE, TARGET)]).values():
            created.result(PATIENCE_S)
        producer = confluent_kafka.Producer({"bootstrap.servers": node.bootstrap})
        for number in range(LINES):
            producer.produce(SOURCE, f"word-{number}")
        assert producer.flush(PATIENCE_S) == 0
        directory.mkdir()
        arguments = argparse.Namespace(directory=directory, instances=1, protocol=protocol, guarantee="at_least_once")
        self.application = Application(node.bootstrap, arguments, SESSION_TIMEOUT_MS)
        until(lambda: self.committed() == LINES, PATIENCE_S)

    def committed(self) -> int:
        """Return the committed offset of the input, -1001 without one."""
        asked = ConsumerGroupTopicPartitions(APPLICATION, [TopicPartition(SOURCE, 0)])
        answer = self.admin.list_consumer_group_offsets([asked])[APPLICATION].result(PATIENCE_S)
        return int(answer.topic_partitions[0].offset)

    def internal_topics(self) -> list[str]:
        return sorted(each for each in self.admin.list_topics(timeout=30).topics if each.startswith(APPLICATION))

    def kafka(self, *options: str) -> Outcome:
        return _run(java_command(RESET.main, *self._options(options), heap="256m"))

    def ottla(self, *options: str) -> Outcome:
        return _run([sys.executable, "-m", "broker", str(RESET.ours), *self._options(options)])

    def _options(self, options: tuple[str, ...]) -> list[str]:
        scope = ("--bootstrap-server", self.node.bootstrap, "--application-id", APPLICATION, "--input-topics", SOURCE)
        return [*scope, *options]


def _run(command: list[str]) -> Outcome:
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=PATIENCE_S, check=False, env=clean_environment()
    )
    return Outcome(done.returncode, done.stdout, done.stderr)


@pytest.fixture(params=["classic", "streams"])
def case(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Case]:
    if os.environ.get("OTTLA_KAFKA_STREAMS") != "1":
        pytest.skip("set OTTLA_KAFKA_STREAMS=1")
    if (reason := unavailable_streams_reason()) is not None:
        pytest.skip(reason)
    with OttlaNode(tmp_path / "node", SETTINGS) as node:
        made = Case(node, tmp_path / "application", request.param)
        try:
            yield made
        finally:
            made.application.stop()


def forced(case: Case, tool: Callable[..., Outcome]) -> Outcome:
    """Reset while the application runs, which fails, and by --force once it is killed: its sessions have not ended."""
    until(lambda: case.committed() == LINES, PATIENCE_S)
    refused = tool()
    assert refused.code == 1, refused
    assert case.committed() == LINES
    case.application.stop()
    return tool("--force")


def test_reset_needs_force_while_sessions_last(case: Case) -> None:
    """Kafka's tool and ours print the same for a classic group; neither removes members of a streams group."""
    outcomes = []
    for tool in (case.kafka, case.ottla):
        outcomes.append(forced(case, tool))
        is_reset = case.protocol == "classic"
        assert outcomes[-1].code == (0 if is_reset else 1), outcomes[-1]
        assert case.committed() == (0 if is_reset else LINES)
        assert (case.internal_topics() == []) is is_reset
        case.application.kill(0)  # starts it again
    kafka, ottla = outcomes
    if case.protocol == "classic":
        assert ottla.output == kafka.output
        assert ottla.output.startswith(f"Force deleting all active members in the group: {APPLICATION}\n")
    else:
        assert "active members, which --force does not remove" in ottla.errors
