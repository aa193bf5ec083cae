"""Three combined nodes under every kind of work that has metrics, and their `/metrics` pages.

The work: records with and without transactions, a classic and a consumer group, a share group, a quota, a subscription
to clients' metrics, a topic that is copied to remote storage and read back, and an open transaction.
"""

import re
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import confluent_kafka
from confluent_kafka import Consumer, Producer, ShareConsumer
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, NewTopic, ResourceType
from prometheus_client import Metric
from prometheus_client.parser import text_string_to_metric_families

from tests.support.fakes.otlp_receiver import OtlpReceiver, Series
from tests.support.processes.ottla_cluster import OttlaCluster

LIMIT_S: Final = 90.0
PARTITIONS: Final = 3
RECORDS: Final = 300
TOPIC: Final = "orders"
TIERED: Final = "archive"
SETTINGS: Final = {
    "default.replication.factor": "3",
    "min.insync.replicas": "2",
    "offsets.topic.num.partitions": "1",
    "offsets.topic.replication.factor": "3",
    "transaction.state.log.num.partitions": "1",
    "transaction.state.log.replication.factor": "3",
    "share.coordinator.state.topic.num.partitions": "1",
    "share.coordinator.state.topic.replication.factor": "3",
    "group.initial.rebalance.delay.ms": "0",
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "allow.everyone.if.no.acl.found": "true",
    "super.users": "User:ANONYMOUS",
    "metadata.log.max.record.bytes.between.snapshots": "1000",
    "remote.log.storage.system.enable": "true",
    "remote.log.storage.manager.class.name": "local",
    "remote.log.metadata.manager.listener.name": "PLAINTEXT",
    "rlmm.config.remote.log.metadata.topic.num.partitions": "1",
    "remote.log.manager.task.interval.ms": "200",
    "log.retention.check.interval.ms": "200",
    "log.initial.task.delay.ms": "100",
    "broker.session.timeout.ms": "6000",
    "broker.heartbeat.interval.ms": "500",
}
_HTTP = re.compile(r"node (\d+)  \S+  http://(\S+:\d+)\S*  ")


class _Silent:
    def log(self, *_: object) -> None: ...


