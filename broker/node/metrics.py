"""The sources of a node's metrics. Values are read only when a monitoring system scrapes."""

from collections.abc import Iterator, Sequence
from functools import partial

from broker.build_form import build_info
from broker.clock import Clock
from broker.metrics.applied import applied_families
from broker.metrics.client_quotas import client_quota_families
from broker.metrics.family import Family
from broker.metrics.fetch_sessions import fetch_session_families
from broker.metrics.fetchers import fetcher_families, replication_quota_families
from broker.metrics.loop_lag import LoopLag
from broker.metrics.network import connection_rate_families, network_families
from broker.metrics.node import (
    LogFigures,
    broker_families,
    controller_families,
    group_families,
    log_families,
)
from broker.metrics.partitions import PartitionFigures, partition_families
from broker.metrics.quorum import quorum_families
from broker.metrics.requests import RequestMetrics
from broker.metrics.share import share_session_families
from broker.metrics.snapshots import snapshot_families
from broker.net.server import Server
from broker.node.data import DataPart, late_transaction_limit_ms
from broker.node.metadata import MetadataPart
from broker.replication.leader import LeaderRole
from broker.runtime.controller.broker_lifecycle import BrokerLifecycle
from broker.runtime.partitions.partition import Partition


def node_families(
    servers: Sequence[Server],
    metadata: MetadataPart,
    data: DataPart,
    lifecycle: BrokerLifecycle,
    requests: RequestMetrics,
    lag: LoopLag,
    clock: Clock,
) -> list[Family]:
    """Return all families of a node with the broker role."""
    return [
        *broker_families(broker_state=lambda: lifecycle.state),
        *requests.families(),
        *data.partitions.traffic.families(),
        *_network(servers, clock),
        *_replicas(data, metadata, clock),
        *partition_families(lambda: (_figures_of(partition) for partition in data.partitions.all())),
        *fetch_session_families(data.fetch_sessions),
        *_controller(metadata),
        *_metadata(metadata, clock),
        *_logs(data),
        *group_families(
            groups_by_protocol=lambda: data.groups.metrics().groups_by_protocol(),
            consumer_groups_by_state=lambda: data.groups.metrics().consumer_groups_by_state(),
            consumer_group_rebalance_count=lambda: data.groups.metrics().consumer_group_rebalances,
            streams_groups_by_state=lambda: data.groups.metrics().streams_groups_by_state(),
            streams_group_rebalance_count=lambda: data.groups.metrics().streams_group_rebalances,
            share_groups_by_state=lambda: data.groups.metrics().share_groups_by_state(),
            share_group_rebalance_count=lambda: data.groups.metrics().share_group_rebalances,
            offset_count=lambda: data.groups.metrics().offsets,
        ),
        *data.groups.loads.families("group"),
        *data.transactions.loads.families("transaction"),
        *data.share_states.loads.families("share"),
        *(() if data.snapshot_maker is None else data.snapshot_maker.figures.families()),
        lag.family(),
        build_info(),
    ]


def controller_node_families(
    servers: Sequence[Server], metadata: MetadataPart, requests: RequestMetrics, lag: LoopLag, clock: Clock
) -> list[Family]:
    """Return all families of a node that is only a controller."""
    return [
        *client_quota_families(None, metadata.driver, clock.monotonic_ms),
        *requests.families(),
        *_network(servers, clock),
        *_controller(metadata),
        *_metadata(metadata, clock),
        lag.family(),
        build_info(),
    ]


def _network(servers: Sequence[Server], clock: Clock) -> list[Family]:
    stats = {name: counts for server in servers for name, counts in server.stats.items()}
    return [
        *network_families(stats, [server.backlog for server in servers]),
        *connection_rate_families([server.rates for server in servers], clock.monotonic_ms),
    ]


