"""The data side of a node: logs on disk, partitions over them, group coordinators, and periodic log tasks."""

import random
import uuid
from collections.abc import Callable, Coroutine, Iterable
from dataclasses import dataclass
from functools import partial
from typing import Any

from broker.api.transactions.write_txn_markers import WriteTxnMarkersHandler
from broker.config.broker_config import BrokerConfig
from broker.fetch.sessions import FetchSessions
from broker.groups.config import GroupConfig
from broker.groups.replay import GROUP_FOLD
from broker.groups.shard import GroupShard
from broker.logs import EventLog
from broker.metadata.image.metadata_image import MetadataImage
from broker.net.peer import NetworkClient, PeerSettings, SocketAddress
from broker.node.consumer_groups import consumer_group_environment, serves_consumer_groups
from broker.node.coordinator_snapshots import build_coordinator_snapshots
from broker.node.metadata import MetadataPart
from broker.node.runtime import NodeRuntime
from broker.node.share import SharePart, build_shares
from broker.node.share_groups import serves_share_groups, share_group_environment
from broker.node.share_state import build_share_coordinator
from broker.node.streams_groups import serves_streams_groups, streams_group_environment
from broker.node.transactions import build_transactions
from broker.replication.fetch_plan import FetcherSettings, Sender
from broker.runtime.controller.broker_lifecycle import RegisteredBroker
from broker.runtime.controller.dynamic_config import DynamicConfig
from broker.runtime.controller.metadata_cache import MetadataCache
from broker.runtime.controller.producer_ids import ControllerBlocks, ProducerIds
from broker.runtime.coordinators.consumer_group_coordinator import ConsumerGroupCoordinator
from broker.runtime.coordinators.group_coordinator import GROUP_METADATA_TOPIC, GroupCoordinator
from broker.runtime.coordinators.hosted_shard import WriteLimits
from broker.runtime.coordinators.loopback import LoopbackPeers
from broker.runtime.coordinators.offset_transactions import OffsetTransactions
from broker.runtime.coordinators.own_verification import OwnVerification
from broker.runtime.coordinators.partition_log import PartitionLog
from broker.runtime.coordinators.shard_loader import ShardLoader
from broker.runtime.coordinators.shard_runtime import ShardRuntime
from broker.runtime.coordinators.share_coordinator import ShareCoordinator
from broker.runtime.coordinators.share_group_coordinator import ShareGroupCoordinator
from broker.runtime.coordinators.share_state_client import ShareStateClient
from broker.runtime.coordinators.snapshot_maker import SnapshotMaker
from broker.runtime.coordinators.snapshot_store import SnapshotStore
from broker.runtime.coordinators.streams_group_coordinator import StreamsGroupCoordinator
from broker.runtime.coordinators.transaction_coordinator import TransactionCoordinator
from broker.runtime.coordinators.transaction_verifier import TransactionVerifier, VerifierSettings
from broker.runtime.loop.io_thread import BlockingIo
from broker.runtime.loop.runtime import Runtime
from broker.runtime.partitions.alter_partition_manager import AlterPartitionManager
from broker.runtime.partitions.broker_view import MetadataBrokerView
from broker.runtime.partitions.duplicate_logs import current_log
from broker.runtime.partitions.hosted_roles import HostedRoles
from broker.runtime.partitions.isr_shrinking import IsrShrinking
from broker.runtime.partitions.log_flusher import LogFlusher
from broker.runtime.partitions.log_operations import StoredLogOperations
from broker.runtime.partitions.log_store import DirectoryFailures, LogStore
from broker.runtime.partitions.log_tasks import LogTasks, LogTaskSettings
from broker.runtime.partitions.registry import Partitions
from broker.runtime.partitions.replica_assignments import ReplicaAssignments
from broker.runtime.replication.fetch_transport import NetworkFetchTransport
from broker.runtime.replication.replica_fetcher_manager import ReplicaFetcherManager
from broker.runtime.replication.throttles import ReplicationThrottles
from protocol.messages import Message
from protocol.messages.write_txn_markers import WriteTxnMarkersRequest
from protocol.records.compression import Codec
from storage.compaction.cleaner import LogCleaner
from storage.config import LogConfig
from storage.directories.checkpoints import TopicPartition
from storage.directories.log_dirs import LogDirs
from storage.directories.removals import PendingRemovals
from storage.recovery import LostRecords

