"""A live group of librdkafka and Java consumers moves to the protocol "consumer" and back by rolling restarts.

Three nodes; records are produced all the while. No record is lost, and none is read again that was committed before the
reader got its partition. Takes minutes and Java, so it runs only with OTTLA_MIGRATION_SHOW=1.
"""

import json
import os
import subprocess
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, ConsumerGroupListing, NewTopic

from tests.support.kafka.apache_kafka import java_command, stop, unavailable_reason
from tests.support.processes.ottla_cluster import OttlaCluster

pytestmark = [pytest.mark.integration, pytest.mark.slow]

TOPIC, GROUP = "orders", "workers"
PARTITIONS = 6
TIMEOUT_S = 90
RECORDS_PER_S = 500
LOST = (
    KafkaError.REBALANCE_IN_PROGRESS,
    KafkaError.ILLEGAL_GENERATION,
    KafkaError.STALE_MEMBER_EPOCH,
    KafkaError.UNKNOWN_MEMBER_ID,
    KafkaError._NO_OFFSET,
)
"""Codes of a commit that a rebalance has overtaken; the records are read again."""
ASSIGNOR = "org.apache.kafka.clients.consumer.RangeAssignor"


class Read(NamedTuple):
    """A record that a consumer got. `assigned_s` is the time at which the consumer got the partition."""

    consumer: str
    partition: int
    offset: int
    assigned_s: float


class History:
    """Reads and commits of all consumers."""

    def __init__(self) -> None:
        self.reads: list[Read] = []
        self.commits: dict[int, list[tuple[float, int]]] = defaultdict(list)
        """Time and offset of acknowledged commits, by partition."""

    def committed_before(self, partition: int, moment_s: float) -> int:
        return max((offset for at_s, offset in self.commits[partition] if at_s < moment_s), default=0)


class LibrdkafkaWorker:
    """A consumer in a thread that commits what it has read, and at the latest when it loses partitions."""

    def __init__(self, cluster: OttlaCluster, name: str, protocol: str, history: History) -> None:
        self.name = name
        self._history = history
        self._assigned_s: dict[int, float] = {}
        self._read: dict[int, int] = {}
        self._is_over = threading.Event()
        self.failure: BaseException | None = None
        classic = {"partition.assignment.strategy": "range"} if protocol == "classic" else {}
        self._consumer = Consumer(
            {
                **classic,
                "bootstrap.servers": cluster.bootstrap,
                "group.id": GROUP,
                "client.id": name,
                "group.protocol": protocol,
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
            }
        )
        self._consumer.subscribe([TOPIC], on_assign=self._on_assign, on_revoke=self._on_revoke)
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    @property
    def partition_count(self) -> int:
        return len(self._assigned_s)

    def close(self) -> None:
        self._is_over.set()
        self._thread.join()
        assert self.failure is None, self.failure

    def _run(self) -> None:
        try:
            while not self._is_over.is_set():
                for message in self._consumer.consume(50, 0.1):
                    error = message.error()
                    if error is not None:
                        assert not error.fatal(), error
                        continue
                    partition, offset = message.partition(), message.offset()
                    self._history.reads.append(Read(self.name, partition, offset, self._assigned_s[partition]))
                    self._read[partition] = offset + 1
                self._commit()
            self._consumer.close()
        except BaseException as error:  # noqa: BLE001  reported by `close`
            self.failure = error

    def _commit(self) -> None:
        offsets = [TopicPartition(TOPIC, partition, offset) for partition, offset in self._read.items()]
        if not offsets:
            return
        try:
            committed = self._consumer.commit(offsets=offsets, asynchronous=False)
        except KafkaException as error:
            if error.args[0].code() not in LOST:
                raise
            return
        now_s = time.time()
        for each in committed or ():
            if each.error is None:
                self._history.commits[each.partition].append((now_s, each.offset))
        self._read.clear()

    def _on_assign(self, _consumer: Consumer, partitions: list[TopicPartition]) -> None:
        for each in partitions:
            self._assigned_s[each.partition] = time.time()

    def _on_revoke(self, _consumer: Consumer, partitions: list[TopicPartition]) -> None:
        self._commit()
        for each in partitions:
            self._assigned_s.pop(each.partition, None)
            self._read.pop(each.partition, None)


