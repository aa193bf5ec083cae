"""Commands that take long, as processes on a pseudo-terminal against a real node."""

import os
import pty
import re
import subprocess
import sys
import threading
from collections.abc import Iterator

import confluent_kafka
import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from tests.support.processes.ottla_node import OttlaNode, clean_environment

pytestmark = pytest.mark.integration

RECORDS, PARTITIONS = 200, 1_200
TIMEOUT_S = 120


class Shown:
    """The outcome of a command whose standard error is a terminal, and whose standard output is a pipe."""

    def __init__(self, node: OttlaNode, *arguments: str) -> None:
        primary, terminal = pty.openpty()
        command, *options = arguments
        command_line = [sys.executable, "-m", "broker", command, "--bootstrap-server", node.bootstrap, *options]
        environment = clean_environment() | {"TERM": "xterm-256color", "COLUMNS": "120"}
        chunks: list[bytes] = []
        reader = threading.Thread(target=_read, args=(primary, chunks))
        reader.start()
        try:
            done = subprocess.run(
                command_line, stdout=subprocess.PIPE, stderr=terminal, env=environment, timeout=TIMEOUT_S, check=False
            )
        finally:
            os.close(terminal)
            reader.join()
            os.close(primary)
        self.terminal = b"".join(chunks).decode()
        self.output = done.stdout.decode()
        assert done.returncode == 0, self.terminal


def _read(primary: int, chunks: list[bytes]) -> None:
    while True:
        try:
            chunk = os.read(primary, 65536)
        except OSError:  # the end of a pseudo-terminal
            return
        if not chunk:
            return
        chunks.append(chunk)


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OttlaNode]:
    settings = {"offsets.topic.num.partitions": "1", "group.initial.rebalance.delay.ms": "0"}
    with OttlaNode(tmp_path_factory.mktemp("progress"), settings) as running:
        admin = AdminClient({"bootstrap.servers": running.bootstrap})
        topics = [NewTopic("records", 1, 1), NewTopic("wide", PARTITIONS, 1)]
        for created in admin.create_topics(topics, operation_timeout=TIMEOUT_S).values():
            created.result(TIMEOUT_S)
        producer = confluent_kafka.Producer({"bootstrap.servers": running.bootstrap})
        for number in range(RECORDS):
            producer.produce("records", str(number))
        assert producer.flush(TIMEOUT_S) == 0
        yield running


def test_consumer_perf_shows_records(node: OttlaNode) -> None:
    shown = Shown(node, "consumer-perf", "--topic", "records", "--num-records", str(RECORDS))
    assert f"{RECORDS}/{RECORDS}" in shown.terminal
    assert "records" in shown.terminal
    assert f" {RECORDS}, " in shown.output
    assert f"{RECORDS}/{RECORDS}" not in shown.output


def test_reset_of_many_partitions_shows_offsets(node: OttlaNode) -> None:
    reset = ("--reset-offsets", "--group", "g", "--topic", "wide", "--to-earliest", "--execute")
    shown = Shown(node, "consumer-groups", *reset)
    assert f"{2 * PARTITIONS}/{2 * PARTITIONS}" in shown.terminal
    assert "offsets" in shown.terminal
    assert len([line for line in shown.output.splitlines() if line.startswith("g ")]) == PARTITIONS


def test_search_of_hanging_transactions_shows_partitions(node: OttlaNode) -> None:
    shown = Shown(node, "transactions", "find-hanging", "--broker-id", "1")
    assert "partitions" in shown.terminal
    done, total = re.findall(r"(\d+)/(\d+)", shown.terminal)[-1]
    assert done == total
    assert int(total) > PARTITIONS
    assert "partitions" not in shown.output
