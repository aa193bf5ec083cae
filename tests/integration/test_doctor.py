"""`ottla doctor` on real clusters: no finding while all is well, and exactly the troubles that are planted."""

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from broker.client import Client, ClientConfig
from protocol.messages.produce import PartitionProduceData, ProduceRequest, ProduceResponse, TopicProduceData
from protocol.records.builder import Record, build_batch
from tests.support.certificates import CertificateAuthority
from tests.support.clients.replicated_load import create_topic
from tests.support.kafka.apache_kafka import free_ports
from tests.support.processes.broker_cluster import BrokerCluster
from tests.support.processes.ottla_node import run_ottla

pytestmark = pytest.mark.integration

DEADLINE_S = 60
TWENTY_MINUTES_MS = 20 * 60_000
TRANSACTIONAL_VERSION = 9


def examine(cluster: BrokerCluster) -> tuple[int, list[dict[str, Any]]]:
    """Run the doctor; return its exit code and its findings, without the one about a full disk of this machine."""
    running = ",".join(broker.bootstrap for broker in cluster.brokers.values() if broker.is_running)
    done = run_ottla("doctor", "--bootstrap-server", running, "--json", check=False)
    assert done.stderr == ""
    found = json.loads(done.stdout)["findings"]
    kept = [each for each in found if each["code"] != "disk-filling"]
    return (done.returncode if kept == found else int(bool(kept))), kept


def until(condition: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while not condition():
        assert time.monotonic() < deadline, f"{what} did not happen in time"
        time.sleep(0.05)


def cluster_with_certificate(directory: Path, key_store: Path) -> BrokerCluster:
    """Return three brokers; broker 2 also listens with TLS."""
    cluster = BrokerCluster(
        directory, settings={"transaction.partition.verification.enable": "false", "min.insync.replicas": "2"}
    )
    (port,) = free_ports(1)
    cluster[2].settings |= {
        "listeners": f"PLAINTEXT://127.0.0.1:{cluster[2].port},SECURE://127.0.0.1:{port}",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,SECURE:SSL",
        "listener.name.secure.ssl.keystore.type": "PEM",
        "listener.name.secure.ssl.keystore.location": str(key_store),
    }
    return cluster


def plant_hanging_transaction(cluster: BrokerCluster, topic: str) -> None:
    """Append a transactional batch that no coordinator knows, as old clients could (KIP-890)."""
    written_ms = int(time.time() * 1000) - TWENTY_MINUTES_MS
    records = build_batch(
        [Record(written_ms, b"key", b"value")], producer_id=77, producer_epoch=0, base_sequence=0, transactional=True
    )
    request = ProduceRequest(
        "ghost", -1, 30_000, [TopicProduceData(name=topic, partition_data=[PartitionProduceData(0, records)])]
    )
    with Client(ClientConfig.parse(cluster[1].bootstrap)) as client:
        leader = client.leaders([topic])[topic].partitions[0].leader_id
        answer = client.node(leader).call(request, ProduceResponse, highest=TRANSACTIONAL_VERSION)
    assert answer.responses[0].partition_responses[0].error_code == 0


def leader_of(cluster: BrokerCluster, topic: str) -> int:
    with Client(ClientConfig.parse(cluster[1].bootstrap)) as client:
        return client.metadata([topic]).topics[0].partitions[0].leader_id


def test_healthy_cluster_has_no_finding_and_planted_troubles_are_all_named(tmp_path: Path) -> None:
    """Five troubles: an ineffective setting, an expiring certificate, a hanging transaction, a broker that is gone,
    and a partition whose only replica was there."""
    authority = CertificateAuthority()
    key_store = authority.issue("localhost", "127.0.0.1", days=365).write_pem(tmp_path / "key-store.pem")
    with cluster_with_certificate(tmp_path / "cluster", key_store) as cluster:
        for topic, replicas in (("orders", [[1, 2, 3], [2, 3, 1], [3, 1, 2]]), ("ledger", [[1, 2, 3]])):
            create_topic(cluster.bootstrap, topic, len(replicas), 3, replicas)
        assert examine(cluster) == (0, [])

        create_topic(cluster.bootstrap, "lonely", 1, 1, [[3]], **{"min.insync.replicas": "1"})
        setting = ("--alter", "--entity-type", "brokers", "--entity-name", "1", "--add-config", "num.network.threads=4")
        cluster.ottla("configs", *setting)
        authority.issue("localhost", "127.0.0.1", days=3).write_pem(key_store)
        plant_hanging_transaction(cluster, "ledger")
        cluster[3].kill()
        until(
            lambda: "Leader: none" in cluster.ottla("topics", "--describe", "--topic", "lonely"), "loss of the leader"
        )

        code, findings = examine(cluster)
        assert code == 1
        assert {(each["severity"], each["code"], each["object"]) for each in findings} == {
            ("critical", "offline-partitions", "partition lonely-0"),
            ("critical", "expiring-certificate", "broker 2, listener SECURE"),
            ("critical", "hanging-transactions", "partition ledger-0"),
            ("warning", "fenced-brokers", "broker 3"),
            ("info", "ineffective-setting", "broker 1"),
        }
        assert all(each["command"].startswith("ottla ") for each in findings)

        abort = next(each["command"] for each in findings if each["code"] == "hanging-transactions")
        run_ottla(*abort.split()[1:])
        assert "hanging-transactions" not in {each["code"] for each in examine(cluster)[1]}
