"""The broker role of a node: loads logs, registers with the controller, takes up replicas and groups, and leaves."""

import asyncio
from collections.abc import Iterable
from functools import partial
from typing import TYPE_CHECKING

from broker.config.broker_config import BrokerConfig
from broker.metadata.image.features import SUPPORTED_FEATURES
from broker.metrics.client_quotas import client_quota_families
from broker.metrics.client_telemetry import client_telemetry_families, pushed_families
from broker.metrics.family import Family
from broker.metrics.loop_lag import LoopLag
from broker.metrics.requests import RequestMetrics
from broker.net.server import Server
from broker.node.data import DataPart, load_logs, set_aside_strays, settle_duplicates
from broker.node.directories import NodeDirectories
from broker.node.listeners import advertised_endpoints
from broker.node.metadata import MetadataPart
from broker.node.metrics import node_families
from broker.node.runtime import NodeRuntime
from broker.quotas.client_quotas import BrokerQuotas
from broker.rates.windowed_rate import QuotaWindows
from broker.runtime.controller.broker_lifecycle import BrokerIdentity, BrokerLifecycle, LifecycleTimes
from broker.runtime.controller.directory_assignments import DirectoryAssignments
from broker.runtime.remote_log.startup_check import check_nothing_is_cut_off
from broker.telemetry.client_metrics import ClientMetrics
from broker.telemetry.received_metrics import ReceivedMetrics
from protocol.ids import BrokerEpoch
from protocol.lazy_dataclass import lazy_dataclass
from protocol.primitives import Uuid
from storage.directories.checkpoints import TopicPartition
from storage.directories.formatting import random_id
from storage.directories.log_dirs import LogDirs

if TYPE_CHECKING:
    from broker.node.remote import RemoteStoragePart


async def load_data(runtime: NodeRuntime, directories: NodeDirectories, metadata: MetadataPart) -> None:
    """Open and recover every log on a thread. Raise StorageError."""
    log_dirs, image = directories.log_dirs, metadata.cache.image
    paths = [directory.path for directory in log_dirs.online]
    config_of = partial(metadata.config.log_config, image)
    await asyncio.to_thread(check_nothing_is_cut_off, runtime.files, paths, image, config_of)
    await asyncio.to_thread(load_logs, log_dirs, metadata.config, image, runtime.clock.now_ms())


def build_lifecycle(
    runtime: NodeRuntime,
    config: BrokerConfig,
    directories: NodeDirectories,
    metadata: MetadataPart,
    server: Server,
    incarnation_id: Uuid,
) -> BrokerLifecycle:
    """Build the broker's registration. Call after the logs are loaded: it says whether all were closed cleanly."""
    identity = BrokerIdentity(
        broker_id=config.node_id,
        cluster_id=directories.cluster_id,
        incarnation_id=incarnation_id,
        listeners=advertised_endpoints(config, server),
        features=SUPPORTED_FEATURES,
        directories=tuple(directory.id for directory in directories.log_dirs.online),
        rack=config.broker_rack,
        previous_epoch=BrokerEpoch(directories.log_dirs.previous_broker_epoch),
    )
    times = LifecycleTimes(
        config.broker_heartbeat_interval_ms,
        config.broker_session_timeout_ms,
        config.initial_broker_registration_timeout_ms,
        config.log_dir_failure_timeout_ms,
    )
    return BrokerLifecycle(identity, metadata.heartbeat_channel, clock=runtime.clock, times=times)


def build_client_quotas(config: BrokerConfig) -> BrokerQuotas:
    """Build the client quotas of the broker, without limits until the metadata are known."""
    return BrokerQuotas(QuotaWindows(config.quota_window_num, config.quota_window_size_seconds * 1000))


def build_client_metrics(config: BrokerConfig) -> ClientMetrics:
    """Build the client metrics of the broker, without subscriptions until the metadata are known."""
    return ClientMetrics(ReceivedMetrics(config.ottla_client_metrics_max_series), config.telemetry_max_bytes, random_id)


