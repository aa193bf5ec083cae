"""The metadata side of a node: the controller over its replica of the metadata log, and the publishers."""

import random
from collections.abc import Callable
from dataclasses import replace
from functools import partial

from broker.clock import Clock
from broker.config.broker_config import BrokerConfig
from broker.metadata.controller.controller import Controller, LocalBroker
from broker.metadata.controller.state import ControllerSettings, MutationQuotaSettings, TokenSettings
from broker.metrics.snapshots import SnapshotMetrics
from broker.net.peer import NetworkClient, PeerSettings
from broker.node.directories import NodeDirectories, read_bootstrap
from broker.node.quorum import QuorumPart
from broker.node.runtime import NodeRuntime
from broker.quorum.identity import LeaderAndEpoch
from broker.quorum.snapshots.rules import SnapshotTrigger, TriggerSettings
from broker.runtime.controller.auto_topic_creation import AutoTopicCreation
from broker.runtime.controller.channel import ChannelTimes, ControllerChannel
from broker.runtime.controller.config_schema import KafkaConfigSchema
from broker.runtime.controller.controller_router import ControllerRouter
from broker.runtime.controller.driver import ControllerDriver
from broker.runtime.controller.dynamic_config import DynamicConfig
from broker.runtime.controller.first_image import FirstImage
from broker.runtime.controller.metadata_cache import MetadataCache
from broker.runtime.loop.io_thread import BlockingIo
from broker.runtime.partitions.metadata_topic import ClusterMetadataTopic, MetadataPartition
from broker.runtime.quorum.controlled_shutdown import VoterShutdown
from broker.runtime.quorum.driver import SHUT_DOWN_TIMEOUT_MS
from broker.runtime.quorum.snapshot_generator import SnapshotGenerator
from protocol.lazy_dataclass import lazy_dataclass
from protocol.primitives import Uuid
from protocol.records.compression import Codec
from storage.directories.formatting import random_id

NO_SUCCESSOR_TIMEOUT_MS = 100
"""Time for a resigning leader to send EndQuorumEpoch where the remaining voters cannot elect a leader."""


class ActiveControllerId:
    """The id of the active controller, for handlers."""

    def __init__(self, driver: ControllerDriver) -> None:
        self._driver = driver

    @property
    def controller_id(self) -> int | None:
        """Return the id; None while no controller is active."""
        return self._driver.leader.leader_id


class ControllerQuorumView:
    """The controller's view of its quorum."""

    def __init__(self, quorum: QuorumPart) -> None:
        self._facts = quorum.driver.facts

    @property
    def kraft_version(self) -> int:
        return self._facts.kraft_version

    @property
    def voter_ids(self) -> tuple[int, ...]:
        return self._facts.voters.ids


@lazy_dataclass(frozen=True, slots=True)
class MetadataPart:
    """The metadata components of a node, built and not started; `quorum.driver.start()` starts them.

    `driver` notifies publishers in the order in which they were added. Two routers lead to the active controller, over
    connections of their own: `heartbeat_router` carries registrations and heartbeats, which are short and urgent;
    `forwarding_router` carries all other requests.
    """

    quorum: QuorumPart
    driver: ControllerDriver
    cache: MetadataCache
    config: DynamicConfig
    first_image: FirstImage
    voter_shutdown: VoterShutdown
    snapshots: SnapshotGenerator
    snapshot_metrics: SnapshotMetrics
    topic: ClusterMetadataTopic | None
    heartbeat_router: ControllerRouter
    forwarding_router: ControllerRouter
    heartbeat_channel: ControllerChannel
    forwarding_channel: ControllerChannel
    topics: AutoTopicCreation
    active_controller: ActiveControllerId
    connections: tuple[NetworkClient, ...]

    async def leave_quorum(self, *, is_controlled: bool) -> None:
        """Leave the quorum; a leader resigns and waits for its successor.

        `is_controlled`: the active controller has completed the controlled shutdown of this broker.
        """
        if is_controlled:
            await self.voter_shutdown.wait()
        has_successor = not is_controlled or self.voter_shutdown.can_others_elect
        await self.quorum.driver.shut_down(SHUT_DOWN_TIMEOUT_MS if has_successor else NO_SUCCESSOR_TIMEOUT_MS)

    def close(self) -> None:
        """Stop deciding and committing, close connections, and close the log. Blocks for an fsync."""
        self.snapshots.close()
        self.driver.close()
        for peers in self.connections:
            peers.close()
        self.quorum.close()


