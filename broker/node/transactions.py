"""The transaction coordinator of a node, from its configuration and the cluster's metadata."""

from collections.abc import Callable

from broker.config.broker_config import BrokerConfig
from broker.coordination.partitioner import partition_for
from broker.metadata.image.features import TRANSACTION_VERSION
from broker.metadata.image.metadata_image import MetadataImage
from broker.metadata.image.topic_names import TRANSACTION_STATE_TOPIC
from broker.runtime.coordinators.hosted_shard import WriteLimits
from broker.runtime.coordinators.loopback import LoopbackPeers
from broker.runtime.coordinators.own_markers import OwnMarkers
from broker.runtime.coordinators.partition_log import PartitionLog
from broker.runtime.coordinators.shard_loader import ShardLoader
from broker.runtime.coordinators.shard_runtime import ShardRuntime
from broker.runtime.coordinators.snapshot_store import SnapshotStore
from broker.runtime.coordinators.transaction_coordinator import ProducerIdSource, TransactionCoordinator
from broker.runtime.coordinators.transaction_markers import ShardMarkers, TransactionMarkers
from broker.runtime.loop.runtime import Runtime
from broker.runtime.partitions.registry import Partitions
from broker.transactions.config import TransactionConfig
from broker.transactions.records import TRANSACTION_FOLD
from broker.transactions.shard import ClusterTransactionVersion, TransactionShard
from protocol.errors import KafkaError

NO_LINGER_MS = 0


def build_transactions(
    runtime: Runtime,
    config: BrokerConfig,
    partitions: Partitions,
    image: Callable[[], MetadataImage],
    peers: LoopbackPeers,
    producer_ids: ProducerIdSource,
    snapshots: SnapshotStore | None,
) -> TransactionCoordinator:
    """Build the transaction coordinator over the partitions of this node."""
    settings = TransactionConfig(
        config.transaction_max_timeout_ms,
        config.transactional_id_expiration_ms,
        config.transaction_abort_timed_out_transaction_cleanup_interval_ms,
        config.transaction_remove_expired_transaction_cleanup_interval_ms,
        config.transaction_two_phase_commit_enable,
    )
    markers = TransactionMarkers(
        runtime,
        peers,
        image,
        config.inter_broker_listener_name,
        lambda: config.request_timeout_ms,
        peers.is_own,
        OwnMarkers(partitions, runtime.clock),
    )

    def partition_count() -> int:
        topic = image().topics.by_name(TRANSACTION_STATE_TOPIC)
        return config.transaction_state_log_num_partitions if topic is None else topic.partition_count

    def epoch_of(transactional_id: str) -> int | None:
        try:
            index = partition_for(transactional_id, partition_count())
            return partitions.hosted(TRANSACTION_STATE_TOPIC, index).leader_role.epoch
        except KafkaError:
            return None

    def version() -> ClusterTransactionVersion:
        return ClusterTransactionVersion(image().features.levels.get(TRANSACTION_VERSION, 0))

    shards = ShardRuntime[TransactionShard](
        runtime,
        TRANSACTION_STATE_TOPIC,
        lambda: TransactionShard(settings, runtime.clock, ShardMarkers(markers, epoch_of), version),
        lambda partition: PartitionLog(
            partitions.hosted(TRANSACTION_STATE_TOPIC, partition), runtime.io, snapshots=snapshots
        ),
        WriteLimits(NO_LINGER_MS, config.request_timeout_ms),
        ShardLoader(runtime.clock, config.transaction_state_log_load_buffer_size, TRANSACTION_FOLD),
    )
    return TransactionCoordinator(runtime, shards, markers, producer_ids, partition_count, config.node_id)