@lazy_dataclass(frozen=True, slots=True)
class BrokerPart:
    """The components of the broker role, built and not started.

    Call in this order: `register`, `settle_duplicates` and `take_up_roles` once the registration is in the metadata,
    `withdraw`, `stop_replication`, `close`.
    """

    config: BrokerConfig
    runtime: NodeRuntime
    directories: NodeDirectories
    metadata: MetadataPart
    data: DataPart
    lifecycle: BrokerLifecycle
    quotas: BrokerQuotas
    client_metrics: ClientMetrics
    remote: "RemoteStoragePart | None"

    def register(self) -> DirectoryAssignments:
        """Start the registration with the controller. Return the directory assignments, which the caller closes."""
        self.metadata.driver.add_publisher(self.lifecycle)
        assignments = DirectoryAssignments(
            self.config.node_id,
            self.metadata.forwarding_channel,
            self.metadata.cache,
            self.lifecycle,
            partial(_directory_id_of, self.directories.log_dirs),
            self.runtime.loop,
        )
        self.data.partitions.roles.add_listener(assignments)
        self.runtime.spawn(self.lifecycle.run())
        return assignments

    async def settle_duplicates(self) -> None:
        """Choose one log of each partition that several directories hold.

        Call once the metadata holds this registration: earlier metadata may name another directory.
        """
        log_dirs = self.directories.log_dirs
        if log_dirs.contested:
            image = self.metadata.cache.image
            config_of = partial(self.metadata.config.log_config, image)
            await asyncio.to_thread(settle_duplicates, self.data.store, log_dirs, config_of, image, self.config.node_id)

    def take_up_roles(self) -> None:
        """Begin to lead, follow and coordinate as the metadata says.

        Call once the metadata holds this registration: by earlier metadata the node might lead partitions that other
        brokers lead now.
        """
        data, driver = self.data, self.metadata.driver
        set_aside_strays(data.store, self.directories.log_dirs, self.metadata.cache.image, self.config.node_id)
        for publisher in (
            self.quotas,
            self.client_metrics,
            data.throttles,
            data.fetchers,
            data.replica_assignments,
            data.groups,
            data.share_groups,
            data.transactions,
            data.share_states,
        ):
            driver.add_publisher(publisher)
        if self.remote is not None:
            for remote_publisher in self.remote.publishers:
                driver.add_publisher(remote_publisher)
            self.runtime.spawn(self.remote.run())
        data.fetchers.begin()
        self.runtime.spawn(data.tasks.run())
        self.runtime.spawn(data.groups.run())
        self.runtime.spawn(data.transactions.run())
        self.runtime.spawn(data.share_states.run())
        if data.snapshot_maker is not None:
            self.runtime.spawn(data.snapshot_maker.run())

    def families(self, servers: list[Server], requests: RequestMetrics, lag: LoopLag) -> list[Family]:
        """Return all metric families of the node."""
        families = node_families(servers, self.metadata, self.data, self.lifecycle, requests, lag, self.runtime.clock)
        families += client_quota_families(self.quotas, self.metadata.driver, self.runtime.clock.monotonic_ms)
        families += client_telemetry_families(self.client_metrics)
        return [*families, *([] if self.remote is None else self.remote.families())]

    def pushed_families(self) -> Iterable[Family]:
        """Return the families of the metrics that clients have pushed."""
        return pushed_families(self.client_metrics, self.runtime.clock.monotonic_ms)

    async def withdraw(self, *, controlled: bool) -> None:
        """Leave the cluster: by a controlled shutdown, or at once, since the controller may be what failed."""
        if controlled and self.remote is not None:
            await self.remote.finish()
        if controlled:
            self.data.partitions.roles.begin_controlled_shutdown()
        await self.lifecycle.shut_down(controlled=controlled)

    def stop_replication(self) -> None:
        """End coordinators and replication. Cancel the background tasks next."""
        self.data.share_states.close()
        self.data.transactions.close()
        self.data.groups.close()
        self.data.close_replication()

    async def close(self) -> None:
        """Flush and close the logs, with the marker of a clean shutdown. Call after the background tasks have ended."""
        if self.remote is not None:
            await self.remote.close()
        self.runtime.deadlines.close()
        await self.runtime.io.submit(_nothing)  # Returns once the IO thread has finished all work on logs.
        await asyncio.to_thread(self.data.log_dirs.close, broker_epoch=self.lifecycle.epoch)


def _nothing() -> None:
    """Do nothing, after all earlier work in the queue."""


def _directory_id_of(log_dirs: LogDirs, topic: str, index: int) -> Uuid | None:
    directory = log_dirs.directory_of(TopicPartition(topic, index))
    return None if directory is None else directory.id
