"""The Spark snapshot job beside a three-node cluster: its snapshot equals a node's snapshot byte for byte.

A new node imports it.
"""

import hashlib
import json
import subprocess
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, NewPartitions, NewTopic

pytest.importorskip("pyspark", reason="PySpark is not installed: pip install 'ottla[spark]'")

from tests.support.clients.partition_states import until
from tests.support.kafka import apache_kafka
from tests.support.kafka.apache_kafka import run_tool
from tests.support.processes import snapshot_job
from tests.support.processes.broker_cluster import ClusterNode
from tests.support.processes.joining_node import joining_node, line_with
from tests.support.processes.ottla_cluster import OttlaCluster
from tests.support.processes.ottla_node import run_ottla
from tests.support.processes.snapshot_job import TailingJob
from tests.support.processes.spark_session import require_spark

pytestmark = [pytest.mark.integration, pytest.mark.timeout(1800)]

TIMEOUT_S = 60
OFTEN = ("--interval", "0.5", "--trigger", "0.2")
RECEIVED = "ottla_metadata_snapshots_received_total"


class Outcome(NamedTuple):
    """Snapshots of one id by the job and by a node, the job's output directory, and the cluster.

    `health` and `metrics` are responses of the job's HTTP listener after the last change.
    """

    ours: Path
    theirs: Path
    out: Path
    cluster: OttlaCluster
    health: dict[str, object]
    metrics: str


class Changes:
    """Metadata changes that a client makes while the job runs."""

    def __init__(self, bootstrap: str) -> None:
        self._admin = AdminClient({"bootstrap.servers": bootstrap})

    def create(self, name: str, partitions: int, **config: str) -> None:
        topic = NewTopic(name, partitions, 2, config={key.replace("_", "."): value for key, value in config.items()})
        self._admin.create_topics([topic], request_timeout=TIMEOUT_S)[name].result(TIMEOUT_S)

    def delete(self, name: str) -> None:
        self._admin.delete_topics([name], request_timeout=TIMEOUT_S)[name].result(TIMEOUT_S)

    def grow(self, name: str, partitions: int) -> None:
        self._admin.create_partitions([NewPartitions(name, partitions)])[name].result(TIMEOUT_S)

    def alter(self, name: str, key: str, value: str) -> None:
        entry = ConfigEntry(key, value, incremental_operation=AlterConfigOpType.SET)
        resource = ConfigResource(ConfigResource.Type.TOPIC, name, incremental_configs=[entry])
        self._admin.incremental_alter_configs([resource])[resource].result(TIMEOUT_S)


@pytest.fixture(scope="module")
def outcome(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Outcome]:
    """Create, alter, delete and re-create topics while the job tails the log, is killed, and tails again."""
    require_spark()
    directory = tmp_path_factory.mktemp("spark")
    out = directory / "out"
    with OttlaCluster(directory / "cluster", settings={"metadata.max.idle.interval.ms": "0"}) as cluster:
        changes, source = Changes(cluster.bootstrap), ("--bootstrap-server", cluster.bootstrap)
        changes.create("stays", 4, retention_ms="1000")
        changes.create("again", 3, retention_ms="2000", cleanup_policy="compact")
        with TailingJob(out, *source, *OFTEN) as job:
            job.until(lambda: job.latest_end() > 0)
            changes.alter("stays", "retention.ms", "3000")
            changes.delete("again")
            job.kill()
        changes.create("again", 5, retention_ms="4000")
        (http_port,) = apache_kafka.free_ports(1)
        with TailingJob(out, *source, *OFTEN, "--http", f"127.0.0.1:{http_port}") as job:
            killed_at = job.latest_end()
            job.until(lambda: job.latest_end() > killed_at)
            leader = cluster.leader_index()
            cluster.wait_ready(leader, cluster.kill(leader))
            changes.grow("stays", 6)
            changes.create("late", 1)
            theirs = cluster.cut_snapshot((leader + 1) % 3)
            end = int(theirs.name[:20])
            asked = snapshot_job.run(*source, "--out", str(out), "--at", str(end), "--json")
            assert asked.returncode == 0, asked.stderr
            assert json.loads(asked.stdout)["file"] == theirs.name
            changes.create("after", 1)
            at_rest = int(cluster.cut_equal_snapshots()[0].name[:20])
            job.until(lambda: job.latest_end() >= at_rest)
            health = json.loads(response(http_port, "/health/ready"))
            metrics = response(http_port, "/metrics")
            assert job.stop() == 0, job.output()
        yield Outcome(out / theirs.name, theirs, out, cluster, health, metrics)