LATE_TRANSACTION_BUFFER_MS = 5 * 60_000
"""Time that the coordinator has to end a transaction after its timeout, as in Kafka."""

_log = EventLog("broker.storage")


@dataclass(frozen=True, slots=True)
class DataPart:
    """The components of the data side, built and not started.

    The caller runs `tasks.run`, `groups.run`, `transactions.run`, `share_states.run` and `snapshot_maker.run`, and adds
    `throttles`, `fetchers`, `replica_assignments`, `groups`, `share_groups`, `transactions` and `share_states` as
    publishers, in this order.
    """

    log_dirs: LogDirs
    store: LogStore
    throttles: ReplicationThrottles
    fetchers: ReplicaFetcherManager
    partitions: Partitions
    replica_assignments: ReplicaAssignments
    tasks: LogTasks
    groups: GroupCoordinator
    share_groups: ShareGroupCoordinator
    producer_ids: ProducerIds
    transactions: TransactionCoordinator
    share_states: ShareCoordinator
    snapshot_maker: SnapshotMaker | None
    shares: SharePart
    markers: LoopbackPeers
    verifier: TransactionVerifier
    verifier_connections: NetworkClient
    alter_partition_manager: AlterPartitionManager
    isr_shrinking: IsrShrinking
    fetch_sessions: FetchSessions

    def close_replication(self) -> None:
        """Stop fetching, changing in-sync replicas, asking coordinators, and sending markers."""
        self.markers.close()
        self.shares.connections.close()
        self.share_groups.close()
        self.verifier_connections.close()
        self.fetchers.close()
        self.isr_shrinking.close()
        self.alter_partition_manager.close()


def load_logs(log_dirs: LogDirs, config: DynamicConfig, image: MetadataImage, now_ms: int) -> None:
    """Open and recover every log, and report lost records. Blocks."""
    log_dirs.load(
        lambda topic: config.log_config(image, topic),
        now_ms=now_ms,
        threads_per_directory=config.current.num_recovery_threads_per_data_dir,
    )
    report_losses(log_dirs.losses)


def report_losses(losses: Iterable[tuple[TopicPartition, LostRecords]]) -> None:
    """Log the records that were flushed and are lost."""
    for partition, lost in losses:
        _log.error(
            "The log has lost records that were flushed, and ends before them: the replica fetches them from the "
            "leader; if no other replica has them, restore the file from a backup",
            partition=f"{partition.topic}-{partition.partition}",
            offset=lost.first_offset,
            last_offset=lost.end_offset - 1,
            file=lost.path,
            position=lost.position,
        )


def settle_duplicates(
    store: LogStore, log_dirs: LogDirs, config_of: Callable[[str], LogConfig], image: MetadataImage, broker_id: int
) -> None:
    """Choose one log of each partition that several directories hold, open it, and set the others aside. Blocks.

    Call with an image that holds this node's current registration, and before `set_aside_strays`. Raise DuplicateLog
    without any change.
    """
    chosen = {
        partition: current_log(found, image.topics.by_name(partition.topic), broker_id)
        for partition, found in log_dirs.contested.items()
    }
    reported = len(log_dirs.losses)
    for partition, log in chosen.items():
        store.choose_log(partition, log, config_of(partition.topic))
    report_losses(log_dirs.losses[reported:])


def set_aside_strays(store: LogStore, log_dirs: LogDirs, image: MetadataImage, broker_id: int) -> None:
    """Take logs out of service that the metadata does not assign to this node.

    Call with an image that holds this node's current registration: an earlier image may lack a log's topic. A log of a
    deleted topic whose name was reused stays; `Partitions` replaces it.
    """
    for log in log_dirs:
        topic = image.topics.by_name(log.topic)
        registration = None if topic is None else topic.partition(log.partition)
        if registration is None or broker_id not in registration.replicas:
            store.set_aside(log)