class JavaWorker:
    """Kafka's VerifiableConsumer as a process, which commits after each poll."""

    def __init__(self, cluster: OttlaCluster, name: str, protocol: str, history: History) -> None:
        self.name = name
        self._history = history
        self._assigned_s: dict[int, float] = {}
        own = ("--assignment-strategy", ASSIGNOR) if protocol == "classic" else ()
        command = java_command(
            "org.apache.kafka.tools.VerifiableConsumer",
            *("--bootstrap-server", cluster.bootstrap, "--topic", TOPIC, "--group-id", GROUP, "--verbose"),
            *("--group-protocol", protocol.upper(), *own),
            heap="128m",
        )
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    @property
    def partition_count(self) -> int:
        return len(self._assigned_s)

    def close(self) -> None:
        stop(self._process)
        self._thread.join()
        assert self._process.stdout is not None
        self._process.stdout.close()

    def _run(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if line.startswith(b"{"):
                self._on_event(json.loads(line))

    def _on_event(self, event: dict[str, Any]) -> None:
        at_s = event["timestamp"] / 1000
        match event["name"]:
            case "partitions_assigned":
                for each in event["partitions"]:
                    self._assigned_s[each["partition"]] = at_s
            case "partitions_revoked":
                for each in event["partitions"]:
                    self._assigned_s.pop(each["partition"], None)
            case "record_data":
                partition = event["partition"]
                assigned_s = self._assigned_s.get(partition, 0.0)
                self._history.reads.append(Read(self.name, partition, event["offset"], assigned_s))
            case "offsets_committed" if event["success"]:
                for each in event["offsets"]:
                    self._history.commits[each["partition"]].append((at_s, each["offset"]))


Worker = LibrdkafkaWorker | JavaWorker
KINDS: dict[str, type[Worker]] = {"lib-1": LibrdkafkaWorker, "java": JavaWorker, "lib-2": LibrdkafkaWorker}


class Source:
    """Produces at a steady rate, and knows what was acknowledged."""

    def __init__(self, cluster: OttlaCluster) -> None:
        self.ends: dict[int, int] = defaultdict(int)
        self._producer = Producer({"bootstrap.servers": cluster.bootstrap, "enable.idempotence": True, "linger.ms": 5})
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        number = 0
        while not self._is_over.wait(1 / RECORDS_PER_S):
            self._producer.produce(TOPIC, str(number), partition=number % PARTITIONS, on_delivery=self._on_delivery)
            self._producer.poll(0)
            number += 1

    def _on_delivery(self, error: KafkaError | None, message: Any) -> None:
        assert error is None, error
        self.ends[message.partition()] = max(self.ends[message.partition()], message.offset() + 1)

    def close(self) -> None:
        self._is_over.set()
        self._thread.join()
        assert self._producer.flush(TIMEOUT_S) == 0


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[OttlaCluster]:
    if os.environ.get("OTTLA_MIGRATION_SHOW") != "1":
        pytest.skip("takes minutes; set OTTLA_MIGRATION_SHOW=1 to run it")
    if (reason := unavailable_reason()) is not None:
        pytest.skip(reason)
    with OttlaCluster(tmp_path / "cluster") as running:
        yield running


def until(condition: Callable[[], bool], what: Callable[[], str]) -> None:
    deadline, pause = time.monotonic() + TIMEOUT_S, threading.Event()
    while not condition():
        assert time.monotonic() < deadline, what()
        pause.wait(0.1)


def group_type(admin: AdminClient) -> str:
    listed: list[ConsumerGroupListing] = admin.list_consumer_groups(request_timeout=30).result().valid
    return next((str(each.type.name) for each in listed if each.group_id == GROUP), "none")


class Migration:
    """The workers, by name, and the rolling restarts."""

    def __init__(self, cluster: OttlaCluster, history: History, source: Source) -> None:
        self.workers: dict[str, Worker] = {}
        self.types: list[str] = []
        self._admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
        self._cluster = cluster
        self._history = history
        self._source = source

    def run(self) -> None:
        for name, kind in KINDS.items():
            self.workers[name] = kind(self._cluster, name, "classic", self._history)
        self._await_work("the classic group")
        for protocol in ("consumer", "classic"):
            for name, kind in KINDS.items():
                self.workers.pop(name).close()
                self.workers[name] = kind(self._cluster, name, protocol, self._history)
                self._await_work(f"{name} with the protocol {protocol}")
        self._source.close()
        self._await_commits()

    def close(self) -> None:
        while self.workers:
            self.workers.popitem()[1].close()

    def _await_work(self, what: str) -> None:
        until(self._is_shared, lambda: f"{what} gets no partition: {self._counts()}")
        self._await_commits()
        self.types.append(group_type(self._admin))

    def _await_commits(self) -> None:
        """Wait until every partition is read and committed up to its present end."""
        ends = dict(self._source.ends)
        until(lambda: all(self._committed(each) >= end for each, end in ends.items()), lambda: "reading stopped")

    def _committed(self, partition: int) -> int:
        return self._history.committed_before(partition, time.time())

    def _counts(self) -> dict[str, int]:
        return {name: worker.partition_count for name, worker in self.workers.items()}

    def _is_shared(self) -> bool:
        counts = self._counts().values()
        return all(counts) and sum(counts) == PARTITIONS


def test_live_group_moves_to_the_new_protocol_and_back_without_a_lost_record(cluster: OttlaCluster) -> None:
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    admin.create_topics([NewTopic(TOPIC, PARTITIONS, 3)])[TOPIC].result(30)
    history, source = History(), Source(cluster)
    migration = Migration(cluster, history, source)
    try:
        migration.run()
    finally:
        source.close()
        migration.close()

    assert migration.types == ["CLASSIC", *["CONSUMER"] * 5, "CLASSIC"]
    seen = {(each.partition, each.offset) for each in history.reads}
    produced = {(partition, offset) for partition, end in source.ends.items() for offset in range(end)}
    print(f"{len(produced)} records, {len(history.reads) - len(seen)} reads more than that; group: {migration.types}")
    assert produced - seen == set(), "records are lost"
    again = [each for each in history.reads if each.offset < history.committed_before(each.partition, each.assigned_s)]
    assert again == [], "committed records are read again"
    committed = Consumer({"bootstrap.servers": cluster.bootstrap, "group.id": GROUP})
    offsets = committed.committed([TopicPartition(TOPIC, partition) for partition in range(PARTITIONS)], timeout=30)
    committed.close()
    assert {each.partition: each.offset for each in offsets} == dict(source.ends)
