"""Scripted histories of a topic that is deleted and created again under its name, with another topic id.

Brokers that miss the deletion come back with the log of the deleted topic, or fetch by its id.
"""

from random import Random
from typing import Final

from broker.runtime.partitions.partition import Partition
from storage.directories.directory_names import DELETE_SUFFIX
from tests.simulation.replication.disk import ReplicaName
from tests.simulation.replication.scripts.scripted import ScriptedCluster

_NAME: Final = ReplicaName("clean", 0)
_IDS: Final = (1, 2, 3)
_OLD: Final = 5
"""Number of records of the deleted topic."""
_NEW: Final = 2
"""Number of records of its successor."""


def topic_recreated_while_brokers_are_dead(seed: int) -> None:
    """Broker 3 is dead while the topic is deleted and created again. Broker 2 loses power in the middle of the
    deletion. Broker 3 returns with the old log, broker 2 with the renamed directory; no old record may come back.
    """
    cluster = ScriptedCluster(seed)
    try:
        _begin(cluster)
        cluster.kill(3)
        _delete_topic(cluster)
        cluster.until(lambda: bool(_deleted_directories(cluster, 2)))
        cluster.simulation.crash(cluster.node(2), power=True, luck=Random(f"luck {seed}"))
        _create_topic_again(cluster, 1)
        cluster.start(2, 3)
        _end(cluster)
    finally:
        cluster.simulation.close()


def fetch_with_deleted_topic_id(seed: int) -> None:
    """Broker 3 receives no metadata while the topic is deleted and created again, and fetches by the old id. The leader
    must refuse the fetches and remove broker 3 from the in-sync set of the new topic.
    """
    cluster = ScriptedCluster(seed)
    try:
        _begin(cluster)
        cluster.hold_metadata(3)
        _delete_topic(cluster)
        _create_topic_again(cluster, 1, 2)
        cluster.until(lambda: cluster.isr == {1, 2})
        cluster.until(lambda: _have_committed(cluster, _NEW, 1, 2))
        cluster.hold_metadata()
        _end(cluster)
    finally:
        cluster.simulation.close()


def _begin(cluster: ScriptedCluster) -> None:
    cluster.begin()
    for _ in range(_OLD):
        cluster.append(1)
    cluster.until(lambda: _have_committed(cluster, _OLD, *_IDS))


def _delete_topic(cluster: ScriptedCluster) -> None:
    simulation = cluster.simulation
    topic_id = simulation.topic_id(_NAME.topic)
    simulation.service.command(lambda controller, _now: controller.delete_topics([topic_id]), _nothing)
    cluster.until(lambda: simulation.registration(_NAME) is None)
    simulation.checker.on_topic_deleted(_NAME, topic_id)


def _create_topic_again(cluster: ScriptedCluster, *node_ids: int) -> None:
    """Create the topic when these nodes have deleted the old one; append records to it at broker 1."""
    cluster.until(lambda: all(_partition(cluster, node_id) is None for node_id in node_ids))
    cluster.simulation.create_topic(cluster.simulation.scenario.topics[0])
    cluster.until(lambda: cluster.is_led(1))
    for _ in range(_NEW):
        cluster.append(1)


def _end(cluster: ScriptedCluster) -> None:
    """Wait until all replicas have the records of the new topic, and no directory waits for its removal."""
    cluster.until(lambda: _have_committed(cluster, _NEW, *_IDS))
    cluster.end_alike()
    cluster.until(lambda: not any(_deleted_directories(cluster, node_id) for node_id in _IDS))


def _have_committed(cluster: ScriptedCluster, offset: int, *node_ids: int) -> bool:
    found = [_partition(cluster, node_id) for node_id in node_ids]
    return all(partition is not None and partition.log.high_watermark == offset for partition in found)


def _partition(cluster: ScriptedCluster, node_id: int) -> Partition | None:
    broker = cluster.node(node_id).broker
    return None if broker is None else broker.partition(*_NAME)


def _deleted_directories(cluster: ScriptedCluster, node_id: int) -> list[str]:
    """Return the names of the directories that wait for their removal."""
    disk = cluster.node(node_id).disk
    return [name for path in disk.directories(1) for name in disk.list(path) if name.endswith(DELETE_SUFFIX)]


def _nothing(_: object) -> None:
    """Ignore the result."""
