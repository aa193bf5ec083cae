"""Three brokers that tier to a real S3 server behind a bad way to it, and what can be seen of their tier from outside.

Whoever uses it makes the stores fail; here is asked what is remote by the metadata topic and what lies in the bucket.
"""

import contextlib
import json
import os
import time
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

from confluent_kafka import Consumer, TopicPartition

from broker.cli.tiering.cluster import Cluster, LogBounds
from broker.cli.tiering.metadata_topic import MetadataTopic
from broker.client import Client, ClientConfig
from storage.tiered.object_keys import ObjectKeys, ObjectSuffix
from storage.tiered.segment_metadata import RemoteSegment, SegmentState
from tests.support.broker_cluster import BrokerCluster
from tests.support.ottla_node import run_ottla
from tests.support.replicated_load import create_topic
from tests.support.s3_proxy import S3Proxy
from tests.support.s3_server import S3Server

SEGMENT_BYTES = 1 << 20
KEY_PREFIX = "tier/"
# Everything that waits does so for a second at most, so that a test sees many turns.
SETTINGS = {
    "remote.log.storage.system.enable": "true",
    "remote.log.storage.manager.class.name": "s3",
    "remote.log.manager.task.interval.ms": "300",
    "remote.log.manager.task.retry.backoff.ms": "200",
    "remote.log.manager.task.retry.backoff.max.ms": "1000",
    "log.retention.check.interval.ms": "500",
    "log.initial.task.delay.ms": "200",
    "log.segment.delete.delay.ms": "500",
    "unclean.leader.election.interval.ms": "300",
    "replica.selector.class": "org.apache.kafka.common.replica.RackAwareReplicaSelector",
}
BUCKET_SETTINGS = {
    "rsm.config.key.prefix": KEY_PREFIX,
    "rsm.config.storage.s3.api.call.attempt.timeout": "2000",
}


@dataclass(frozen=True, slots=True)
class Bucket:
    """Keys by what they are for."""

    segments: frozenset[str]
    others: frozenset[str]


