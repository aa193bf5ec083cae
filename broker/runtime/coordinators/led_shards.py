"""Changes of leadership, as the cluster's metadata has them, for the shards of one internal topic."""

from broker.metadata.image.delta import MetadataDelta
from broker.runtime.coordinators.shard_runtime import S, ShardRuntime
from broker.runtime.partitions.partition import Partition
from protocol.ids import BrokerId


def follow_leadership(shards: ShardRuntime[S], topic_name: str, broker_id: BrokerId, delta: MetadataDelta) -> None:
    """Load the partitions that this node leads now, and unload the others.

    Call after the partitions have changed their roles.
    """
    topics = delta.topics
    if topics is None:
        return
    for topic in topics.deleted.values():
        if topic.name == topic_name:
            for partition in topic.partitions:
                shards.resign(partition)
    for changed in topics.changed.values():
        if changed.name == topic_name:
            for partition, registration in changed.changed_partitions.items():
                if registration.leader == broker_id:
                    shards.elect(partition, registration.leader_epoch)
                else:
                    is_replica = broker_id in registration.replicas
                    shards.resign(partition, registration.leader_epoch if is_replica else None)


def load_hosted(shards: ShardRuntime[S], topic_name: str, partition: Partition) -> None:
    """Load a partition that has come into service after the metadata made this node its leader."""
    if partition.topic == topic_name:
        shards.log_ready(partition.index)
