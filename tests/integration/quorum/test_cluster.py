"""A healthy three-node cluster in which clients may send every request to any node."""

import contextlib
import hashlib
import re
import time
from collections.abc import Callable, Iterator
from functools import cache, partial
from pathlib import Path
from typing import TypeVar

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    NewTopic,
    OffsetSpec,
    ResourceType,
)

from broker.client import ClientConfig, Connection, Endpoint
from protocol.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasRequestEntityData,
    AlterClientQuotasRequestEntryData,
    AlterClientQuotasResponse,
    OpData,
)
from protocol.messages.describe_client_quotas import (
    ComponentData,
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
)
from tests.support.kafka.kraft_nodes import KraftNode, Make
from tests.support.processes.ottla_cluster import OttlaCluster

pytestmark = [pytest.mark.integration, pytest.mark.slow]

NODES = (0, 1, 2)
TIMEOUT_S = 120
QUIET = {"metadata.max.idle.interval.ms": "0", "group.initial.rebalance.delay.ms": "0"}

T = TypeVar("T")


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OttlaCluster]:
    with OttlaCluster(tmp_path_factory.mktemp("cluster"), settings=QUIET) as running:
        yield running


@cache
def admin_of(cluster: OttlaCluster, index: int) -> AdminClient:
    """Return a client that bootstraps from one node and sends changes to it if the node claims to be controller."""
    return AdminClient({"bootstrap.servers": cluster.address(index), "topic.metadata.refresh.interval.ms": 500})


def until(attempt: Callable[[], T], timeout_s: float = TIMEOUT_S) -> T:
    """Return the first truthy result."""
    deadline = time.monotonic() + timeout_s
    while not (found := attempt()):
        assert time.monotonic() < deadline, "condition not met in time"
    return found


def wait_on_all_nodes(cluster: OttlaCluster, expected: object, query: Callable[..., object], *of: str) -> None:
    """Wait until every node returns the expected result. Metadata changes reach other nodes asynchronously."""
    for index in NODES:
        until(partial(lambda at: query(cluster, at, *of) == expected, index))


def create(cluster: OttlaCluster, index: int, name: str, partitions: int = 1) -> None:
    admin_of(cluster, index).create_topics([NewTopic(name, partitions)])[name].result(30)
    wait_on_all_nodes(cluster, partitions, partition_count, name)


def partition_count(cluster: OttlaCluster, index: int, name: str) -> int:
    """Return the partition count that one node reports, 0 without the topic."""
    found = admin_of(cluster, index).list_topics(timeout=20).topics.get(name)
    return 0 if found is None else len(found.partitions)


def test_any_node_creates_extends_and_deletes_topics(cluster: OttlaCluster) -> None:
    for index in NODES:
        name = f"through-{index}"
        create(cluster, index, name, 2)
        admin_of(cluster, (index + 1) % 3).create_partitions([NewPartitions(name, 5)])[name].result(30)
        wait_on_all_nodes(cluster, 5, partition_count, name)
        admin_of(cluster, (index + 2) % 3).delete_topics([name])[name].result(30)
        wait_on_all_nodes(cluster, 0, partition_count, name)


def test_any_node_alters_configs(cluster: OttlaCluster) -> None:
    create(cluster, 0, "configured")
    for index in NODES:
        wanted = str(100_000 + index)
        entry = ConfigEntry("retention.ms", wanted, incremental_operation=AlterConfigOpType.SET)
        resource = ConfigResource(ResourceType.TOPIC, "configured", incremental_configs=[entry])
        (done,) = admin_of(cluster, index).incremental_alter_configs([resource]).values()
        done.result(30)
        wait_on_all_nodes(cluster, wanted, retention_of, "configured")


def retention_of(cluster: OttlaCluster, index: int, topic: str) -> str:
    (done,) = admin_of(cluster, index).describe_configs([ConfigResource(ResourceType.TOPIC, topic)]).values()
    return str(done.result(30)["retention.ms"].value)


@pytest.mark.parametrize("index", NODES)
def test_replication_factor_above_broker_count_is_refused(cluster: OttlaCluster, index: int) -> None:
    futures = admin_of(cluster, index).create_topics([NewTopic("many", 1, replication_factor=4)])
    with pytest.raises(KafkaException) as refused:
        futures["many"].result(30)
    error = refused.value.args[0]
    assert error.code() == KafkaError.INVALID_REPLICATION_FACTOR
    assert "the replicas cannot be placed" in error.str()


def test_any_node_changes_quotas_features_and_leaders(cluster: OttlaCluster) -> None:
    create(cluster, 0, "elected")
    for index in NODES:
        limit = 1_000_000.0 + index
        alter_quota(cluster, index, limit)
        wait_on_all_nodes(cluster, limit, quota_at)
        at = ("--bootstrap-server", cluster.address(index))
        way, level = ("downgrade", 0) if index == 1 else ("upgrade", 1)
        cluster.ottla("features", *at, way, "--feature", f"eligible.leader.replicas.version={level}")
        wait_on_all_nodes(cluster, level, level_of, "eligible.leader.replicas.version")
        cluster.ottla("leader-election", *at, "--election-type", "preferred", "--all-topic-partitions")


def level_of(cluster: OttlaCluster, index: int, feature: str) -> int:
    output = cluster.ottla("features", "--bootstrap-server", cluster.address(index), "describe")
    (line,) = [line for line in output.splitlines() if line.startswith(f"Feature: {feature}")]
    found = re.search(r"FinalizedVersionLevel: (\d+)", line)
    assert found is not None, line
    return int(found[1])


