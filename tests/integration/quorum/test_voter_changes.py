"""Quorums whose members change: voters added and removed under load, and configured voters that become dynamic."""

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

PATIENCE_S = 60
# The log stands still when nothing happens, so that all nodes come to the same end.
STILL = {"metadata.max.idle.interval.ms": "0"}
DEFAULT_TIMES = {**STILL, "controller.quorum.election.timeout.ms": "1000", "controller.quorum.fetch.timeout.ms": "2000"}


def with_ottla(*arguments: str) -> None:
    run_ottla("metadata-quorum", *arguments)


def with_kafka(*arguments: str) -> None:
    if (reason := unavailable_reason()) is not None:
        pytest.skip(reason)
    run_tool("org.apache.kafka.tools.MetadataQuorumCommand", *arguments)


Tool = Callable[..., None]


@pytest.mark.parametrize("tool", [with_ottla, pytest.param(with_kafka, marks=pytest.mark.interop)])
def test_voters_are_added_and_the_first_removed_under_load(tool: Tool, tmp_path: Path) -> None:
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
                    until(partial(is_among, cluster, node.id, "currentObservers"), PATIENCE_S)
                    add(tool, cluster.bootstrap, node)
                    assert node.id in ids(cluster.quorum()["currentVoters"])
                voters = cluster.quorum()["currentVoters"]
                first = next(voter["directoryId"] for voter in voters if voter["id"] == 1)
                leaving = ("--controller-id", "1", f"--controller-directory-id={first}")
                tool("--bootstrap-server", cluster.bootstrap, "remove-controller", *leaving)
                told = until(lambda: without_first(cluster.quorum()), PATIENCE_S)
                assert ids(told["currentVoters"]) == {2, 3, 4, 5}
                made = len(load.topics)
                until(lambda: len(load.topics) > made + 20, PATIENCE_S)
            assert load.records
            load.check()
            # Four voters, and the first, which is none any more, is needed by nobody for a majority.
            cluster.kill(0)
            AdminClient({"bootstrap.servers": extra[0].address}).list_topics(timeout=20)
            for node in extra:
                assert node.terminate() == 0
        finally:
            for node in extra:
                node.end()


def add(tool: Tool, bootstrap: str, node: KraftNode) -> None:
    tool("--bootstrap-server", bootstrap, "--command-config", str(node.properties), "add-controller")


def is_among(cluster: OttlaCluster, node_id: int, whom: str) -> bool:
    """As the leader tells it; a new one has yet to hear of observers."""
    return node_id in ids(cluster.quorum()[whom])


def ids(voters: list[dict[str, Any]]) -> set[int]:
    return {int(voter["id"]) for voter in voters}


def without_first(told: dict[str, Any]) -> dict[str, Any] | None:
    """What the quorum tells, once it is led by somebody else than the first node."""
    return told if told["leaderId"] != 1 and 1 not in ids(told["currentVoters"]) else None


@pytest.fixture
def apart(tmp_path: Path) -> Iterator[KraftNodes]:
    """Three controllers and two brokers, each a process; neither formatted nor started."""
    numbers = (11, 12, 13)
    controllers = [KraftNode(tmp_path / str(each), Make.OTTLA, each, "controller", DEFAULT_TIMES) for each in numbers]
    brokers = [KraftNode(tmp_path / str(number), Make.OTTLA, number, "broker", STILL) for number in (1, 2)]
    with KraftNodes([*controllers, *brokers]) as nodes:
        yield nodes


