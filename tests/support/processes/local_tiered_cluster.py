"""Cluster whose brokers tier to a shared directory that outlives them."""

import json
import shutil
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import NamedTuple, TypeVar

import confluent_kafka
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, PartitionMetadata

from broker.cli.tiering.cluster import Cluster, PartitionLogBounds
from broker.cli.tiering.metadata_topic import METADATA_TOPIC, RemoteMetadataTopic
from broker.client import Client, ClientConfig
from protocol.errors import KafkaError
from storage.tiered.catalog.metadata_snapshot import DIRECTORY as METADATA_SNAPSHOTS
from storage.tiered.segment_metadata import SegmentState
from tests.support.clients.replicated_load import create_topic
from tests.support.processes.broker_cluster import BrokerCluster
from tests.support.processes.changing_directory import files_below
from tests.support.processes.ottla_node import run_ottla

T = TypeVar("T")

SEGMENT_BYTES = 1 << 20
PATIENCE_S = 120.0
SETTINGS = {
    "remote.log.storage.system.enable": "true",
    "remote.log.storage.manager.class.name": "local",
    "rlmm.config.remote.log.metadata.topic.num.partitions": "3",
    "remote.log.manager.task.interval.ms": "200",
    "remote.log.manager.task.retry.backoff.ms": "100",
    "log.retention.check.interval.ms": "500",
    "log.initial.task.delay.ms": "200",
    "log.segment.delete.delay.ms": "200",
    "unclean.leader.election.interval.ms": "300",
}
TIERED = {
    "remote.storage.enable": "true",
    "segment.bytes": str(SEGMENT_BYTES),
    "local.retention.bytes": str(SEGMENT_BYTES),
    "retention.ms": "-1",
}


class Read(NamedTuple):
    """A record as a consumer receives it."""

    offset: int
    key: bytes | None
    value: bytes | None
    timestamp: int
    leader_epoch: int


def until(condition: Callable[[], T | None], what: str, patience_s: float = PATIENCE_S) -> T:
    """Return the value of a condition once it is true."""
    deadline = time.monotonic() + patience_s
    while not (found := condition()):
        assert time.monotonic() < deadline, f"{what} was not reached in {patience_s} s"
        time.sleep(0.05)
    return found


