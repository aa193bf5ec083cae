"""Partition reassignments while clients read and write: throttled, cancelled, and with their logs cleaned up."""

import json
import os
import time
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path

import pytest

from tests.support.clients.partition_states import PartitionState, partition_states, until, wait_for_state
from tests.support.clients.replicated_load import ReplicatedLoad, admin_of, consume_all, create_topic, produce
from tests.support.processes.broker_cluster import BrokerCluster

pytestmark = pytest.mark.integration

VALUE_BYTES = 10_000
RATE = 2_000_000
UNDER_REPLICATED = "kafka_server_replicamanager_underreplicatedpartitions"

REASSIGNING = "kafka_server_replicamanager_reassigningpartitions"


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerCluster]:
    settings = {
        "log.segment.delete.delay.ms": "200",
        "log.initial.task.delay.ms": "100",
        "broker.session.timeout.ms": "9000",
    }
    with BrokerCluster(tmp_path_factory.mktemp("brokers"), brokers=4, settings=settings) as running:
        yield running


def filled(cluster: BrokerCluster, topic: str, megabytes: float, replicas: Sequence[int]) -> list[bytes]:
    """Create a topic of one partition, fill it, and return its values."""
    create_topic(cluster.bootstrap, topic, 0, assignment=[replicas])
    values = [b"%06d" % number + os.urandom(VALUE_BYTES) for number in range(int(megabytes * 1e6 / VALUE_BYTES))]
    produce(cluster.bootstrap, topic, values)
    return values


def reassign(
    cluster: BrokerCluster, tmp_path: Path, action: str, topic: str, *replicas: int, throttle: int | None = None
) -> str:
    plan = tmp_path / "plan.json"
    move = {"topic": topic, "partition": 0, "replicas": list(replicas)}
    plan.write_text(json.dumps({"version": 1, "partitions": [move]}))
    bound = () if throttle is None else ("--throttle", str(throttle))
    return cluster.ottla("reassign-partitions", action, "--reassignment-json-file", str(plan), *bound)


def state_of(cluster: BrokerCluster, topic: str) -> PartitionState:
    return partition_states(admin_of(cluster.bootstrap), topic)[0]


def is_led_by(replicas: Sequence[int], state: PartitionState) -> bool:
    return state.leader in replicas


def wait_for_replicas(cluster: BrokerCluster, topic: str, *replicas: int) -> None:
    """Wait until exactly these replicas exist, all in sync, and no other broker holds the log."""
    wait_for_state(cluster.bootstrap, topic, lambda state: state.replicas == list(replicas) and state.is_whole)
    others = [broker.data for broker_id, broker in cluster.brokers.items() if broker_id not in replicas]
    until(lambda: not any(any(data.glob(f"{topic}-0*")) for data in others))


def log_bytes(cluster: BrokerCluster, broker_id: int, topic: str) -> bytes:
    files = sorted((cluster[broker_id].data / f"{topic}-0").glob("*.log"))
    return b"".join(file.read_bytes() for file in files)


def test_partition_moves_to_two_other_brokers_under_load(cluster: BrokerCluster, tmp_path: Path) -> None:
    create_topic(cluster.bootstrap, "moved", 0, assignment=[[1, 2]], min_insync_replicas="2")
    with ReplicatedLoad(cluster.bootstrap, "moved", members=1) as load:
        until(lambda: load.ledger.consumed_count > 100)
        for replicas in ((1, 2, 3), (3, 4), (4, 1)):
            reassign(cluster, tmp_path, "--execute", "moved", *replicas)
            wait_for_replicas(cluster, "moved", *replicas)
            wait_for_state(cluster.bootstrap, "moved", partial(is_led_by, replicas))
    load.ledger.check()
    assert log_bytes(cluster, 4, "moved") == log_bytes(cluster, 1, "moved") != b""


def test_reassignment_stays_below_its_throttle(cluster: BrokerCluster, tmp_path: Path) -> None:
    values = filled(cluster, "throttled", 8, [1, 2])
    begun = time.monotonic()
    reassign(cluster, tmp_path, "--execute", "throttled", 1, 2, 3, throttle=RATE)
    wait_for_replicas(cluster, "throttled", 1, 2, 3)
    took = time.monotonic() - begun
    print(f"8 MB at 2 MB/s took {took:.1f} s")
    assert took > 2.9
    assert "Clearing topic-level throttles" in reassign(cluster, tmp_path, "--verify", "throttled", 1, 2, 3)
    output = cluster.ottla("configs", "--describe", "--entity-type", "topics", "--entity-name", "throttled")
    assert "throttled.replicas" not in output
    assert consume_all(cluster.bootstrap, "throttled", 0) == values
    assert log_bytes(cluster, 3, "throttled") == log_bytes(cluster, 1, "throttled")


def is_under_way(state: PartitionState) -> bool:
    return (state.leader, state.replicas, sorted(state.isr)) == (1, [3, 4, 1, 2], [1, 2])


def test_throttled_reassignment_keeps_the_isr_and_is_cancelled(cluster: BrokerCluster, tmp_path: Path) -> None:
    """Throttle the reassignment so that it would take an hour."""
    values = filled(cluster, "kept", 4, [1, 2])
    reassign(cluster, tmp_path, "--execute", "kept", 3, 4, throttle=1000)
    wait_for_state(cluster.bootstrap, "kept", is_under_way)
    until(lambda: (cluster[3].data / "kept-0").exists())
    assert "adding: 3,4. removing: 1,2." in cluster.ottla("reassign-partitions", "--list")
    until(lambda: cluster[1].metric(REASSIGNING) == 1)
    until(lambda: cluster[1].metric(UNDER_REPLICATED) == 0)  # adding replicas do not count as under-replicated
    produce(cluster.bootstrap, "kept", [b"more"], acks="all")
    wait_for_state(cluster.bootstrap, "kept", is_under_way)
    reassign(cluster, tmp_path, "--cancel", "kept", 3, 4)
    wait_for_replicas(cluster, "kept", 1, 2)
    assert "No partition reassignments found" in cluster.ottla("reassign-partitions", "--list")
    assert consume_all(cluster.bootstrap, "kept", 0) == [*values, b"more"]
