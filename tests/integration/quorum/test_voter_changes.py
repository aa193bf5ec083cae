"""Changes of a quorum's voters: added and removed under load, and static voters that become dynamic."""

import hashlib
import re
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from tests.support.clients.topic_load import TopicLoad
from tests.support.kafka.apache_kafka import run_tool, unavailable_reason
from tests.support.kafka.kraft_nodes import KraftNode, KraftNodes, Make, until
from tests.support.processes.ottla_cluster import OttlaCluster
from tests.support.processes.ottla_node import json_of, run_ottla

pytestmark = [pytest.mark.integration, pytest.mark.slow]

TIMEOUT_S = 60
# An idle log stands still, so that all nodes reach the same end.
NO_NOOP_RECORDS = {"metadata.max.idle.interval.ms": "0"}
DEFAULT_TIMES = {
    **NO_NOOP_RECORDS,
    "controller.quorum.election.timeout.ms": "1000",
    "controller.quorum.fetch.timeout.ms": "2000",
}


def with_ottla(*arguments: str) -> None:
    run_ottla("metadata-quorum", *arguments)


def with_kafka(*arguments: str) -> None:
    if (reason := unavailable_reason()) is not None:
        pytest.skip(reason)
    run_tool("org.apache.kafka.tools.MetadataQuorumCommand", *arguments)


Tool = Callable[..., None]


@pytest.mark.parametrize("tool", [with_ottla, pytest.param(with_kafka, marks=pytest.mark.interop)])
def test_voters_are_added_and_removed_under_load(tool: Tool, tmp_path: Path) -> None:
    alone = {"controller.quorum.auto.join.enable": "false"}
    with OttlaCluster(tmp_path / "cluster", settings=alone) as cluster:
        cluster_id = str(cluster.quorum()["clusterId"])
        servers = ",".join(cluster.controller_address(index) for index in range(3))
        extra = [KraftNode(tmp_path / f"extra-{number}", Make.OTTLA, number, "broker,controller") for number in (4, 5)]
        load = TopicLoad(cluster.bootstrap)
        try:
            with load.under_way():
                for node in extra:
                    node.write_properties({"controller.quorum.bootstrap.servers": servers})
                    node.format(cluster_id, "--no-initial-controllers")
                    node.start()
                    until(partial(has_role, cluster, node.id, "currentObservers"), TIMEOUT_S)
                    add(tool, cluster.bootstrap, node)
                    assert node.id in ids(cluster.quorum()["currentVoters"])
                voters = cluster.quorum()["currentVoters"]
                first = next(voter["directoryId"] for voter in voters if voter["id"] == 1)
                leaving = ("--controller-id", "1", f"--controller-directory-id={first}")
                tool("--bootstrap-server", cluster.bootstrap, "remove-controller", *leaving)
                output = until(lambda: without_first(cluster.quorum()), TIMEOUT_S)
                assert ids(output["currentVoters"]) == {2, 3, 4, 5}
                made = len(load.topics)
                until(lambda: len(load.topics) > made + 20, TIMEOUT_S)
            assert load.records
            load.check()
            # The quorum has four voters. The first node is no voter any more, so a majority does not need it.
            cluster.kill(0)
            AdminClient({"bootstrap.servers": extra[0].address}).list_topics(timeout=20)
            for node in extra:
                assert node.terminate() == 0
        finally:
            for node in extra:
                node.end()


def add(tool: Tool, bootstrap: str, node: KraftNode) -> None:
    tool("--bootstrap-server", bootstrap, "--command-config", str(node.properties), "add-controller")


def has_role(cluster: OttlaCluster, node_id: int, role: str) -> bool:
    """Whether the leader lists the node in the given role. A newly elected leader does not know the observers yet."""
    return node_id in ids(cluster.quorum()[role])


def ids(voters: list[dict[str, Any]]) -> set[int]:
    return {int(voter["id"]) for voter in voters}


def without_first(output: dict[str, Any]) -> dict[str, Any] | None:
    """Return the quorum's state once the first node is neither its leader nor a voter."""
    return output if output["leaderId"] != 1 and 1 not in ids(output["currentVoters"]) else None


@pytest.fixture
def separate_nodes(tmp_path: Path) -> Iterator[KraftNodes]:
    """Return three controllers and two brokers, each its own process, neither formatted nor started."""
    numbers = (11, 12, 13)
    controllers = [KraftNode(tmp_path / str(each), Make.OTTLA, each, "controller", DEFAULT_TIMES) for each in numbers]
    brokers = [KraftNode(tmp_path / str(number), Make.OTTLA, number, "broker", NO_NOOP_RECORDS) for number in (1, 2)]
    with KraftNodes([*controllers, *brokers]) as nodes:
        yield nodes


