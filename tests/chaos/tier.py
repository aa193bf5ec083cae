"""The remote storage of a chaos run, its tiered topics, and its settings.

The store is a real S3 server behind a faulty proxy or, where none can be built, a directory, which does not fail. Both
run on the host of the run itself; nodes reach them at the address that the network gives the run.
"""

import contextlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType

from tests.chaos.checker import Rules
from tests.chaos.network import Network
from tests.chaos.nodes import ChaosCluster
from tests.chaos.topic import Load
from tests.support.clients.remote_storage_view import KEY_PREFIX, RemoteStorageView
from tests.support.processes.client_programs import ClientLibrary
from tests.support.processes.s3_proxy import S3Proxy
from tests.support.processes.s3_server import S3Server

ENDLESS = "chaos-tiered"
BOUNDED = "chaos-tiered-bounded"
LOOSE = "chaos-tiered-loose"
TOPICS = (ENDLESS, BOUNDED, LOOSE)
METADATA_TOPIC = "__remote_log_metadata"
PARTITIONS = 3
RECORD_BYTES = 400
# Per topic. Segments are rolled by time long before they are full.
RATE = 400
RETENTION_BYTES = 3 << 20
NODE_SETTINGS = {
    "remote.log.storage.system.enable": "true",
    "rsm.config.key.prefix": KEY_PREFIX,
    "remote.log.manager.task.interval.ms": "500",
    "remote.log.manager.task.retry.backoff.ms": "200",
    "remote.log.manager.task.retry.backoff.max.ms": "2000",
    "log.retention.check.interval.ms": "1000",
    "log.initial.task.delay.ms": "500",
    "log.segment.delete.delay.ms": "1000",
    # A leader without contact to the controllers comes to destructive acts within its fault.
    "ottla.remote.log.collection.grace.ms": "5000",
    # The run has nine tiered partitions; each metadata partition, 50 by default, costs replication and readers.
    "rlmm.config.remote.log.metadata.topic.num.partitions": "6",
}
TOPIC_SETTINGS = {
    "remote.storage.enable": "true",
    "segment.bytes": str(1 << 20),
    "segment.ms": "4000",
    "local.retention.ms": "3000",
}
S3_SETTINGS = {
    "remote.log.storage.manager.class.name": "s3",
    "rsm.config.storage.s3.api.call.attempt.timeout": "3000",
}


class Tier(RemoteStorageView):
    """A context manager that starts the store. `refusal` is the reason for having no S3 server, None with one."""

    def __init__(self, directory: Path, network: Network, seed: int, refusal: str | None) -> None:
        self.refusal = refusal
        self._directory = directory
        self._cluster: ChaosCluster | None = None
        self.server: S3Server | None = None
        self.proxy: S3Proxy | None = None
        if refusal is None:
            self.server = S3Server(directory / "s3")
            self.proxy = S3Proxy(self.server.port, seed, network.own_address)
        self._running = contextlib.ExitStack()

    def __enter__(self) -> "Tier":
        with contextlib.ExitStack() as stack:
            for each in (self.server, self.proxy):
                if each is not None:
                    stack.enter_context(each)
            self._running = stack.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._running.__exit__(kind, error, trace)

    # Settings

    @property
    def node_settings(self) -> Mapping[str, str]:
        """Return the settings of every node."""
        way = {} if self.proxy is None else {"rsm.config.storage.s3.endpoint.url": self.proxy.endpoint}
        return {**NODE_SETTINGS, **self.tool_settings, **way}

    @property
    def tool_settings(self) -> Mapping[str, str]:
        if self.server is not None:
            return {**S3_SETTINGS, **self.server.node_settings(), "rsm.config.key.prefix": KEY_PREFIX}
        return {
            "remote.log.storage.manager.class.name": "local",
            "rsm.config.storage.root": str(self.objects),
            "rsm.config.key.prefix": KEY_PREFIX,
        }

    # RemoteStorageView

    def attach(self, cluster: ChaosCluster) -> None:
        """Set the cluster that uses this tier."""
        self._cluster = cluster

    @property
    def cluster(self) -> ChaosCluster:
        assert self._cluster is not None
        return self._cluster

    @property
    def bootstrap(self) -> str:
        return self.cluster.bootstrap

    @property
    def objects(self) -> Path:
        return self._directory / "remote" if self.server is None else self.server.objects

    def data_directory(self, broker_id: int) -> Path:
        return self.cluster[broker_id].data


def loads(rate: int = RATE) -> Sequence[Load]:
    """Return the loads: a topic without retention, one bounded by bytes and DeleteRecords, of which nothing may be
    lost, and one written with acks=1. Leaders of the latter have closed segments with uncommitted records, which must
    not be copied: a truncated record must be nowhere."""
    endless, loosely = (
        {"retention.ms": "-1", "retention.bytes": "-1"},
        Rules(lossy=True, idempotent=False, gapless=True),
    )
    return [
        _load(ENDLESS, rate, Rules(gapless=True), endless),
        _load(BOUNDED, rate, Rules(gapless=True, bounded=True), {"retention.bytes": str(RETENTION_BYTES)}),
        _load(LOOSE, rate, loosely, {**endless, "segment.ms": "1500"}, acks="1"),
    ]


def _load(topic: str, rate: int, rules: Rules, settings: Mapping[str, str], acks: str = "all") -> Load:
    return Load(
        clients=[ClientLibrary.LIBRDKAFKA],
        partitions=PARTITIONS,
        rate=rate,
        size=RECORD_BYTES,
        acks=acks,
        unclean=False,
        rules=rules,
        topic=topic,
        settings={**TOPIC_SETTINGS, **settings},
        reread=True,
    )