def _metadata(metadata: MetadataPart, clock: Clock) -> list[Family]:
    """Return families of the metadata log's replica, its snapshots, and the applied metadata."""
    quorum, cache = metadata.quorum.driver, metadata.cache
    return [
        *quorum_families(quorum.figures, quorum.metrics, clock.monotonic_ms),
        *snapshot_families(
            metadata.snapshot_metrics,
            high_watermark=lambda: quorum.high_watermark,
            metadata_version=lambda: int(cache.image.features.version),
            controller_id=lambda: -1 if quorum.leader.leader_id is None else quorum.leader.leader_id,
            monotonic_ms=clock.monotonic_ms,
        ),
        *applied_families(
            last_offset=lambda: cache.image.offset,
            last_timestamp_ms=lambda: cache.image.provenance.timestamp_ms,
            now_ms=clock.now_ms,
        ),
    ]


def _replicas(data: DataPart, metadata: MetadataPart, clock: Clock) -> list[Family]:
    partitions = data.partitions
    limit_ms = partial(late_transaction_limit_ms, metadata.config)
    return [
        *partitions.roles.figures.families(
            offline_replica_count=lambda: partitions.offline_count,
            producer_id_count=lambda: sum(len(partition.log.producers.entries) for partition in partitions.all()),
            late_transaction_count=lambda: sum(
                partition.is_leader and partition.log.producers.has_late_transaction(clock.now_ms(), limit_ms())
                for partition in partitions.all()
            ),
        ),
        *data.verifier.figures.families(),
        *data.transactions.markers.figures.families(),
        *data.share_states.figures.families(),
        *data.shares.partitions.services.figures.families(data.shares.partitions.figures),
        *share_session_families(
            lambda: len(data.shares.sessions),
            lambda: data.shares.sessions.partition_count,
            lambda: data.shares.sessions.evictions,
        ),
        *fetcher_families(data.fetchers.figures),
        *replication_quota_families(data.throttles.leader, data.throttles.follower, clock.monotonic_ms),
    ]


def _figures_of(partition: Partition) -> PartitionFigures:
    log, role = partition.log, partition.role
    lag = max(0, log.high_watermark - log.last_stable_offset)
    if not isinstance(role, LeaderRole):
        return PartitionFigures(partition.topic, partition.index, lag)
    standing = role.standing(log.config.min_insync_replicas)
    return PartitionFigures(
        partition.topic,
        partition.index,
        lag,
        len(role.replicas),
        len(role.isr.committed),
        standing.is_under_replicated,
        standing.is_under_min_isr,
        standing.is_at_min_isr,
    )


def _controller(metadata: MetadataPart) -> list[Family]:
    driver = metadata.driver
    gauges = controller_families(
        active_controller_count=lambda: driver.is_active,
        active_broker_count=lambda: len(driver.image.brokers.alive()),
        fenced_broker_count=lambda: sum(broker.fenced for broker in driver.image.brokers.all()),
        global_topic_count=lambda: len(driver.image.topics),
        global_partition_count=lambda: driver.image.topics.partition_count,
        offline_partitions_count=lambda: driver.leaderless_count,
        preferred_replica_imbalance_count=lambda: driver.imbalanced_count,
        last_committed_record_offset=lambda: (metadata.quorum.driver.high_watermark or 0) - 1,
    )
    return [*gauges, *driver.metrics.families()]


def _logs(data: DataPart) -> list[Family]:
    def figures() -> Iterator[LogFigures]:
        for log in data.log_dirs:
            is_tiered = log.config.remote_storage_enable and not log.config.remote_log_copy_disable
            yield LogFigures(
                log.topic,
                log.partition,
                log.size_bytes,
                len(log.segments),
                log.log_start_offset,
                log.log_end_offset,
                -1 if is_tiered else log.config.total_retention_bytes,
            )

    directories = data.log_dirs.directories
    return log_families(
        logs=figures,
        offline_log_directory_count=lambda: sum(not directory.is_online for directory in directories),
        damaged_log_count=lambda: len(data.log_dirs.losses),
    )
