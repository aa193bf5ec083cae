"""Apache Kafka's tools move leaders and replicas of an Ottla cluster: elections, throttles, log directories."""

import json
import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.clients.partition_states import until, wait_for_state, wait_until_whole
from tests.support.clients.replicated_load import consume_all, create_topic, produce
from tests.support.kafka.apache_kafka import run_tool, unavailable_reason
from tests.support.processes.broker_cluster import BrokerCluster

pytestmark = pytest.mark.interop

ELECT = "org.apache.kafka.tools.LeaderElectionCommand"
REASSIGN = "org.apache.kafka.tools.reassign.ReassignPartitionsCommand"
CONFIGS = "kafka.admin.ConfigCommand"
RATE = 1_000_000


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerCluster]:
    if (reason := unavailable_reason()) is not None:
        pytest.skip(reason)
    directory = tmp_path_factory.mktemp("brokers")
    two = {"log.dirs": f"{directory / 'first'},{directory / 'second'}"}
    with BrokerCluster(directory, each={3: two}) as running:
        yield running


def run(cluster: BrokerCluster, tool: str, *arguments: str) -> str:
    running = ",".join(broker.bootstrap for broker in cluster.brokers.values() if broker.is_running)
    return run_tool(tool, "--bootstrap-server", running, *arguments)


def write_plan(tmp_path: Path, topic: str, replicas: list[int], log_dirs: list[str] | None = None) -> tuple[str, str]:
    move = {"topic": topic, "partition": 0, "replicas": replicas, "log_dirs": log_dirs or ["any"] * len(replicas)}
    plan = tmp_path / "plan.json"
    plan.write_text(json.dumps({"version": 1, "partitions": [move]}))
    return "--reassignment-json-file", str(plan)


def test_reassignment_tool_adds_a_replica_at_its_throttle(cluster: BrokerCluster, tmp_path: Path) -> None:
    create_topic(cluster.bootstrap, "grown", 0, assignment=[[1, 2]])
    values = [os.urandom(10_000) for _ in range(800)]
    produce(cluster.bootstrap, "grown", values)
    plan = write_plan(tmp_path, "grown", [1, 2, 3])
    begun = time.monotonic()
    output = run(cluster, REASSIGN, "--execute", *plan, "--throttle", str(RATE))
    assert f"The inter-broker throttle limit was set to {RATE} B/s" in output
    wait_for_state(cluster.bootstrap, "grown", lambda state: sorted(state.isr) == [1, 2, 3])
    assert time.monotonic() - begun > 6, "8 MB at 1 MB/s take longer"
    output = run(cluster, REASSIGN, "--verify", *plan)
    assert "Reassignment of partition grown-0 is completed." in output
    assert "Clearing topic-level throttles on topic grown" in output
    assert "throttled" not in run(cluster, CONFIGS, "--describe", "--entity-type", "topics", "--entity-name", "grown")
    assert consume_all(cluster.bootstrap, "grown", 0) == values


@pytest.mark.parametrize("name", ["first", "second"])
def test_reassignment_tool_chooses_the_log_directory(cluster: BrokerCluster, tmp_path: Path, name: str) -> None:
    topic, directory = f"into-{name}", cluster[3].directory.parent / name
    create_topic(cluster.bootstrap, topic, 0, assignment=[[1]])
    produce(cluster.bootstrap, topic, [b"a"])
    plan = write_plan(tmp_path, topic, [1, 3], ["any", str(directory)])
    run(cluster, REASSIGN, "--execute", *plan)
    wait_for_state(cluster.bootstrap, topic, lambda state: sorted(state.isr) == [1, 3])
    assert (directory / f"{topic}-0").is_dir()
    assert "completed" in run(cluster, REASSIGN, "--verify", *plan)


def test_moving_a_replica_between_directories_is_refused(cluster: BrokerCluster, tmp_path: Path) -> None:
    create_topic(cluster.bootstrap, "stays", 0, assignment=[[3]])
    directories = [cluster[3].directory.parent / name for name in ("first", "second")]
    until(lambda: any((directory / "stays-0").is_dir() for directory in directories))
    home, other = sorted(directories, key=lambda directory: not (directory / "stays-0").is_dir())
    assert "completed" in run(cluster, REASSIGN, "--verify", *write_plan(tmp_path, "stays", [3], [str(home)]))
    with pytest.raises(AssertionError, match="PolicyViolation"):
        run(cluster, REASSIGN, "--execute", *write_plan(tmp_path, "stays", [3], [str(other)]))
    with pytest.raises(AssertionError, match="LogDirNotFound"):
        run(cluster, REASSIGN, "--execute", *write_plan(tmp_path, "stays", [3], ["/nowhere"]))
    assert (home / "stays-0").is_dir()


def test_reassignment_tool_cancels_a_reassignment(cluster: BrokerCluster, tmp_path: Path) -> None:
    create_topic(cluster.bootstrap, "kept", 0, assignment=[[1, 2]])
    produce(cluster.bootstrap, "kept", [os.urandom(10_000)] * 400)
    plan = write_plan(tmp_path, "kept", [3])
    run(cluster, REASSIGN, "--execute", *plan, "--throttle", "1000")
    assert "adding: 3" in run(cluster, REASSIGN, "--list")
    output = run(cluster, REASSIGN, "--cancel", *plan)
    assert "Successfully cancelled partition reassignment for: kept-0" in output
    wait_for_state(cluster.bootstrap, "kept", lambda state: state.replicas == [1, 2] and state.is_whole)


def test_election_tool_elects_preferred_and_unclean_leaders(cluster: BrokerCluster) -> None:
    create_topic(cluster.bootstrap, "elected", 0, assignment=[[1, 2]])
    produce(cluster.bootstrap, "elected", [b"both"])
    cluster[1].terminate()
    wait_for_state(cluster.bootstrap, "elected", lambda state: state.leader == 2)
    cluster.start(1)
    wait_until_whole(cluster.bootstrap, "elected")
    one = ("--topic", "elected", "--partition", "0")
    assert "Successfully completed leader election (PREFERRED)" in run(
        cluster, ELECT, "--election-type", "preferred", *one
    )
    wait_for_state(cluster.bootstrap, "elected", lambda state: state.leader == 1)
    cluster[2].kill()
    wait_for_state(cluster.bootstrap, "elected", lambda state: state.isr == [1])
    produce(cluster.bootstrap, "elected", [b"alone"])
    cluster[1].kill()
    cluster.start(2)
    wait_for_state(cluster.bootstrap, "elected", lambda state: state.leader == -1)
    assert "Successfully completed leader election (UNCLEAN)" in run(cluster, ELECT, "--election-type", "unclean", *one)
    wait_for_state(cluster.bootstrap, "elected", lambda state: state.leader == 2)
    assert consume_all(cluster.bootstrap, "elected", 0) == [b"both"]
    cluster.start(1)
    wait_until_whole(cluster.bootstrap, "elected")