def alter_quota(cluster: OttlaCluster, index: int, limit: float) -> None:
    entry = AlterClientQuotasRequestEntryData(
        [AlterClientQuotasRequestEntityData("client-id", "app")], [OpData("producer_byte_rate", limit)]
    )
    with connected(cluster, index) as connection:
        response = connection.call(AlterClientQuotasRequest([entry]), AlterClientQuotasResponse)
    assert [each.error_code for each in response.entries] == [0]


def quota_at(cluster: OttlaCluster, index: int) -> float | None:
    with connected(cluster, index) as connection:
        request = DescribeClientQuotasRequest([ComponentData("client-id", 0, "app")])
        response = connection.call(request, DescribeClientQuotasResponse)
    return next((value.value for entry in response.entries or [] for value in entry.values), None)


@contextlib.contextmanager
def connected(cluster: OttlaCluster, index: int) -> Iterator[Connection]:
    endpoint = Endpoint.parse(cluster.address(index))
    with contextlib.closing(Connection.open(endpoint, ClientConfig((endpoint,)))) as connection:
        yield connection


def test_idempotent_producers_work_through_every_node(cluster: OttlaCluster) -> None:
    create(cluster, 1, "idempotent", 6)
    delivered: list[Message] = []

    def on_delivery(error: KafkaError | None, message: Message) -> None:
        assert error is None, error
        delivered.append(message)

    for index in NODES:
        producer = Producer({"bootstrap.servers": cluster.address(index), "enable.idempotence": True, "linger.ms": 1})
        for number in range(60):
            producer.produce("idempotent", b"%d-%d" % (index, number), partition=number % 6, on_delivery=on_delivery)
        assert producer.flush(30) == 0
    wanted = {b"%d-%d" % (index, number) for index in NODES for number in range(60)}
    assert values_of(cluster, "idempotent", "reader", 180) == wanted
    assert len(delivered) == len(wanted)
    assert records_in(cluster, "idempotent") == len(wanted), "records were duplicated"
    leaders = admin_of(cluster, 0).list_topics("idempotent", timeout=20).topics["idempotent"].partitions
    assert {each.leader for each in leaders.values()} == {1, 2, 3}, "leaders are not spread over all nodes"


def records_in(cluster: OttlaCluster, topic: str) -> int:
    admin = admin_of(cluster, 0)
    partitions = [TopicPartition(topic, each) for each in admin.list_topics(topic).topics[topic].partitions]
    futures = admin.list_offsets({each: OffsetSpec.latest() for each in partitions})
    return sum(done.result(30).offset for done in futures.values())


def values_of(cluster: OttlaCluster, topic: str, group: str, count: int) -> set[bytes]:
    """Read with a group of two members until both have partitions. A rebalance may deliver records twice."""
    members = [consumer_of(cluster, topic, group) for _ in range(2)]
    found: set[bytes] = set()

    def read() -> bool:
        for member in members:
            for message in member.consume(100, timeout=0.1):
                assert message.error() is None, message.error()
                found.add(message.value())
        return len(found) >= count and all(member.assignment() for member in members)

    try:
        until(read, 60)
        for member in members:
            with contextlib.suppress(KafkaException):  # a member may have nothing to commit
                member.commit(asynchronous=False)
    finally:
        for member in members:
            member.close()
    return found


def consumer_of(cluster: OttlaCluster, topic: str, group: str) -> Consumer:
    settings = {"group.id": group, "auto.offset.reset": "earliest", "enable.auto.commit": False}
    consumer = Consumer({"bootstrap.servers": cluster.bootstrap, **settings})
    consumer.subscribe([topic])
    return consumer


def test_groups_work_with_coordinators_on_every_node(cluster: OttlaCluster) -> None:
    """Use enough groups that every node coordinates one."""
    create(cluster, 2, "grouped", 2)
    producer = Producer({"bootstrap.servers": cluster.bootstrap})
    for number in range(10):
        producer.produce("grouped", b"%d" % number, partition=number % 2)
    assert producer.flush(30) == 0
    groups = [f"group-{number}" for number in range(6)]
    for group in groups:
        assert len(values_of(cluster, "grouped", group, 10)) == 10
    admin = admin_of(cluster, 0)
    described = [done.result(30) for done in admin.describe_consumer_groups(groups).values()]
    assert len({each.coordinator.id for each in described}) > 1
    offsets = admin.list_topics("__consumer_offsets", timeout=20).topics["__consumer_offsets"]
    assert {len(each.replicas) for each in offsets.partitions.values()} == {3}


def test_voters_and_observer_write_identical_snapshots(cluster: OttlaCluster, tmp_path: Path) -> None:
    observer = KraftNode(tmp_path, Make.OTTLA, 4, "broker")
    controllers = ",".join(cluster.controller_address(index) for index in NODES)
    observer.write_properties({"controller.quorum.bootstrap.servers": controllers, **QUIET})
    observer.format(str(cluster.quorum()["clusterId"]))
    try:
        observer.start()
        files = until(lambda: equal_snapshots(cluster, observer))
        assert len({hashlib.sha256(file.read_bytes()).hexdigest() for file in files}) == 1
        assert observer.terminate() == 0
    finally:
        observer.end()


def equal_snapshots(cluster: OttlaCluster, observer: KraftNode) -> list[Path]:
    """Return the snapshot files of all nodes once they have reached the same end."""
    output = cluster.ottla("metadata-quorum", "--bootstrap-server", observer.address, "snapshot")
    files = [observer.metadata / f"{output.split()[-1]}.checkpoint", *cluster.cut_equal_snapshots()]
    return files if len({file.name for file in files}) == 1 else []