class TieredCluster:
    """A context manager that starts the server, the way to it, and the brokers; each is in a rack of its own name."""

    def __init__(self, directory: Path, settings: Mapping[str, str] | None = None, seed: int = 0) -> None:
        self.server = S3Server(directory / "s3")
        self.proxy = S3Proxy(self.server.port, seed)
        bucket = {
            **self.server.node_settings(),
            **BUCKET_SETTINGS,
            "rsm.config.storage.s3.endpoint.url": self.proxy.endpoint,
        }
        self._tool_settings = {
            "remote.log.storage.manager.class.name": "s3",
            **self.server.node_settings(),
            "rsm.config.key.prefix": KEY_PREFIX,
        }
        racks = {broker_id: {"broker.rack": f"rack-{broker_id}"} for broker_id in (1, 2, 3)}
        self.brokers = BrokerCluster(directory, settings=SETTINGS | bucket | dict(settings or {}), each=racks)
        self._running = contextlib.ExitStack()

    def __enter__(self) -> "TieredCluster":
        with contextlib.ExitStack() as stack:
            for each in (self.server, self.proxy, self.brokers):
                stack.enter_context(each)
            self._running = stack.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._running.__exit__(kind, error, trace)

    @property
    def bootstrap(self) -> str:
        """Of the brokers that run."""
        return ",".join(broker.bootstrap for broker in self.brokers.brokers.values() if broker.is_running)

    # ---- topics

    def create(self, topic: str, *assignment: Collection[int], **config: str) -> None:
        """With small segments, of which little stays on the disks; underscores in the keys of `config` are dots."""
        usual = {
            "remote_storage_enable": "true",
            "segment_bytes": str(SEGMENT_BYTES),
            "local_retention_bytes": str(SEGMENT_BYTES),
            "retention_ms": "-1",
        }
        settings: dict[str, str] = usual | config
        create_topic(self.bootstrap, topic, 0, 3, [list(each) for each in assignment], **settings)

    def configure(self, topic: str, **config: str) -> None:
        changes = ",".join(f"{key.replace('_', '.')}={value}" for key, value in config.items())
        self.brokers.ottla(
            "configs", "--alter", "--entity-type", "topics", "--entity-name", topic, "--add-config", changes
        )

    @contextlib.contextmanager
    def client(self) -> Iterator[Client]:
        with Client(ClientConfig.parse(self.bootstrap)) as client:
            yield client

    def bounds(self, topic: str) -> dict[int, LogBounds]:
        """By ListOffsets, as the leaders have them."""
        with self.client() as client:
            return dict(Cluster(client).bounds(topic))

    def last_stable_offset(self, topic: str, partition: int) -> int:
        """By ListOffsets with read_committed."""
        settings = {"bootstrap.servers": self.bootstrap, "group.id": "nobody", "isolation.level": "read_committed"}
        consumer = Consumer(settings)
        try:
            return int(consumer.get_watermark_offsets(TopicPartition(topic, partition), timeout=30)[1])
        finally:
            consumer.close()

    # ---- what is remote

    def segments(self, topic: str | None = None) -> list[RemoteSegment]:
        """All that the metadata topic tells of now, of one topic or of all, in whatever state."""
        with self.client() as client:
            metadata = MetadataTopic(client, lambda: time.time_ns() // 1_000_000)
            known = list(metadata.catch_up_all()) if metadata.exists() else []
        return [
            segment for each in known if topic in (None, each.partition.topic) for segment in each.segments.segments()
        ]

    def finished(self, topic: str, partition: int = 0) -> list[RemoteSegment]:
        """By their start."""
        found = [
            each
            for each in self.segments(topic)
            if each.state is SegmentState.COPY_FINISHED and each.id.partition.partition == partition
        ]
        return sorted(found, key=lambda each: each.start_offset)

    def bucket(self, topic: str | None = None) -> Bucket:
        """Read from the server's disk, whatever its way is like."""
        keys = ObjectKeys(KEY_PREFIX)
        root = self.server.objects
        # What goes while one looks is no error.
        found = (
            Path(directory, name).relative_to(root).as_posix()
            for directory, _, names in os.walk(root)
            for name in names
        )
        mine = [key for key in found if key.startswith(KEY_PREFIX + ("" if topic is None else f"{topic}-"))]
        segments = frozenset(key for key in mine if keys.parse(key) is not None)
        return Bucket(segments, frozenset(mine) - segments)

    def expected_objects(self, topic: str | None = None) -> frozenset[str]:
        """What must be there, and nothing more: three objects for each finished segment."""
        keys = ObjectKeys(KEY_PREFIX)
        finished = (each for each in self.segments(topic) if each.state is SegmentState.COPY_FINISHED)
        return frozenset(keys.key(each, suffix) for each in finished for suffix in ObjectSuffix)

    def remote(self, command: str, *arguments: str, check: bool = True) -> str:
        """`ottla remote`, on the straight way to the store."""
        overrides = [part for key, value in self._tool_settings.items() for part in ("--override", f"{key}={value}")]
        given = ("--bootstrap-server", self.bootstrap, *overrides, *arguments)
        done = run_ottla("remote", command, *given, check=check, timeout_s=1800)
        return done.stdout + done.stderr

    def remote_json(self, command: str, *arguments: str) -> object:
        return json.loads(self.remote(command, "--json", *arguments))

    # ---- disks

    def partition_directory(self, broker_id: int, topic: str, partition: int = 0) -> Path:
        return self.brokers[broker_id].data / f"{topic}-{partition}"

    def local_bytes(self, broker_id: int, topic: str, partition: int = 0) -> int:
        """Of the segments of a replica; 0 for one that is deleted right now."""
        size = 0
        for path in self.partition_directory(broker_id, topic, partition).glob("*.log"):
            with contextlib.suppress(FileNotFoundError):
                size += path.stat().st_size
        return size

    def leader_epochs(self, broker_id: int, topic: str, partition: int = 0) -> list[tuple[int, int]]:
        """Epochs and where they begin, as the replica's checkpoint has them."""
        text = (self.partition_directory(broker_id, topic, partition) / "leader-epoch-checkpoint").read_text()
        return [(int(epoch), int(offset)) for epoch, offset in (line.split() for line in text.splitlines()[2:])]


def clipped(epochs: list[tuple[int, int]], first: int, last: int) -> tuple[tuple[int, int], ...]:
    """The epochs of the offsets from `first` to `last`, the first one beginning at `first`."""
    ends = [start for _, start in epochs[1:]] + [last + 1]
    return tuple(
        (epoch, max(start, first))
        for (epoch, start), end in zip(epochs, ends, strict=True)
        if max(start, first) < min(end, last + 1)
    )
