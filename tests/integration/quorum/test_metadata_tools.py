"""The metadata log of a three-node cluster as consumers, the metadata shell and quorum tools see it."""

import hashlib
import time
from collections.abc import Iterator

import confluent_kafka
import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from protocol.primitives import METADATA_TOPIC_ID, uuid_to_text
from tests.support.processes.ottla_cluster import OttlaCluster

pytestmark = pytest.mark.integration

TOPIC = "__cluster_metadata"
TIMEOUT_S = 120


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OttlaCluster]:
    """Start three nodes without NoOp records, so that an idle log stands still and all nodes reach the same end."""
    settings = {"metadata.max.idle.interval.ms": "0"}
    with OttlaCluster(tmp_path_factory.mktemp("cluster"), 3, settings) as running:
        yield running


def consumer(cluster: OttlaCluster) -> confluent_kafka.Consumer:
    return confluent_kafka.Consumer(
        {
            "bootstrap.servers": cluster.bootstrap,
            "group.id": "tail",
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
        }
    )


def read_until(tail: confluent_kafka.Consumer, wanted: bytes) -> list[int]:
    """Return the offsets up to the first record whose value contains `wanted`."""
    offsets: list[int] = []
    deadline = time.monotonic() + TIMEOUT_S
    while time.monotonic() < deadline:
        message = tail.poll(0.5)
        if message is not None and message.error() is None:
            offsets.append(message.offset())
            if wanted in (message.value() or b""):
                return offsets
    raise AssertionError(f"no record contains {wanted!r}; last offsets: {offsets[-5:]}")


def test_consumer_tails_metadata_while_topics_change(cluster: OttlaCluster) -> None:
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    tail = consumer(cluster)
    tail.assign([confluent_kafka.TopicPartition(TOPIC, 0, 0)])
    try:
        for name in ("one", "two"):
            admin.create_topics([NewTopic(name, 2, 1)])[name].result(TIMEOUT_S)
            offsets = read_until(tail, name.encode())
            assert offsets == sorted(set(offsets))
        admin.delete_topics(["one"])["one"].result(TIMEOUT_S)
        low, high = tail.get_watermark_offsets(confluent_kafka.TopicPartition(TOPIC, 0), TIMEOUT_S)
        assert low == 0
        assert high > offsets[-1]
    finally:
        tail.close()


def test_metadata_topic_is_described_by_name_and_never_listed(cluster: OttlaCluster) -> None:
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    assert TOPIC not in admin.list_topics(timeout=TIMEOUT_S).topics
    found = admin.list_topics(TOPIC, timeout=TIMEOUT_S).topics[TOPIC]
    assert found.error is None
    assert [partition.leader for partition in found.partitions.values()] == [cluster.leader_index() + 1]
    described = admin.describe_topics(confluent_kafka.TopicCollection([TOPIC]))[TOPIC].result(TIMEOUT_S)
    assert (str(described.topic_id), described.is_internal) == (uuid_to_text(METADATA_TOPIC_ID), False)


def test_shell_reads_metadata_of_a_running_cluster(cluster: OttlaCluster) -> None:
    cluster.ottla("topics", "--bootstrap-server", cluster.bootstrap, "--create", "--topic", "seen")
    shell = ("metadata-shell", "--bootstrap-server", cluster.bootstrap)
    assert "seen" in cluster.ottla(*shell, "ls", "/image/topics/byName").split()
    assert cluster.ottla(*shell, "ls", "/image/cluster/brokers").split() == ["1", "2", "3"]


def test_nodes_write_identical_snapshots_that_the_shell_reads(cluster: OttlaCluster) -> None:
    files = cluster.cut_equal_snapshots()
    assert len({hashlib.sha256(file.read_bytes()).hexdigest() for file in files}) == 1
    listed = cluster.ottla("metadata-shell", "--snapshot", str(files[0]), "ls", "/image/cluster/controllers")
    assert listed.split() == ["1", "2", "3"]


def test_wiped_node_rejoins_under_a_new_directory_id(cluster: OttlaCluster) -> None:
    index = (cluster.leader_index() + 1) % 3
    before = _directory_ids(cluster)
    cluster.wait_ready(index, cluster.wipe(index))
    deadline = time.monotonic() + TIMEOUT_S
    while (after := _directory_ids(cluster)).get(index + 1) in (None, before[index + 1]):
        assert time.monotonic() < deadline, f"voters are still {after}"
        time.sleep(0.2)
    assert set(after) == {1, 2, 3}
    cluster.ottla("topics", "--bootstrap-server", cluster.address(index), "--create", "--topic", f"after-{index}")


def _directory_ids(cluster: OttlaCluster) -> dict[int, str]:
    return {voter["id"]: voter["directoryId"] for voter in cluster.quorum()["currentVoters"]}