def test_configured_voters_become_dynamic(apart: KraftNodes) -> None:
    apart.format_static("--feature", "kraft.version=0")
    apart.start()
    create(apart[1], "before")
    assert kraft_version(apart) == 0

    until(lambda: upgrade(apart), PATIENCE_S)  # refused until every voter has said that it can
    until(lambda: kraft_version(apart) == 1, PATIENCE_S)
    create(apart[2], "upgraded")

    for node in reversed(apart.nodes):
        assert node.terminate() == 0
        node.write_properties(apart.bootstrap_servers)  # instead of the static voters
    apart.start()
    assert ids(voters_of(apart)) == {11, 12, 13}
    assert all("directoryId" in voter for voter in voters_of(apart))
    for node in (apart[1], apart[2]):
        assert {"before", "upgraded"} <= topics_of(node)

    apart.leader().kill()
    create(apart[1], "after")
    (away,) = [node for node in apart.controllers if not node.running]
    away.start()
    fourth = apart.join(KraftNode(away.directory.parent / "14", Make.OTTLA, 14, "controller"))
    add(with_ottla, apart[1].address, fourth)
    assert ids(voters_of(apart)) == {11, 12, 13, 14}
    assert {"before", "upgraded", "after"} <= topics_of(apart[2])


def test_controllers_and_brokers_apart_serve_clients_through_failures(apart: KraftNodes) -> None:
    """Default timeouts; what was acknowledged is there in the end, on nodes that all tell the same."""
    apart.format_dynamic()
    apart.start()
    brokers = [apart[1], apart[2]]
    load = TopicLoad(",".join(node.address for node in brokers))
    with load.under_way():
        for victim in (apart.leader(), apart.leader(), brokers[0]):
            until(grown(load), PATIENCE_S)
            victim.kill()
            if victim not in brokers:  # a broker's partitions have no other replica to go to
                until(grown(load), PATIENCE_S)
            victim.start()
        until(grown(load), PATIENCE_S)
    load.check()
    told = apart.caught_up()
    assert set(told.voters) == {11, 12, 13}
    assert set(told.observers) == {1, 2}
    assert len({hashlib.sha256(file.read_bytes()).hexdigest() for file in equal_snapshots(apart)}) == 1
    assert [node.terminate() for node in reversed(apart.nodes)] == [0] * 5


def grown(load: TopicLoad) -> Callable[[], bool]:
    """Whether topics were created since now."""
    enough = len(load.topics) + 5
    return lambda: len(load.topics) >= enough


def equal_snapshots(nodes: KraftNodes) -> list[Path]:
    """Of every node the file of one snapshot, cut when all had come to the same end."""

    def attempt() -> list[Path] | None:
        files = [cut_snapshot(node) for node in nodes.nodes]
        return files if len({file.name for file in files}) == 1 else None

    return until(attempt, PATIENCE_S)


def cut_snapshot(node: KraftNode) -> Path:
    """By the node itself: a broker is asked on its listener for clients, a controller on its own."""
    way = ("--bootstrap-server", node.address) if "broker" in node.roles else ()
    way = way or ("--bootstrap-controller", node.controller_address)
    told = json_of("metadata-quorum", *way, "snapshot")
    assert isinstance(told, dict)
    return node.metadata / str(told["file"])


def voters_of(nodes: KraftNodes) -> list[dict[str, Any]]:
    told = json_of("metadata-quorum", "--bootstrap-server", nodes[1].address, "describe", "--status")
    assert isinstance(told, dict)
    return list(told["currentVoters"])


def upgrade(nodes: KraftNodes) -> bool:
    asked = ("--bootstrap-server", nodes[2].address, "upgrade", "--feature", "kraft.version=1")
    return run_ottla("features", *asked, check=False).returncode == 0


def kraft_version(nodes: KraftNodes) -> int:
    told = run_ottla("features", "--bootstrap-server", nodes[1].address, "describe").stdout
    found = re.search(r"^Feature: kraft\.version.*FinalizedVersionLevel: (\d+)", told, re.MULTILINE)
    assert found is not None, told
    return int(found[1])


def create(node: KraftNode, name: str) -> None:
    admin = AdminClient({"bootstrap.servers": node.address})
    admin.create_topics([NewTopic(name, 1)])[name].result(30)


def topics_of(node: KraftNode) -> set[str]:
    return set(AdminClient({"bootstrap.servers": node.address}).list_topics(timeout=20).topics)