class MonitoredCluster:
    """A running cluster. `work` does all the work once and returns when it is done."""

    def __init__(self, cluster: OttlaCluster, receiver: OtlpReceiver) -> None:
        self.cluster = cluster
        self.receiver = receiver
        self.client = {"bootstrap.servers": cluster.bootstrap, "logger": _Silent()}
        self.admin = AdminClient(self.client)

    @property
    def http_addresses(self) -> list[str]:
        """Host and port of each node's HTTP listener."""
        return list(self.http_address_by_id.values())

    @property
    def http_address_by_id(self) -> dict[str, str]:
        """Host and port of each node's HTTP listener, by node id."""
        return {found[1]: found[2] for line in self.cluster.lines if (found := _HTTP.match(line))}

    def page(self, address: str) -> str:
        with urllib.request.urlopen(f"http://{address}/metrics", timeout=LIMIT_S) as response:
            return str(response.read().decode())

    def families(self) -> Iterator[Metric]:
        """Yield every family of every node."""
        for address in self.http_addresses:
            yield from text_string_to_metric_families(self.page(address))

    def series(self, address: str) -> dict[Series, float]:
        """Return the values of all series of a node."""
        families = text_string_to_metric_families(self.page(address))
        return {
            Series(each.name, frozenset(each.labels.items())): each.value
            for found in families
            for each in found.samples
        }

    def work(self) -> None:
        """Do every kind of work."""
        self._create()
        self._produce()
        self._tier()
        self._commit_transaction()
        self._consume("billing", "classic")
        self._consume("shipping", "consumer")
        self._share()
        self._read_remote()

    @contextmanager
    def open_transaction(self) -> Iterator[None]:
        """Keep a transaction open within the context."""
        producer = Producer({**self.client, "transactional.id": "open"})
        producer.init_transactions(LIMIT_S)
        producer.begin_transaction()
        producer.produce(TOPIC, b"pending", partition=0)
        producer.flush(LIMIT_S)
        try:
            yield
        finally:
            producer.abort_transaction(LIMIT_S)

    def _create(self) -> None:
        tiered = {"remote.storage.enable": "true", "segment.bytes": "1048576", "local.retention.bytes": "1"}
        topics = [NewTopic(TOPIC, PARTITIONS, 3), NewTopic(TIERED, 1, 3, config=tiered)]
        for created in self.admin.create_topics(topics).values():
            created.result(LIMIT_S)
        self.cluster.ottla(
            *("configs", "--bootstrap-server", self.cluster.bootstrap, "--alter", "--entity-type", "clients"),
            *("--entity-default", "--add-config", "producer_byte_rate=100000000,consumer_byte_rate=100000000"),
        )
        self.cluster.ottla(
            *("configs", "--bootstrap-server", self.cluster.bootstrap, "--alter", "--entity-type", "client-metrics"),
            *("--entity-name", "all", "--add-config", "metrics=[org.apache.kafka],interval.ms=1000"),
        )

    def _produce(self) -> None:
        producer = Producer(self.client)
        for number in range(RECORDS):
            producer.produce(TOPIC, b"value", key=str(number), partition=number % PARTITIONS)
        assert producer.flush(LIMIT_S) == 0

    def _commit_transaction(self) -> None:
        producer = Producer({**self.client, "transactional.id": "payments"})
        producer.init_transactions(LIMIT_S)
        producer.begin_transaction()
        for number in range(PARTITIONS):
            producer.produce(TOPIC, b"in a transaction", partition=number)
        producer.commit_transaction(LIMIT_S)

    def _tier(self) -> None:
        producer = Producer(self.client)
        for _ in range(4):  # a segment each
            for number in range(11):
                producer.produce(TIERED, b"x" * 100_000, key=str(number), partition=0)
            assert producer.flush(LIMIT_S) == 0

    def _consume(self, group: str, protocol: str) -> None:
        wanted = RECORDS + PARTITIONS
        settings = {"group.id": group, "group.protocol": protocol, "auto.offset.reset": "earliest"}
        consumer = Consumer({**self.client, **settings})
        try:
            consumer.subscribe([TOPIC])
            self._poll(consumer, wanted)
            consumer.commit(asynchronous=False)
        finally:
            consumer.close()

    def _share(self) -> None:
        resource = ConfigResource(ResourceType.GROUP, "sharers")
        resource.add_incremental_config(
            ConfigEntry("share.auto.offset.reset", "earliest", incremental_operation=AlterConfigOpType.SET)
        )
        for altered in self.admin.incremental_alter_configs([resource]).values():
            altered.result(LIMIT_S)
        consumer = ShareConsumer({**self.client, "group.id": "sharers"})
        try:
            consumer.subscribe([TOPIC])
            deadline, seen = time.monotonic() + LIMIT_S, 0
            while seen < RECORDS:
                assert time.monotonic() < deadline, f"the share consumer received {seen} records"
                seen += sum(1 for message in consumer.poll(1.0) if message.error() is None)
        finally:
            consumer.close()

    def _read_remote(self) -> None:
        wait_until(self._is_tiered, "the first segment leaves the local disk")
        consumer = Consumer({**self.client, "group.id": "reader", "enable.auto.commit": False})
        try:
            consumer.assign([confluent_kafka.TopicPartition(TIERED, 0, 0)])
            self._poll(consumer, 11)
        finally:
            consumer.close()

    def _is_tiered(self) -> bool:
        return self.total("kafka_server_brokertopicmetrics_remotelogmetadatacount") > 0

    def total(self, name: str) -> float:
        """Return the sum of the samples without labels of one name, over all nodes."""
        families = self.families()
        return sum(
            each.value for family in families for each in family.samples if each.name == name and not each.labels
        )

    @staticmethod
    def _poll(consumer: Consumer, count: int) -> None:
        deadline, seen = time.monotonic() + LIMIT_S, 0
        while seen < count:
            assert time.monotonic() < deadline, f"the consumer received {seen} of {count} records"
            seen += sum(1 for message in consumer.consume(500, 1.0) if message.error() is None)


def wait_until(is_reached: Callable[[], bool], what: str, pause_s: float = 0.2) -> None:
    """Poll a condition of other processes. Raise AssertionError with `what` when it takes too long."""
    deadline = time.monotonic() + LIMIT_S
    while not is_reached():
        assert time.monotonic() < deadline, f"not in time: {what}"
        time.sleep(pause_s)


@contextmanager
def monitored_cluster(directory: Path) -> Iterator[MonitoredCluster]:
    """Start the cluster; a node that is killed stays dead."""
    remote = directory / "remote"
    remote.mkdir()
    settings = {**SETTINGS, "rsm.config.storage.root": str(remote), "ottla.audit.log": str(directory / "audit.log")}
    with OtlpReceiver() as receiver:
        settings |= {"ottla.otel.endpoint": receiver.endpoint, "ottla.otel.interval.ms": "1000"}
        settings |= {"ottla.otel.traces.enable": "true"}
        with OttlaCluster(directory / "cluster", 3, settings, restart=False) as cluster:
            yield MonitoredCluster(cluster, receiver)
