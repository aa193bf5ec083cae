"""Apache Kafka's tools with an Ottla quorum: describe it, change its voters and features, and format nodes."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from broker.cli.node.initial_controllers import InitialController
from protocol.primitives import uuid_to_text
from storage.directories.formatting import random_id
from tests.support.kafka.apache_kafka import run_tool, unavailable_reason
from tests.support.kafka.kraft_nodes import KraftNode, KraftNodes, Make
from tests.support.processes.ottla_node import run_ottla

pytestmark = pytest.mark.interop

QUORUM = "org.apache.kafka.tools.MetadataQuorumCommand"
FEATURES = "org.apache.kafka.tools.FeatureCommand"
# Features unknown to Ottla; Apache Kafka formats with all features at their latest levels.
WITHOUT = [part for name in ("share", "streams", "transaction") for part in ("--feature", f"{name}.version=0")]
OTHER = {Make.APACHE: Make.OTTLA, Make.OTTLA: Make.APACHE}


@pytest.fixture(autouse=True)
def require_kafka() -> None:
    if (reason := unavailable_reason()) is not None:
        pytest.skip(reason)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KraftNodes]:
    """Start three combined Ottla nodes."""
    if (reason := unavailable_reason()) is not None:
        pytest.skip(reason)
    directory = tmp_path_factory.mktemp("cluster")
    members = [KraftNode(directory / f"{n}", Make.OTTLA, n, "broker,controller") for n in (1, 2, 3)]
    with KraftNodes(members) as nodes:
        nodes.format_dynamic()
        yield nodes.start()


def tool_targets(nodes: KraftNodes) -> list[tuple[str, str]]:
    """Return the tools' options to connect through brokers and to controllers."""
    return [
        ("--bootstrap-server", ",".join(node.address for node in nodes.nodes if "broker" in node.roles)),
        ("--bootstrap-controller", ",".join(node.controller_address for node in nodes.controllers)),
    ]


def test_quorum_tool_describes_the_quorum(cluster: KraftNodes) -> None:
    told = cluster.caught_up()
    for way in tool_targets(cluster):
        status = dict(re.findall(r"^(\w+): +(.*)$", run_tool(QUORUM, *way, "describe", "--status"), re.MULTILINE))
        assert status["ClusterId"] == cluster.cluster_id
        assert (int(status["LeaderId"]), int(status["LeaderEpoch"])) == (told.leader, told.epoch)
        assert int(status["HighWatermark"]) >= told.high_watermark
        assert 0 <= int(status["MaxFollowerLag"]) <= 100
        for node in cluster.controllers:
            voter = f'"id": {node.id}, "directoryId": "{uuid_to_text(node.directory_id)}"'
            assert voter in status["CurrentVoters"]
            assert f'"CONTROLLER://{node.controller_address}"' in status["CurrentVoters"]
        assert status["CurrentObservers"] == "[]"
        _, *rows = run_tool(QUORUM, *way, "describe", "--replication").splitlines()
        shown = {int(row.split()[0]): row.split() for row in rows if row.strip()}
        assert {number: (row[1], row[-1]) for number, row in shown.items()} == {
            node.id: (uuid_to_text(node.directory_id), "Leader" if node.id == told.leader else "Follower")
            for node in cluster.controllers
        }
        assert all(0 <= int(row[3]) <= 100 for row in shown.values())


@pytest.mark.parametrize("way", [0, 1], ids=["server", "controller"])
@pytest.mark.parametrize("make", list(Make))
def test_quorum_tool_adds_and_removes_a_controller(cluster: KraftNodes, make: Make, way: int, tmp_path: Path) -> None:
    target = tool_targets(cluster)[way]
    newcomer = cluster.join(KraftNode(tmp_path / "four", make, 4))
    try:
        cluster.caught_up([4])
        assert 4 in cluster.quorum().observers
        added = run_tool(QUORUM, *target, "--command-config", str(newcomer.properties), "add-controller")
        assert "Added controller 4 with directory id" in added
        assert set(cluster.quorum().voters) == {1, 2, 3, 4}
        cluster.change("8000")
        cluster.assert_same_log([1, 2, 3, 4])
        directory_id = uuid_to_text(newcomer.directory_id)
        leaving = ("--controller-id", "4", f"--controller-directory-id={directory_id}")
        assert re.match(r"Removed +KRaft controller 4 ", run_tool(QUORUM, *target, "remove-controller", *leaving))
        assert set(cluster.quorum().voters) == {1, 2, 3}
        with pytest.raises(AssertionError, match="VoterNotFound"):
            run_tool(QUORUM, *target, "remove-controller", *leaving)
    finally:
        newcomer.end()
        cluster.nodes.remove(newcomer)


def test_feature_tool_describes_and_changes_features(cluster: KraftNodes) -> None:
    name = "eligible.leader.replicas.version"
    for way, action, level in zip(tool_targets(cluster), ("downgrade", "upgrade"), (0, 1), strict=True):
        lines = run_tool(FEATURES, *way, "describe").splitlines()
        found = {line.split()[1]: line for line in lines if line.startswith("Feature: ")}
        assert re.search(r"FinalizedVersionLevel: 4\.2-IV1\b", found["metadata.version"])
        assert re.search(r"FinalizedVersionLevel: 1\b", found["kraft.version"])
        assert f"FinalizedVersionLevel: {1 - level}" in found[name]
        changed = run_tool(FEATURES, *way, action, "--feature", f"{name}={level}")
        assert f"{name} was {action}d to {level}." in changed


@pytest.mark.parametrize("runs", list(Make))
@pytest.mark.parametrize("how", ["--standalone", "--initial-controllers", "static"])
def test_nodes_start_on_directories_formatted_by_the_other(runs: Make, how: str, tmp_path: Path) -> None:
    with KraftNodes([KraftNode(tmp_path / "node", runs, 5, "broker,controller")]) as nodes:
        node = nodes[5]
        features = WITHOUT if runs is Make.OTTLA else []
        first = InitialController(5, "127.0.0.1", node.controller_port, random_id())
        if how == "static":
            node.write_properties({"controller.quorum.voters": f"5@{node.controller_address}"})
            node.format(nodes.cluster_id, *features, make=OTHER[runs])
        else:
            node.write_properties(nodes.bootstrap_servers)
            options = (how, str(first)) if how == "--initial-controllers" else (how,)
            node.format(nodes.cluster_id, *options, *features, make=OTHER[runs])
        if how == "--initial-controllers":
            assert node.directory_id == first.directory_id
        nodes.start()
        assert list(nodes.quorum().voters) == [5]
        nodes.change("9000")
        for make in (OTHER[runs], runs):  # each then continues the other's log
            assert node.terminate() in (0, 143)
            node.make = make
            node.start()
            nodes.change(f"900{len(node.segments)}")
        told = run_ottla("features", "--bootstrap-server", node.address, "describe").stdout
        level = 0 if how == "static" else 1
        assert re.search(rf"kraft\.version.*FinalizedVersionLevel: {level}\b", told)