class LocalTieredCluster:
    """A context manager that starts a controller and three brokers in `directory`, with their segments in `root`."""

    def __init__(self, directory: Path, root: Path, settings: Mapping[str, str] | None = None) -> None:
        self.root = root
        self.root.mkdir(exist_ok=True)
        where = {"rsm.config.storage.root": str(root)}
        self.cluster = BrokerCluster(directory, settings=SETTINGS | where | dict(settings or {}))

    def __enter__(self) -> "LocalTieredCluster":
        self.cluster.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.cluster.__exit__(kind, error, trace)

    @property
    def cluster_id(self) -> str:
        with self.client() as client:
            return Cluster(client).cluster_id

    @property
    def bootstrap(self) -> str:
        """Bootstrap servers of the running brokers."""
        return ",".join(broker.bootstrap for broker in self.cluster.brokers.values() if broker.is_running)

    def stop(self) -> None:
        """Kill all brokers."""
        for broker in self.cluster.brokers.values():
            if broker.is_running:
                broker.kill()

    def start(self) -> None:
        self.cluster.start(*self.cluster.brokers)

    # ---- disks

    def lose_logs(self, topic: str, *broker_ids: int) -> None:
        """Delete the logs of stopped brokers."""
        for broker_id in broker_ids:
            for path in self.cluster[broker_id].data.glob(f"{topic}-*"):
                shutil.rmtree(path)

    def lose_remote_metadata(self) -> None:
        """Delete the metadata topic and everything derived from it."""
        permit = ("--add-config", "ottla.remote.log.metadata.topic.deletion.enable=true")
        self.cluster.ottla("configs", "--alter", "--entity-type", "brokers", "--entity-default", *permit)
        self.cluster.ottla("topics", "--delete", "--topic", METADATA_TOPIC)
        self.stop()
        for broker in self.cluster.brokers.values():
            shutil.rmtree(broker.data / METADATA_SNAPSHOTS, ignore_errors=True)
        self.start()

    def lose_everything(self) -> None:
        """Replace all nodes by empty ones with the same cluster id."""
        self.stop()
        self.cluster.controller.kill()
        for node in (self.cluster.controller, *self.cluster.brokers.values()):
            shutil.rmtree(node.data)
        self.cluster.controller.start()
        self.start()

    def objects(self, topic: str | None = None) -> list[str]:
        """Return the objects in the bucket, of one topic or of all."""
        found = (path.relative_to(self.root).as_posix() for path in files_below(self.root))
        return sorted(key for key in found if topic is None or key.startswith(f"{topic}-"))

    # ---- topics and records

    def create(self, topic: str, partitions: int = 2, assignment: Sequence[Sequence[int]] = (), **config: str) -> None:
        more = {key.replace("_", "."): value for key, value in config.items()}
        create_topic(self.bootstrap, topic, partitions, 3, assignment, **(TIERED | more))

    def produce(self, topic: str, count: int, partitions: int = 2, *, first: int = 0, size: int = 1000) -> None:
        """Produce records to each partition, idempotently, with contents by number; `size` in bytes."""
        failures: list[object] = []
        producer = Producer(
            {"bootstrap.servers": self.bootstrap, "enable.idempotence": True, "linger.ms": 5, "log_level": 0}
        )
        for number in range(first, first + count):
            for partition in range(partitions):
                text = b"%d/%d " % (partition, number)
                producer.produce(
                    topic,
                    text * (size // len(text)),
                    key=b"%d" % number,
                    partition=partition,
                    on_delivery=lambda error, _: failures.append(error) if error is not None else None,
                )
            producer.poll(0)
        assert producer.flush(PATIENCE_S) == 0
        assert failures == []

    def read(self, topic: str, partition: int = 0, *, first: int = 0, end: int | None = None) -> list[Read]:
        """Read records from `first` on with librdkafka, without offset resets."""
        consumer = Consumer(
            {
                "bootstrap.servers": self.bootstrap,
                "group.id": "reader",
                "enable.auto.commit": False,
                "auto.offset.reset": "error",
                "log_level": 0,
            }
        )
        found: list[Read] = []
        try:
            if end is None:
                end = int(consumer.get_watermark_offsets(TopicPartition(topic, partition), timeout=PATIENCE_S)[1])
            consumer.assign([TopicPartition(topic, partition, first)])
            deadline = time.monotonic() + PATIENCE_S
            while first < end:
                assert time.monotonic() < deadline, f"{topic}-{partition}: at {first} of {end}"
                for message in consumer.consume(1000, 0.5):
                    error = message.error()
                    assert error is None or error.retriable(), f"{topic}-{partition} at {first}: {error}"
                    if error is None:
                        first = int(message.offset()) + 1
                        found.append(_read(message))
        finally:
            consumer.close()
        return [record for record in found if record.offset < end]

    def bounds(self, topic: str) -> Mapping[int, PartitionLogBounds]:
        with self.client() as client:
            return dict(Cluster(client).bounds(topic))

    @contextmanager
    def client(self) -> Iterator[Client]:
        with Client(ClientConfig.parse(self.bootstrap)) as client:
            yield client

    def remote_ends(self, topic: str) -> dict[int, int]:
        """Return the offset above the last remote one, by partition."""
        return {
            number: -1 if each.remote_end is None else each.remote_end + 1
            for number, each in self.bounds(topic).items()
        }

    def delete_records(self, topic: str, partition: int, offset: int) -> None:
        admin = AdminClient({"bootstrap.servers": self.bootstrap, "log_level": 0})
        for done in admin.delete_records([TopicPartition(topic, partition, offset)]).values():
            done.result(PATIENCE_S)

    def wait_until_tiered(self, topic: str, below: int) -> dict[int, int]:
        """Wait until all offsets below a bound are remote and the local logs are short; return `remote_ends`."""

        def ends() -> dict[int, int] | None:
            bounds = self.bounds(topic)
            short = all(each.local_start is not None and each.local_start > 0 for each in bounds.values())
            found = self.remote_ends(topic)
            return found if short and min(found.values()) >= below and self.is_idle(topic) else None

        return until(ends, f"{topic} in remote storage up to {below}")

    def is_idle(self, topic: str) -> bool:
        """Whether no copy of a topic is running."""
        with self.client() as client:
            known = RemoteMetadataTopic(client, lambda: 0).catch_up_all()
        return not any(
            segment.state is SegmentState.COPY_STARTED
            for each in known
            if each.partition.topic == topic
            for segment in each.segments.segments()
        )

    def wait_until_led(self, topic: str) -> None:
        def is_led() -> bool:
            try:
                return all(None not in (each.start, each.end) for each in self.bounds(topic).values())
            except KafkaError:  # a dead leader that the cluster still considers live
                return False

        until(is_led, f"leaders of {topic}")

    def leader_of(self, topic: str, partition: int = 0) -> int | None:
        found = self._partitions(topic).get(partition)
        return None if found is None or found.leader < 0 else int(found.leader)

    def wait_until_in_sync(self, topic: str, broker_id: int) -> None:
        def is_in_sync() -> bool:
            return all(broker_id in each.isrs for each in self._partitions(topic).values())

        until(is_in_sync, f"broker {broker_id} among those in sync of {topic}")

    def _partitions(self, topic: str) -> Mapping[int, PartitionMetadata]:
        admin = AdminClient({"bootstrap.servers": self.bootstrap, "log_level": 0})
        return dict(admin.list_topics(topic, timeout=PATIENCE_S).topics[topic].partitions)

    # ---- tools

    def remote_arguments(self, command: str, *arguments: str) -> list[str]:
        where = {"remote.log.storage.manager.class.name": "local", "rsm.config.storage.root": str(self.root)}
        overrides = [part for key, value in where.items() for part in ("--override", f"{key}={value}")]
        return ["remote", command, "--bootstrap-server", self.bootstrap, *overrides, *arguments]

    def remote(self, command: str, *arguments: str, check: bool = True) -> str:
        """Run `ottla remote` and return its output."""
        done = run_ottla(*self.remote_arguments(command, *arguments), check=check)
        return done.stdout + done.stderr

    def wait_until_verified(self, *arguments: str) -> None:
        """Wait until `ottla remote verify` finds no fault, without running copies and deletions."""
        deadline = time.monotonic() + PATIENCE_S
        while (done := run_ottla(*self.remote_arguments("verify", *arguments), check=False)).returncode:
            assert time.monotonic() < deadline, done.stdout + done.stderr

    def remote_json(self, command: str, *arguments: str) -> object:
        return json.loads(run_ottla(*self.remote_arguments(command, *arguments), "--json").stdout)


def _read(message: confluent_kafka.Message) -> Read:
    epoch = message.leader_epoch()
    return Read(
        int(message.offset()), message.key(), message.value(), message.timestamp()[1], -1 if epoch is None else epoch
    )