def build_metadata(
    runtime: NodeRuntime,
    config: BrokerConfig,
    directories: NodeDirectories,
    quorum: QuorumPart,
    incarnation_id: Uuid,
    snapshot_io: BlockingIo,
    on_log_failure: Callable[[BaseException], None],
) -> MetadataPart:
    """Build the controller, active or standby, over the quorum, and the channels to the active controller.

    `snapshot_io` writes snapshots, so that no commit waits for them. Raise StorageError.
    """
    driver = _controller_driver(runtime, config, directories, quorum, incarnation_id)
    cache, dynamic, first_image = MetadataCache(), DynamicConfig(config), FirstImage()
    connections = tuple(_connections(runtime, config, quorum.listener) for _ in range(2))
    heartbeat_router, forwarding_router = (
        ControllerRouter(config.node_id, driver, quorum.controller, peers) for peers in connections
    )
    forwarding_channel = ControllerChannel(driver, forwarding_router, _times(config))
    snapshot_metrics = SnapshotMetrics(runtime.clock.monotonic_ms())
    snapshots = _snapshot_generator(runtime, config, quorum, snapshot_metrics, snapshot_io)
    driver.add_log_read_listener(snapshots)
    voter_shutdown = VoterShutdown(config.node_id, lambda: quorum.driver.facts.voter_ids)
    for publisher in (driver.metrics, cache, dynamic, first_image, voter_shutdown, snapshots):
        driver.add_publisher(publisher)
    quorum.driver.add_listener(driver)
    topic = _metadata_topic(config, quorum, on_log_failure) if config.ottla_cluster_metadata_readable else None
    quorum.driver.watch_leader(partial(_on_leader_change, (heartbeat_router, forwarding_router), topic))
    return MetadataPart(
        quorum,
        driver,
        cache,
        dynamic,
        first_image,
        voter_shutdown,
        snapshots,
        snapshot_metrics,
        topic,
        heartbeat_router,
        forwarding_router,
        ControllerChannel(driver, heartbeat_router, _times(config)),
        forwarding_channel,
        AutoTopicCreation(
            forwarding_channel,
            cache,
            config,
            voter_count=lambda: len(quorum.driver.facts.voter_ids),
            spawn=runtime.spawn,
        ),
        ActiveControllerId(driver),
        connections,
    )


def _controller_driver(
    runtime: NodeRuntime,
    config: BrokerConfig,
    directories: NodeDirectories,
    quorum: QuorumPart,
    incarnation_id: Uuid,
) -> ControllerDriver:
    controller = Controller(
        _settings(config, directories.cluster_id),
        KafkaConfigSchema(config),
        random=random.Random(),
        new_id=random_id,
        quorum=ControllerQuorumView(quorum),
        may_lead=config.is_controller,
    )
    return ControllerDriver(
        controller,
        quorum.driver,
        runtime,
        bootstrap=read_bootstrap(runtime.files, directories.metadata_directory),
        local_broker=LocalBroker(config.node_id, incarnation_id) if config.is_broker else None,
    )


def _snapshot_generator(
    runtime: NodeRuntime, config: BrokerConfig, quorum: QuorumPart, metrics: SnapshotMetrics, io: BlockingIo
) -> SnapshotGenerator:
    return SnapshotGenerator(
        quorum.driver,
        _snapshot_trigger(config, runtime.clock),
        metrics,
        replace(runtime, io=io),
        codec=Codec[config.ottla_metadata_snapshot_compression_type.upper()],
    )


def _on_leader_change(
    routers: tuple[ControllerRouter, ...], topic: ClusterMetadataTopic | None, _leader: LeaderAndEpoch
) -> None:
    for router in routers:
        router.on_leader_change()
    if topic is not None:
        topic.on_quorum_changed()


def _snapshot_trigger(config: BrokerConfig, clock: Clock) -> SnapshotTrigger:
    settings = TriggerSettings(
        min_changed_ratio=config.metadata_snapshot_min_changed_records_ratio,
        min_bytes=config.metadata_log_max_record_bytes_between_snapshots,
        interval_ms=config.metadata_log_max_snapshot_interval_ms,
    )
    return SnapshotTrigger(settings, clock.monotonic_ms())


def _metadata_topic(
    config: BrokerConfig, quorum: QuorumPart, on_failure: Callable[[BaseException], None]
) -> ClusterMetadataTopic:
    """Build the metadata log as a topic for ordinary consumers (KIP-630 leaves that open)."""
    log = quorum.log
    partition = MetadataPartition(log.log, log.snapshots, quorum.driver, on_failure)
    return ClusterMetadataTopic(config.node_id, partition, quorum.driver)


def _connections(runtime: NodeRuntime, config: BrokerConfig, listener: str) -> NetworkClient:
    limits = PeerSettings(frame_bytes_max=config.socket_request_max_bytes)
    connect = runtime.connect_to(listener)
    return NetworkClient(runtime.loop, connect, client_id=str(config.node_id), settings=limits)


def _times(config: BrokerConfig) -> ChannelTimes:
    return ChannelTimes(
        config.broker_heartbeat_interval_ms, config.broker_session_timeout_ms, config.controller_socket_timeout_ms
    )


def _settings(config: BrokerConfig, cluster_id: str) -> ControllerSettings:
    return ControllerSettings(
        cluster_id=cluster_id,
        node_id=config.node_id,
        default_replication_factor=config.default_replication_factor,
        default_partition_count=config.num_partitions,
        session_timeout_ms=config.broker_session_timeout_ms,
        max_idle_interval_ms=config.metadata_max_idle_interval_ms,
        leader_imbalance_check_interval_ms=config.leader_imbalance_check_interval_seconds * 1000,
        auto_leader_rebalance=config.auto_leader_rebalance_enable,
        unclean_election_interval_ms=config.unclean_leader_election_interval_ms,
        tokens=TokenSettings(
            config.delegation_token_secret_key,
            config.delegation_token_max_lifetime_ms,
            config.delegation_token_expiry_time_ms,
            config.delegation_token_expiry_check_interval_ms,
        ),
        mutation_quota=MutationQuotaSettings(
            config.controller_quota_window_num, config.controller_quota_window_size_seconds * 1000
        ),
        remote_metadata_deletion_enable=config.ottla_remote_log_metadata_topic_deletion_enable,
    )
