"""Three brokers that tier to a real S3 server through a proxy in which tests inject faults."""

import contextlib
from collections.abc import Collection, Mapping
from pathlib import Path
from types import TracebackType

from confluent_kafka import Consumer, TopicPartition

from tests.support.clients.remote_storage_view import KEY_PREFIX, RemoteStorageView, clipped
from tests.support.clients.replicated_load import create_topic
from tests.support.processes.broker_cluster import BrokerCluster
from tests.support.processes.s3_proxy import S3Proxy
from tests.support.processes.s3_server import S3Server

__all__ = ["SEGMENT_BYTES", "TieredCluster", "clipped"]

SEGMENT_BYTES = 1 << 20
# All waits are at most a second, so that a test sees many rounds.
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
    # A briefly slow replica stays in sync, because consumers may fetch from in-sync followers.
    "replica.lag.time.max.ms": "30000",
    "replica.selector.class": "org.apache.kafka.common.replica.RackAwareReplicaSelector",
}
BUCKET_SETTINGS = {
    "rsm.config.key.prefix": KEY_PREFIX,
    "rsm.config.storage.s3.api.call.attempt.timeout": "2000",
}


class TieredCluster(RemoteStorageView):
    """A context manager that starts the server, the proxy, and the brokers; each is in a rack of its own name."""

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
        """Return the bootstrap servers of the running brokers."""
        return ",".join(broker.bootstrap for broker in self.brokers.brokers.values() if broker.is_running)

    @property
    def objects(self) -> Path:
        return self.server.objects

    @property
    def tool_settings(self) -> Mapping[str, str]:
        return self._tool_settings

    def data_directory(self, broker_id: int) -> Path:
        return self.brokers[broker_id].data

    # ---- topics

    def create(self, topic: str, *assignment: Collection[int], **config: str) -> None:
        """Create a topic with small segments and short local retention; underscores in the keys of `config` stand for
        dots.
        """
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

    def last_stable_offset(self, topic: str, partition: int) -> int:
        """Return the last stable offset by ListOffsets with read_committed."""
        settings = {"bootstrap.servers": self.bootstrap, "group.id": "nobody", "isolation.level": "read_committed"}
        consumer = Consumer(settings)
        try:
            return int(consumer.get_watermark_offsets(TopicPartition(topic, partition), timeout=30)[1])
        finally:
            consumer.close()