def test_static_voters_become_dynamic(separate_nodes: KraftNodes) -> None:
    separate_nodes.format_static("--feature", "kraft.version=0")
    separate_nodes.start()
    create(separate_nodes[1], "before")
    assert kraft_version(separate_nodes) == 0

    until(lambda: upgrade(separate_nodes), TIMEOUT_S)  # refused until every voter has registered its support
    until(lambda: kraft_version(separate_nodes) == 1, TIMEOUT_S)
    create(separate_nodes[2], "upgraded")

    for node in reversed(separate_nodes.nodes):
        assert node.terminate() == 0
        node.write_properties(separate_nodes.bootstrap_servers)  # instead of the static voters
    separate_nodes.start()
    assert ids(voters_of(separate_nodes)) == {11, 12, 13}
    assert all("directoryId" in voter for voter in voters_of(separate_nodes))
    for node in (separate_nodes[1], separate_nodes[2]):
        assert {"before", "upgraded"} <= topics_of(node)

    separate_nodes.leader().kill()
    create(separate_nodes[1], "after")
    (away,) = [node for node in separate_nodes.controllers if not node.running]
    away.start()
    fourth = separate_nodes.join(KraftNode(away.directory.parent / "14", Make.OTTLA, 14, "controller"))
    add(with_ottla, separate_nodes[1].address, fourth)
    assert ids(voters_of(separate_nodes)) == {11, 12, 13, 14}
    assert {"before", "upgraded", "after"} <= topics_of(separate_nodes[2])


def test_separate_controllers_and_brokers_survive_failures(separate_nodes: KraftNodes) -> None:
    """Use default timeouts. At the end every acknowledged record and topic exists, and all nodes agree."""
    separate_nodes.format_dynamic()
    separate_nodes.start()
    brokers = [separate_nodes[1], separate_nodes[2]]
    load = TopicLoad(",".join(node.address for node in brokers))
    with load.under_way():
        for victim in (separate_nodes.leader(), separate_nodes.leader(), brokers[0]):
            until(has_grown(load), TIMEOUT_S)
            victim.kill()
            if victim not in brokers:  # a broker's partitions have no other replica
                until(has_grown(load), TIMEOUT_S)
            victim.start()
        until(has_grown(load), TIMEOUT_S)
    load.check()
    output = separate_nodes.caught_up()
    assert set(output.voters) == {11, 12, 13}
    assert set(output.observers) == {1, 2}
    assert len({hashlib.sha256(file.read_bytes()).hexdigest() for file in equal_snapshots(separate_nodes)}) == 1
    assert [node.terminate() for node in reversed(separate_nodes.nodes)] == [0] * 5


def has_grown(load: TopicLoad) -> Callable[[], bool]:
    """Return a condition that holds once five more topics were created."""
    enough = len(load.topics) + 5
    return lambda: len(load.topics) >= enough


def equal_snapshots(nodes: KraftNodes) -> list[Path]:
    """Return the file of one snapshot from every node, written when all nodes had reached the same end."""

    def attempt() -> list[Path] | None:
        files = [cut_snapshot(node) for node in nodes.nodes]
        return files if len({file.name for file in files}) == 1 else None

    return until(attempt, TIMEOUT_S)


def cut_snapshot(node: KraftNode) -> Path:
    """Let the node write a snapshot, through its client listener if it is a broker, else its controller listener."""
    listener = ("--bootstrap-server", node.address) if "broker" in node.roles else ()
    listener = listener or ("--bootstrap-controller", node.controller_address)
    output = json_of("metadata-quorum", *listener, "snapshot")
    assert isinstance(output, dict)
    return node.metadata / str(output["file"])


def voters_of(nodes: KraftNodes) -> list[dict[str, Any]]:
    output = json_of("metadata-quorum", "--bootstrap-server", nodes[1].address, "describe", "--status")
    assert isinstance(output, dict)
    return list(output["currentVoters"])


def upgrade(nodes: KraftNodes) -> bool:
    arguments = ("--bootstrap-server", nodes[2].address, "upgrade", "--feature", "kraft.version=1")
    return run_ottla("features", *arguments, check=False).returncode == 0


def kraft_version(nodes: KraftNodes) -> int:
    output = run_ottla("features", "--bootstrap-server", nodes[1].address, "describe").stdout
    found = re.search(r"^Feature: kraft\.version.*FinalizedVersionLevel: (\d+)", output, re.MULTILINE)
    assert found is not None, output
    return int(found[1])


def create(node: KraftNode, name: str) -> None:
    admin = AdminClient({"bootstrap.servers": node.address})
    admin.create_topics([NewTopic(name, 1)])[name].result(30)


def topics_of(node: KraftNode) -> set[str]:
    return set(AdminClient({"bootstrap.servers": node.address}).list_topics(timeout=20).topics)
