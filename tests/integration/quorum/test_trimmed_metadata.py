"""A metadata log without its beginning, as consumers, FetchSnapshot clients and the metadata shell see it."""

import contextlib
from collections.abc import Iterator

import confluent_kafka
import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from broker.client import Client, ClientConfig, Connection, Endpoint
from protocol.errors import ErrorCode
from protocol.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic, PartitionData, SnapshotId
from protocol.messages.fetch_snapshot import (
    FetchSnapshotRequest,
    FetchSnapshotRequestPartitionSnapshot,
    FetchSnapshotRequestSnapshotId,
    FetchSnapshotRequestTopicSnapshot,
    FetchSnapshotResponse,
)
from tests.support.kafka.kraft_nodes import until
from tests.support.processes.ottla_cluster import OttlaCluster

pytestmark = [pytest.mark.integration, pytest.mark.slow]

TOPIC = "__cluster_metadata"
TIMEOUT_S = 120
NAMES = [f"topic-{number}" for number in range(30)]
# Segments are small, and are deleted as soon as a snapshot covers them.
TRIMMING = {
    "internal.metadata.log.segment.bytes": "2048",
    "metadata.max.retention.bytes": "1",
    "metadata.start.offset.lag.time.max.ms": "1000",
    "metadata.max.idle.interval.ms": "0",
}
PAGE_BYTES = 700
"""Smaller than a snapshot, so that several requests are needed."""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OttlaCluster]:
    with OttlaCluster(tmp_path_factory.mktemp("cluster"), settings=TRIMMING) as running:
        create(running, *NAMES)
        running.cut_equal_snapshots()
        until(lambda: low_watermark(running) > 0, TIMEOUT_S)
        yield running


def create(cluster: OttlaCluster, *names: str) -> None:
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    for done in admin.create_topics([NewTopic(name, 1) for name in names]).values():
        done.result(TIMEOUT_S)


def consumer(cluster: OttlaCluster, reset: str) -> confluent_kafka.Consumer:
    settings = {"bootstrap.servers": cluster.bootstrap, "group.id": "tail", "enable.auto.commit": False}
    return confluent_kafka.Consumer({**settings, "auto.offset.reset": reset})


def low_watermark(cluster: OttlaCluster) -> int:
    with contextlib.closing(consumer(cluster, "earliest")) as client:
        low, _ = client.get_watermark_offsets(confluent_kafka.TopicPartition(TOPIC, 0), TIMEOUT_S)
    return int(low)


def next_message(tail: confluent_kafka.Consumer) -> confluent_kafka.Message:
    return until(lambda: tail.poll(0.5), TIMEOUT_S)


def test_fetch_position_below_log_start_is_reset_to_log_start(cluster: OttlaCluster) -> None:
    low = low_watermark(cluster)
    with contextlib.closing(consumer(cluster, "earliest")) as tail:
        tail.assign([confluent_kafka.TopicPartition(TOPIC, 0, 1)])
        create(cluster, "after-the-trim")
        message = next_message(tail)
        assert message.error() is None
        assert message.offset() >= low
        while b"after-the-trim" not in (message.value() or b""):
            message, before = next_message(tail), message.offset()
            assert message.offset() > before


def test_consumer_without_reset_policy_gets_an_error_below_log_start(cluster: OttlaCluster) -> None:
    with contextlib.closing(consumer(cluster, "error")) as tail:
        tail.assign([confluent_kafka.TopicPartition(TOPIC, 0, 1)])
        error = next_message(tail).error()
        assert error is not None
        assert error.code() == confluent_kafka.KafkaError._AUTO_OFFSET_RESET


def test_fetch_response_names_a_snapshot_that_clients_can_fetch(cluster: OttlaCluster) -> None:
    leader = cluster.leader_index()
    with leader_connection(cluster) as connection:
        answer = fetch(connection, 1)
        assert answer.error_code == ErrorCode.OFFSET_OUT_OF_RANGE
        assert answer.snapshot_id.end_offset >= low_watermark(cluster)
        content = fetch_snapshot(connection, answer.snapshot_id)
    name = f"{answer.snapshot_id.end_offset:020}-{answer.snapshot_id.epoch:010}.checkpoint"
    assert len(content) > PAGE_BYTES
    assert content == (cluster.metadata_directory(leader) / name).read_bytes()


@contextlib.contextmanager
def leader_connection(cluster: OttlaCluster) -> Iterator[Connection]:
    """Connect to the broker that Metadata names as the topic's leader, on its client listener."""
    servers = tuple(Endpoint.parse(address) for address in cluster.bootstrap.split(","))
    with contextlib.closing(Client(ClientConfig(servers))) as client:
        yield client.node(client.leaders([TOPIC])[TOPIC].partitions[0].leader_id)


def fetch(connection: Connection, offset: int) -> PartitionData:
    partition = FetchPartition(0, fetch_offset=offset, partition_max_bytes=1000)
    request = FetchRequest(max_bytes=1000, topics=[FetchTopic(TOPIC, partitions=[partition])])
    return connection.call(request, FetchResponse, highest=12).responses[0].partitions[0]


def fetch_snapshot(connection: Connection, snapshot_id: SnapshotId) -> bytes:
    content = b""
    wanted = FetchSnapshotRequestSnapshotId(snapshot_id.end_offset, snapshot_id.epoch)
    while True:
        partition = FetchSnapshotRequestPartitionSnapshot(0, -1, wanted, len(content))
        request = FetchSnapshotRequest(
            max_bytes=PAGE_BYTES, topics=[FetchSnapshotRequestTopicSnapshot(TOPIC, [partition])]
        )
        found = connection.call(request, FetchSnapshotResponse).topics[0].partitions[0]
        assert found.error_code == ErrorCode.NONE
        assert 0 < len(found.unaligned_records or b"") <= PAGE_BYTES
        content += bytes(found.unaligned_records or b"")
        if len(content) == found.size:
            return content


def test_shell_loads_the_snapshot(cluster: OttlaCluster) -> None:
    shell = ("metadata-shell", "--bootstrap-server", cluster.bootstrap)
    assert set(NAMES) <= set(cluster.ottla(*shell, "ls", "/image/topics/byName").split())
