"""The share coordinator of a node, from its configuration and the cluster's metadata."""

from collections.abc import Callable

from broker.config.broker_config import BrokerConfig
from broker.metadata.image.metadata_image import MetadataImage
from broker.metadata.image.topic_names import SHARE_STATE_TOPIC
from broker.runtime.coordinators.hosted_shard import WriteLimits
from broker.runtime.coordinators.partition_log import PartitionLog
from broker.runtime.coordinators.shard_loader import ShardLoader
from broker.runtime.coordinators.shard_runtime import ShardRuntime
from broker.runtime.coordinators.share_coordinator import ShareCoordinator
from broker.runtime.coordinators.snapshot_store import SnapshotStore
from broker.runtime.loop.runtime import Runtime
from broker.runtime.partitions.registry import Partitions
from broker.share_state.records import SHARE_STATE_FOLD
from broker.share_state.shard import ShareStateConfig, ShareStateShard
from protocol.primitives import Uuid
from protocol.records.compression import Codec


def build_share_coordinator(
    runtime: Runtime,
    config: BrokerConfig,
    partitions: Partitions,
    image: Callable[[], MetadataImage],
    snapshots: SnapshotStore | None,
) -> ShareCoordinator:
    """Build the share coordinator over the partitions of this node."""
    settings = ShareStateConfig(
        config.share_coordinator_snapshot_update_records_per_snapshot,
        config.share_coordinator_cold_partition_snapshot_interval_ms,
    )
    codec = Codec(config.share_coordinator_state_topic_compression_codec)

    def state_partition_count() -> int:
        topic = image().topics.by_name(SHARE_STATE_TOPIC)
        return config.share_coordinator_state_topic_num_partitions if topic is None else topic.partition_count

    def partition_count(topic_id: Uuid) -> int | None:
        topic = image().topics.by_id(topic_id)
        return None if topic is None else topic.partition_count

    def delete_records(partition: int, offset: int) -> None:
        partitions.hosted(SHARE_STATE_TOPIC, partition).record_deletion.delete_records(offset)

    shards = ShardRuntime[ShareStateShard](
        runtime,
        SHARE_STATE_TOPIC,
        lambda: ShareStateShard(settings, runtime.clock, partition_count),
        lambda partition: PartitionLog(partitions.hosted(SHARE_STATE_TOPIC, partition), runtime.io, codec, snapshots),
        WriteLimits(config.share_coordinator_append_linger_ms, config.share_coordinator_write_timeout_ms),
        ShardLoader(runtime.clock, config.share_coordinator_load_buffer_size, SHARE_STATE_FOLD),
    )
    return ShareCoordinator(
        runtime,
        shards,
        delete_records,
        state_partition_count,
        config.node_id,
        config.share_coordinator_state_topic_prune_interval_ms,
    )
