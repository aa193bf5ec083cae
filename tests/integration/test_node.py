"""One node as its operator sees it: readiness, metrics, a clean stop, and the state after a restart."""

import json
from collections.abc import Iterator
from pathlib import Path

import confluent_kafka
import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from tests.support.processes.ottla_node import OttlaNode, run_ottla

pytestmark = pytest.mark.integration


@pytest.fixture
def node(tmp_path: Path) -> Iterator[OttlaNode]:
    with OttlaNode(tmp_path) as running:
        yield running


def produce(node: OttlaNode, topic: str, count: int) -> None:
    errors: list[object] = []
    producer = confluent_kafka.Producer({"bootstrap.servers": node.bootstrap})
    for number in range(count):
        producer.produce(topic, b"%d" % number, on_delivery=lambda error, _message: errors.append(error))
    assert producer.flush(30) == 0
    assert errors == [None] * count


def samples(node: OttlaNode) -> dict[str, float]:
    status, page = node.http("/metrics")
    assert status == 200
    lines = (line.rpartition(" ") for line in page.splitlines() if not line.startswith("#"))
    return {name: float(value) for name, _space, value in lines}


def test_health_and_metrics_reflect_traffic(node: OttlaNode) -> None:
    assert node.http("/health/live")[0] == 200
    status, ready = node.http("/health/ready")
    assert (status, json.loads(ready)) == (200, {"status": "ready"})
    assert node.http("/nowhere")[0] == 404
    produce(node, "counted", 25)
    values = samples(node)
    assert values['kafka_server_brokertopicmetrics_messagesin_total{topic="counted"}'] == 25
    assert values["kafka_controller_kafkacontroller_activecontrollercount"] == 1
    assert values["kafka_controller_kafkacontroller_globaltopiccount"] == 1
    assert values["kafka_server_replicamanager_partitioncount"] == 1
    assert values['kafka_log_log_logendoffset{partition="0",topic="counted"}'] == 25


def test_clean_stop_writes_marker_and_restart_finds_all_data(node: OttlaNode) -> None:
    produce(node, "kept", 100)
    admin = AdminClient({"bootstrap.servers": node.bootstrap})
    admin.create_topics([NewTopic("configured", 3, config={"retention.ms": "12345"})])["configured"].result(20)
    assert node.terminate() == 0
    assert (node.data / ".kafka_cleanshutdown").exists()
    node.start()
    assert not (node.data / ".kafka_cleanshutdown").exists()
    listed = json.loads(run_ottla("topics", "--bootstrap-server", node.bootstrap, "--list", "--json").stdout)
    assert sorted(topic["name"] for topic in listed) == ["configured", "kept"]
    described = run_ottla("topics", "--bootstrap-server", node.bootstrap, "--describe", "--topic", "configured").stdout
    assert "retention.ms=12345" in described
    read = ("console-consumer", "--bootstrap-server", node.bootstrap, "--topic", "kept", "--from-beginning")
    lines = run_ottla(*read, "--max-messages", "100").stdout.splitlines()
    assert lines == [str(number) for number in range(100)]


def test_start_logs_kafkas_ready_lines(node: OttlaNode) -> None:
    text = node.log_text
    assert "Transitioning from RECOVERY to RUNNING" in text
    assert "[KafkaServer id=1] started" in text
    assert text.count("\n") < 20, "the start logs too many lines"
