"""The metadata log after its beginning is gone: what consumers, the snapshot's fetchers and the shell make of that."""

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
PATIENCE_S = 120
NAMES = [f"topic-{number}" for number in range(30)]
# Segments are small, and go as soon as a snapshot stands for them.
TRIMMING = {
    "internal.metadata.log.segment.bytes": "2048",
    "metadata.max.retention.bytes": "1",
    "metadata.start.offset.lag.time.max.ms": "1000",
    "metadata.max.idle.interval.ms": "0",
}
PAGE_BYTES = 700
"""So small that a snapshot has several."""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OttlaCluster]:
    with OttlaCluster(tmp_path_factory.mktemp("cluster"), settings=TRIMMING) as running:
        create(running, *NAMES)
        running.cut_equal_snapshots()
        until(lambda: low_watermark(running) > 0, PATIENCE_S)
        yield running


def create(cluster: OttlaCluster, *names: str) -> None:
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    for done in admin.create_topics([NewTopic(name, 1) for name in names]).values():
        done.result(PATIENCE_S)


def consumer(cluster: OttlaCluster, reset: str) -> confluent_kafka.Consumer:
    settings = {"bootstrap.servers": cluster.bootstrap, "group.id": "tail", "enable.auto.commit": False}
    return confluent_kafka.Consumer({**settings, "auto.offset.reset": reset})


def low_watermark(cluster: OttlaCluster) -> int:
    with contextlib.closing(consumer(cluster, "earliest")) as asking:
        low, _ = asking.get_watermark_offsets(confluent_kafka.TopicPartition(TOPIC, 0), PATIENCE_S)
    return int(low)


def first_answer(tail: confluent_kafka.Consumer) -> confluent_kafka.Message:
    return until(lambda: tail.poll(0.5), PATIENCE_S)


def test_a_position_below_the_start_is_reset_to_it(cluster: OttlaCluster) -> None:
    low = low_watermark(cluster)
    with contextlib.closing(consumer(cluster, "earliest")) as tail:
        tail.assign([confluent_kafka.TopicPartition(TOPIC, 0, 1)])
        create(cluster, "after-the-trim")
        message = first_answer(tail)
        assert message.error() is None
        assert message.offset() >= low
        while b"after-the-trim" not in (message.value() or b""):
            message, before = first_answer(tail), message.offset()
            assert message.offset() > before


def test_a_consumer_that_does_not_want_to_miss_anything_is_told(cluster: OttlaCluster) -> None:
    with contextlib.closing(consumer(cluster, "error")) as tail:
        tail.assign([confluent_kafka.TopicPartition(TOPIC, 0, 1)])
        error = first_answer(tail).error()
        assert error is not None
        assert error.code() == confluent_kafka.KafkaError._AUTO_OFFSET_RESET


def test_the_answer_names_a_snapshot_that_any_client_may_fetch(cluster: OttlaCluster) -> None:
    leader = cluster.leader_index()
    with serving(cluster) as connection:
        answer = fetch(connection, 1)
        assert answer.error_code == ErrorCode.OFFSET_OUT_OF_RANGE
        assert answer.snapshot_id.end_offset >= low_watermark(cluster)
        content = fetch_snapshot(connection, answer.snapshot_id)
    name = f"{answer.snapshot_id.end_offset:020}-{answer.snapshot_id.epoch:010}.checkpoint"
    assert len(content) > PAGE_BYTES
    assert content == (cluster.metadata_directory(leader) / name).read_bytes()


@contextlib.contextmanager
def serving(cluster: OttlaCluster) -> Iterator[Connection]:
    """The broker that Metadata names for the topic, on its listener for clients."""
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
        asked = FetchSnapshotRequestPartitionSnapshot(0, -1, wanted, len(content))
        request = FetchSnapshotRequest(max_bytes=PAGE_BYTES, topics=[FetchSnapshotRequestTopicSnapshot(TOPIC, [asked])])
        found = connection.call(request, FetchSnapshotResponse).topics[0].partitions[0]
        assert found.error_code == ErrorCode.NONE
        assert 0 < len(found.unaligned_records or b"") <= PAGE_BYTES
        content += bytes(found.unaligned_records or b"")
        if len(content) == found.size:
            return content


def test_the_shell_goes_by_the_snapshot(cluster: OttlaCluster) -> None:
    shell = ("metadata-shell", "--bootstrap-server", cluster.bootstrap)
    assert set(NAMES) <= set(cluster.ottla(*shell, "ls", "/image/topics/byName").split())