def build_data(
    runtime: NodeRuntime,
    log_dirs: LogDirs,
    failures: DirectoryFailures,
    metadata: MetadataPart,
    broker: RegisteredBroker,
    snapshot_io: BlockingIo,
) -> DataPart:
    """Build the data side of the node over open logs. Reads the cleaner's checkpoints, which blocks for a moment.

    `snapshot_io` writes snapshots of coordinators, so that no log waits for them.
    """
    config, cache, loop, deadlines = metadata.config, metadata.cache, runtime.loop, runtime.deadlines
    static = config.current
    removals = PendingRemovals(runtime.files)
    cleaner = _build_cleaner(runtime, static, log_dirs)
    store = LogStore(
        log_dirs, cleaner, removals, runtime.io, runtime.clock, delete_delay_ms=static.log_segment_delete_delay_ms
    )
    store.discard_leftovers()
    flusher = LogFlusher(runtime.io, deadlines)
    throttles = _build_throttles(static)
    fetchers = _build_fetchers(runtime, config, cache, throttles, broker)
    alter_partition_manager = AlterPartitionManager(static.node_id, metadata.forwarding_channel, broker, loop)
    brokers = MetadataBrokerView(static.node_id, cache, lag_time_max_ms=static.replica_lag_time_max_ms)
    roles = HostedRoles(static.node_id, fetchers, alter_partition_manager, cache)
    partitions = Partitions(cache, runtime.clock, brokers, StoredLogOperations(store, flusher, loop), roles)
    isr_shrinking = IsrShrinking(roles.isr_updaters, loop, deadlines, lag_time_max_ms=static.replica_lag_time_max_ms)
    isr_shrinking.start()
    failures.listen(partitions.on_directory_failed)
    settings = partial(_current_task_settings, config)
    tasks = LogTasks(partitions, log_dirs, cleaner, removals, flusher, runtime.io, runtime.clock, settings)
    verifier_connections, share_connections = _connections(runtime, static), _connections(runtime, static)
    verifier = _build_verifier(runtime, config, cache, verifier_connections)
    snapshots = build_coordinator_snapshots(runtime, snapshot_io, static, partitions)
    groups, share_groups = _build_groups(runtime, metadata, partitions, verifier, snapshots.store)
    producer_ids = ProducerIds(ControllerBlocks(metadata.forwarding_channel, broker, static.node_id))
    markers = _build_marker_peers(runtime, metadata, partitions, groups)
    transactions = build_transactions(
        runtime, static, partitions, lambda: cache.image, markers, producer_ids, snapshots.store
    )
    verifier.own = OwnVerification(transactions, lambda: cache.image)
    share_states = build_share_coordinator(runtime, static, partitions, lambda: cache.image, snapshots.store)
    for coordinator in (groups, transactions, share_states):
        roles.add_listener(coordinator)
    return DataPart(
        log_dirs,
        store,
        throttles,
        fetchers,
        partitions,
        ReplicaAssignments(static.node_id, partitions, store, config.log_config),
        tasks,
        groups,
        share_groups,
        producer_ids,
        transactions,
        share_states,
        snapshots.maker,
        build_shares(runtime, static, lambda: cache.image, share_connections),
        markers,
        verifier,
        verifier_connections,
        alter_partition_manager,
        isr_shrinking,
        FetchSessions(static.max_incremental_fetch_session_cache_slots, _pick_session_id),
    )


def _build_cleaner(runtime: NodeRuntime, config: BrokerConfig, log_dirs: LogDirs) -> LogCleaner:
    cleaner = LogCleaner(
        runtime.files,
        dedupe_buffer_bytes=config.log_cleaner_dedupe_buffer_size,
        make_durable=log_dirs.checkpoints.make_durable,
        load_factor=config.log_cleaner_io_buffer_load_factor,
    )
    cleaner.load_checkpoints(directory.path for directory in log_dirs.online)
    return cleaner


