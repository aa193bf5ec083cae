"""A cluster in the states that the browser tests look at: a half-tiered topic, a lagging group, a killed broker."""

import time
from collections.abc import Callable
from pathlib import Path
from typing import Final, TypeVar

import confluent_kafka
from confluent_kafka import ConsumerGroupTopicPartitions
from confluent_kafka.admin import AdminClient, NewTopic, OffsetSpec

from tests.support.processes.broker_cluster import BrokerCluster

T = TypeVar("T")

TOPIC: Final = "payments"
TIERED: Final = "archive"
GROUP: Final = "billing"
PARTITIONS: Final = 3
RECORDS: Final = 900
COMMITTED: Final = 100
LIMIT_S: Final = 60.0
HOSTILE: Final = '<img src=x onerror="document.title=1">'
"""Text that would run if the page took it for markup."""


class _Silent:
    def log(self, *_: object) -> None: ...


SETTINGS: Final = {
    "default.replication.factor": "3",
    "min.insync.replicas": "2",
    "offsets.topic.num.partitions": "1",
    "offsets.topic.replication.factor": "3",
    "ottla.console.actions.enable": "true",
    "remote.log.storage.system.enable": "true",
    "remote.log.storage.manager.class.name": "local",
}


def remote_settings(directory: Path) -> dict[str, str]:
    """Return the settings of brokers with remote storage in a directory."""
    return {
        "rsm.config.storage.root": str(directory),
        "remote.log.metadata.manager.listener.name": "PLAINTEXT",
        "rlmm.config.remote.log.metadata.topic.num.partitions": "3",
        "remote.log.manager.task.interval.ms": "200",
        "log.retention.check.interval.ms": "200",
        "log.initial.task.delay.ms": "100",
    }


def wait_for(read: Callable[[], T], is_reached: Callable[[T], bool], what: str) -> T:
    """Return the first value of `read` that satisfies `is_reached`. Raise AssertionError after a minute."""
    deadline = time.monotonic() + LIMIT_S
    while not is_reached(value := read()):
        assert time.monotonic() < deadline, f"{what}: {value}"
        time.sleep(0.1)
    return value


class ClusterStates:
    """Topics, records and groups of a running cluster, and the admin API's view of them."""

    def __init__(self, cluster: BrokerCluster) -> None:
        self.cluster = cluster
        self.admin = AdminClient({"bootstrap.servers": cluster.bootstrap, "logger": _Silent()})

    def fill(self) -> None:
        """Create the topics, write records, and commit offsets behind the end."""
        tiered = {"remote.storage.enable": "true", "segment.bytes": "1048576", "local.retention.bytes": "1"}
        topics = [NewTopic(TOPIC, PARTITIONS, 3), NewTopic(TIERED, 1, 3, config=tiered)]
        for created in self.admin.create_topics(topics).values():
            created.result(LIMIT_S)
        producer = confluent_kafka.Producer({"bootstrap.servers": self.cluster.bootstrap, "logger": _Silent()})
        for number in range(RECORDS):
            value = f'{{"number": {number}, "note": "round {number % 7}"}}'
            producer.produce(TOPIC, value, key=f"key-{number}", partition=number % PARTITIONS)
        headers = [("trace", b"\x00\xff"), ("<b>", b"1")]
        producer.produce(TOPIC, HOSTILE, key=HOSTILE, partition=0, headers=headers)
        assert producer.flush(LIMIT_S) == 0
        for _ in range(6):  # a segment each
            for number in range(11):
                producer.produce(TIERED, b"x" * 100_000, key=str(number), partition=0)
            assert producer.flush(LIMIT_S) == 0
        self.commit(GROUP, COMMITTED)

    def commit(self, group: str, offset: int) -> None:
        """Commit `offset` for every partition."""
        places = [confluent_kafka.TopicPartition(TOPIC, index, offset) for index in range(PARTITIONS)]
        request = [ConsumerGroupTopicPartitions(group, places)]
        self.admin.alter_consumer_group_offsets(request)[group].result(LIMIT_S)

    def ends(self, topic: str, partitions: int) -> list[int]:
        """Return the end offsets, as the admin API lists them."""
        wanted = {confluent_kafka.TopicPartition(topic, index): OffsetSpec.latest() for index in range(partitions)}
        found = self.admin.list_offsets(wanted)
        return [found[place].result(LIMIT_S).offset for place in sorted(wanted, key=lambda each: each.partition)]

    def leaders(self, topic: str) -> list[tuple[int, list[int]]]:
        """Return leader and in-sync replicas of each partition, as the admin API describes them."""
        found = self.admin.list_topics(topic, LIMIT_S).topics[topic].partitions
        return [(found[index].leader, sorted(found[index].isrs)) for index in sorted(found)]

    def lag(self, group: str) -> list[int]:
        """Return the lag of each partition, computed from the admin API's offsets."""
        request = [ConsumerGroupTopicPartitions(group)]
        found = self.admin.list_consumer_group_offsets(request)[group].result(LIMIT_S).topic_partitions
        committed = {place.partition: place.offset for place in found}
        return [end - committed[index] for index, end in enumerate(self.ends(TOPIC, PARTITIONS))]
