"""All share partitions that this node has in service, by group, topic and partition."""

from collections.abc import Iterator
from dataclasses import replace

from broker.coordination.share_partition_key import SharePartitionKey
from broker.metrics.share import SharePartitionFigures
from broker.runtime.partitions.offset_lookup import RemoteLookups
from broker.runtime.partitions.partition import Partition
from broker.runtime.share.led_share_partition import LedSharePartition, ShareServices
from broker.share.settings import ShareGroupSettings
from protocol.errors import ErrorCode


class SharePartitions:
    """Loads share partitions at their first use, and lets go of those of groups without sessions."""

    def __init__(self, services: ShareServices) -> None:
        self.services = services
        self._groups: dict[str, dict[SharePartitionKey, LedSharePartition]] = {}

    def use_remote_offsets(self, offsets: RemoteLookups) -> None:
        """Look up where new groups start in remote storage too, from now on."""
        self.services = replace(self.services, remote_offsets=offsets)

    def settings(self, group_id: str) -> ShareGroupSettings:
        """Return the settings of a group."""
        return self.services.settings(group_id)

    def open(self, group_id: str, partition: Partition) -> LedSharePartition:
        """Return a share partition of a hosted partition, loaded or loading.

        Raise KafkaError NOT_LEADER_OR_FOLLOWER if another broker leads.
        """
        epoch = partition.leader_role.epoch
        key = SharePartitionKey(group_id, partition.topic_id, partition.index)
        found = self.find(key)
        if found is not None and (found.partition is not partition or found.leader_epoch != epoch):
            found.end(ErrorCode.NOT_LEADER_OR_FOLLOWER)
            found = None
        if found is None:
            found = LedSharePartition(key, partition, self.services, self._forget)
            self._groups.setdefault(group_id, {})[key] = found
        found.reuse()
        return found

    def find(self, key: SharePartitionKey) -> LedSharePartition | None:
        """Return a share partition in service."""
        return self._groups.get(key.group_id, {}).get(key)

    def retire(self, group_id: str) -> None:
        """Let go of the share partitions of a group that has no session here."""
        for each in list(self._groups.get(group_id, {}).values()):
            each.retire()

    def figures(self) -> Iterator[SharePartitionFigures]:
        """Return the metrics of all share partitions."""
        for group in list(self._groups.values()):
            for each in list(group.values()):
                yield each.figures

    def _forget(self, ended: LedSharePartition) -> None:
        group = self._groups.get(ended.key.group_id, {})
        if group.get(ended.key) is ended:
            del group[ended.key]
            if not group:
                del self._groups[ended.key.group_id]