def _connections(runtime: NodeRuntime, config: BrokerConfig) -> NetworkClient:
    """Return connections to other brokers for one kind of request."""
    return NetworkClient(
        runtime.loop,
        runtime.connect_to(config.inter_broker_listener_name),
        client_id=str(config.node_id),
        settings=PeerSettings(frame_bytes_max=config.socket_request_max_bytes),
    )


def _build_throttles(config: BrokerConfig) -> ReplicationThrottles:
    return ReplicationThrottles(
        config.node_id,
        window_count=config.replication_quota_window_num,
        window_ms=config.replication_quota_window_size_seconds * 1000,
    )


def _build_fetchers(
    runtime: NodeRuntime,
    dynamic: DynamicConfig,
    metadata: MetadataCache,
    throttles: ReplicationThrottles,
    broker: RegisteredBroker,
) -> ReplicaFetcherManager:
    config = dynamic.current
    transport = NetworkFetchTransport(
        runtime.loop,
        runtime.connect_to(config.inter_broker_listener_name),
        timeout_ms=config.replica_socket_timeout_ms,
        response_max_bytes=config.replica_fetch_response_max_bytes,
    )
    return ReplicaFetcherManager(
        runtime,
        transport,
        metadata,
        lambda: Sender(config.node_id, broker.epoch),
        listener=config.inter_broker_listener_name,
        settings=FetcherSettings(
            wait_max_ms=config.replica_fetch_wait_max_ms,
            min_bytes=config.replica_fetch_min_bytes,
            partition_max_bytes=config.replica_fetch_max_bytes,
            response_max_bytes=config.replica_fetch_response_max_bytes,
            backoff_ms=config.replica_fetch_backoff_ms,
        ),
        fetcher_count=lambda: dynamic.current.num_replica_fetchers,
        quota=throttles.follower,
    )


def _build_groups(
    runtime: NodeRuntime,
    part: MetadataPart,
    partitions: Partitions,
    verifier: TransactionVerifier,
    snapshots: SnapshotStore | None,
) -> tuple[GroupCoordinator, ShareGroupCoordinator]:
    config, metadata = part.config.current, part.cache
    group_config = _group_config(config)
    environment = consumer_group_environment(config, lambda: metadata.image)
    streams = streams_group_environment(config, lambda: metadata.image)
    share = share_group_environment(config, lambda: metadata.image)
    partition_count = _partition_count(config, metadata)
    codec = Codec(config.offsets_topic_compression_codec)
    shards = ShardRuntime[GroupShard](
        runtime,
        GROUP_METADATA_TOPIC,
        lambda: GroupShard(group_config, runtime.clock, lambda: str(uuid.uuid4()), environment, streams, share),
        lambda partition: PartitionLog(
            partitions.hosted(GROUP_METADATA_TOPIC, partition), runtime.io, codec, snapshots
        ),
        WriteLimits(group_config.group_coordinator_append_linger_ms, group_config.offsets_commit_timeout_ms),
        ShardLoader(runtime.clock, config.offsets_load_buffer_size, GROUP_FOLD),
    )
    consumer_groups = ConsumerGroupCoordinator(
        runtime,
        shards,
        partition_count,
        lambda: metadata.image,
        lambda: serves_consumer_groups(config, metadata.image),
    )
    share_groups = ShareGroupCoordinator(
        runtime,
        shards,
        partition_count,
        lambda: metadata.image,
        lambda: serves_share_groups(config, metadata.image),
        _build_share_states(runtime, part),
    )
    groups = GroupCoordinator(
        shards,
        group_config,
        partition_count,
        config.node_id,
        runtime.loop,
        OffsetTransactions(GROUP_METADATA_TOPIC, partitions, verifier, runtime.clock),
        consumer_groups,
        StreamsGroupCoordinator(shards, partition_count, lambda: serves_streams_groups(config, metadata.image)),
    )
    return groups, share_groups


