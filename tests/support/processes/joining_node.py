"""A broker that joins a running `ottla cluster` with an empty disk, as an observer of its metadata log."""

from collections.abc import Mapping
from pathlib import Path

from tests.support.processes.broker_cluster import ClusterNode
from tests.support.processes.ottla_cluster import OttlaCluster


def cluster_id(cluster: OttlaCluster) -> str:
    lines = (cluster.node_directory(0) / "data" / "meta.properties").read_text().splitlines()
    return next(line for line in lines if line.startswith("cluster.id=")).partition("=")[2].replace("\\", "")


def joining_node(
    cluster: OttlaCluster, directory: Path, node_id: int, settings: Mapping[str, str] | None = None
) -> ClusterNode:
    """Return the node, not started; its directory is below `directory`."""
    controllers = ",".join(cluster.controller_address(index) for index in range(cluster.nodes))
    own = {"process.roles": "broker", "controller.quorum.bootstrap.servers": controllers, **(settings or {})}
    node = ClusterNode(directory / f"node-{node_id}", node_id, cluster_id(cluster), own)
    node.settings["listeners"] = f"PLAINTEXT://127.0.0.1:{node.port}"
    return node


def line_with(text: str, *words: str) -> str:
    """Return the first line that contains all texts; empty without one."""
    return next((line for line in text.splitlines() if all(word in line for word in words)), "")