def response(port: int, path: str) -> str:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=TIMEOUT_S) as opened:
        text: str = opened.read().decode()
    return text


def test_tailing_job_reports_health_and_lag(outcome: Outcome) -> None:
    assert outcome.health["status"] == "ready"
    assert outcome.health["lag"] == 0
    assert "\nottla_metadata_job_lag_records 0" in outcome.metrics


def test_job_snapshot_equals_the_nodes_snapshot(outcome: Outcome) -> None:
    ours, theirs = (hashlib.sha256(path.read_bytes()).hexdigest() for path in (outcome.ours, outcome.theirs))
    assert ours == theirs
    manifest = json.loads(outcome.ours.with_suffix(".json").read_bytes())
    assert manifest["sha256"] == theirs


def test_kafka_tools_read_the_job_snapshot(outcome: Outcome) -> None:
    """Check Kafka's dump tool and shell: a re-created topic has its later configuration."""
    if (reason := apache_kafka.unavailable_reason()) is not None:
        pytest.skip(reason)
    output = run_tool("kafka.tools.DumpLogSegments", "--cluster-metadata-decoder", "--files", str(outcome.ours))
    assert "SnapshotHeader" in output
    assert "SnapshotFooter" in output
    for part in ('"name":"again"', '"name":"late"', '"value":"4000"', '"value":"3000"'):
        assert part in output, part
    assert '"value":"compact"' not in output, "the snapshot holds a config of the deleted topic"
    expected = ["0", "1", "2", "3", "4", "id", "name"]
    until(lambda: shell_listing(outcome.ours, "/image/topics/byName/again") == expected, timeout_s=300)


def shell_listing(snapshot: Path, node: str) -> list[str]:
    """Return what Kafka's shell lists. It does not always wait until it has loaded the node, and sometimes it hangs."""
    asked = ("--snapshot", str(snapshot), "ls", node)
    try:
        return run_tool("org.apache.kafka.shell.MetadataShell", *asked, timeout_s=60).split()
    except subprocess.TimeoutExpired:
        return []


def test_new_node_imports_the_job_snapshot(outcome: Outcome, tmp_path: Path) -> None:
    """Check that the node imports all the job has written and ends with the image of the other nodes."""
    latest = json.loads((outcome.out / "latest.json").read_bytes())["file"]
    uri = outcome.out.as_uri()
    fresh = joining_node(outcome.cluster, tmp_path, 11, {"ottla.metadata.snapshot.import.uri": uri})
    with fresh:
        until(lambda: line_with(fresh.log_text, "A metadata snapshot was imported", latest, str(outcome.out)))
        assert fresh.metric(RECEIVED, source="store") == 1
        assert fresh.metric(RECEIVED, source="leader") == 0
        taken = fresh.data / "__cluster_metadata-0" / latest
        assert taken.read_bytes() == (outcome.out / latest).read_bytes()
        cut = [*outcome.cluster.cut_equal_snapshots(), cut_snapshot(fresh)]
        assert len({path.name for path in cut}) == 1
        assert int(cut[0].name[:20]) > int(latest[:20]), "the snapshot lacks the new node's registration"
        assert len({hashlib.sha256(path.read_bytes()).hexdigest() for path in cut}) == 1


def cut_snapshot(node: ClusterNode) -> Path:
    """Let the node write a snapshot with `ottla metadata-quorum snapshot`."""
    done = run_ottla("metadata-quorum", "--bootstrap-server", node.bootstrap, "snapshot", "--json")
    return node.data / "__cluster_metadata-0" / str(json.loads(done.stdout)["file"])


def test_job_reports_invalid_input_with_one_error_line(outcome: Outcome, tmp_path: Path) -> None:
    """Check errors that the job reports before Spark starts, where possible."""
    unreachable = snapshot_job.run("--bootstrap-server", "127.0.0.1:1", "--out", str(tmp_path / "out"), "--once")
    assert unreachable.returncode == 1
    assert unreachable.stderr.splitlines()[-1] == "Error: cannot connect to 127.0.0.1:1: Connection refused."
    assert unreachable.stdout == ""