def _build_marker_peers(
    runtime: NodeRuntime, part: MetadataPart, partitions: Partitions, groups: GroupCoordinator
) -> LoopbackPeers:
    """Return the connections for transaction markers, which this node's own partitions get without one."""
    config = part.config.current
    handler = WriteTxnMarkersHandler(partitions, groups, runtime, lambda: part.config.current.request_timeout_ms)

    def is_own(address: SocketAddress) -> bool:
        broker = part.cache.image.brokers.get(config.node_id)
        endpoint = None if broker is None else broker.endpoints.get(config.inter_broker_listener_name)
        return endpoint is not None and (endpoint.host, endpoint.port) == (address.host, address.port)

    def write(request: Message) -> Message | Coroutine[Any, Any, Message]:
        assert isinstance(request, WriteTxnMarkersRequest)
        return handler.write_own(request)

    return LoopbackPeers(runtime.loop, _connections(runtime, config), is_own, write)


def _build_share_states(runtime: NodeRuntime, part: MetadataPart) -> ShareStateClient:
    config = part.config.current
    return ShareStateClient(
        runtime,
        _connections(runtime, config),
        lambda: part.cache.image,
        config.inter_broker_listener_name,
        lambda: part.config.current.request_timeout_ms,
        part.topics.ensure_internal_topic,
    )


def late_transaction_limit_ms(config: DynamicConfig) -> int:
    """Return how long a transaction may be open at most before an operator must look at it."""
    return config.current.transaction_max_timeout_ms + LATE_TRANSACTION_BUFFER_MS


def _build_verifier(
    runtime: Runtime, dynamic: DynamicConfig, metadata: MetadataCache, connections: NetworkClient
) -> TransactionVerifier:
    def settings() -> VerifierSettings:
        config = dynamic.current
        return VerifierSettings(
            config.request_timeout_ms,
            config.add_partitions_to_txn_retry_backoff_ms,
            config.add_partitions_to_txn_retry_backoff_max_ms,
        )

    listener = dynamic.current.inter_broker_listener_name
    return TransactionVerifier(
        runtime, connections, lambda: metadata.image, listener, settings, dynamic.current.node_id
    )


def _partition_count(config: BrokerConfig, metadata: MetadataCache) -> Callable[[], int]:
    def count() -> int:
        topic = metadata.image.topics.by_name(GROUP_METADATA_TOPIC)
        return config.offsets_topic_num_partitions if topic is None else topic.partition_count

    return count


def _group_config(config: BrokerConfig) -> GroupConfig:
    return GroupConfig(
        group_min_session_timeout_ms=config.group_min_session_timeout_ms,
        group_max_session_timeout_ms=config.group_max_session_timeout_ms,
        group_initial_rebalance_delay_ms=config.group_initial_rebalance_delay_ms,
        group_max_size=config.group_max_size,
        offset_metadata_max_bytes=config.offset_metadata_max_bytes,
        offsets_retention_ms=config.offsets_retention_minutes * 60_000,
        offsets_retention_check_interval_ms=config.offsets_retention_check_interval_ms,
        offsets_commit_timeout_ms=config.offsets_commit_timeout_ms,
        group_coordinator_append_linger_ms=config.group_coordinator_append_linger_ms,
    )


def _current_task_settings(dynamic: DynamicConfig) -> LogTaskSettings:
    config = dynamic.current
    return LogTaskSettings(
        initial_delay_ms=config.log_initial_task_delay_ms,
        high_watermark_checkpoint_ms=config.replica_high_watermark_checkpoint_interval_ms,
        recovery_point_checkpoint_ms=config.log_flush_offset_checkpoint_interval_ms,
        log_start_checkpoint_ms=config.log_flush_start_offset_checkpoint_interval_ms,
        retention_check_ms=config.log_retention_check_interval_ms,
        cleaner_enable=config.log_cleaner_enable,
        cleaner_backoff_ms=config.log_cleaner_backoff_ms,
        cleaner_bytes_per_second=config.log_cleaner_io_max_bytes_per_second,
        producer_expiration_check_ms=config.producer_id_expiration_check_interval_ms,
        producer_expiration_ms=config.producer_id_expiration_ms,
    )


def _pick_session_id() -> int:
    return random.randrange(1, 2**31)
