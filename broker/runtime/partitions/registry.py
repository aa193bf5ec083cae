"""The partitions that this broker hosts.

Request handlers look partitions up by topic name or id and call them directly. `absence_error` gives the error for a
partition that is not hosted. `replica_assignments.py` hosts and removes partitions as the metadata demands.

A failed log directory takes all its partitions offline until a restart. They are not created anew in another directory:
a replica would then have lost records that it has acknowledged.
"""

from collections.abc import Iterator, Sequence

from broker.clock import Clock
from broker.metadata.image.metadata_image import MetadataImage
from broker.metadata.image.partition import PartitionRegistration
from broker.metadata.image.topic_image import TopicImage
from broker.metrics.topics import BrokerTopicMetrics
from broker.runtime.controller.metadata_cache import MetadataCache
from broker.runtime.partitions.hosted_roles import HostedRoles
from broker.runtime.partitions.partition import HostedTopic, Partition
from broker.runtime.partitions.partition_services import BrokerView, LogOperations
from protocol.errors import ErrorCode, KafkaError
from protocol.ids import BrokerEpoch, BrokerId
from protocol.primitives import Uuid
from storage.directories.log_dir import LogDir
from storage.log import Log

PartitionKey = tuple[Uuid, int]
"""Topic id and partition index."""


class Partitions:
    """All hosted partitions, by topic. `roles` drives what follows from their roles."""

    def __init__(
        self,
        metadata: MetadataCache,
        clock: Clock,
        brokers: BrokerView,
        log_operations: LogOperations,
        roles: HostedRoles,
    ) -> None:
        self.traffic = BrokerTopicMetrics()
        self.roles = roles
        self.by_name: dict[str, HostedTopic] = {}
        self.by_id: dict[Uuid, HostedTopic] = {}
        self._metadata = metadata
        self._clock = clock
        self._brokers = brokers
        self._log_operations = log_operations
        self._offline: set[PartitionKey] = set()

    # ---- looking up

    @property
    def image(self) -> MetadataImage:
        """The latest metadata image."""
        return self._metadata.image

    def all(self) -> Iterator[Partition]:
        """Iterate over all hosted partitions, which may change between the steps of the iteration."""
        for topic in tuple(self.by_id.values()):
            yield from tuple(topic.partitions.values())

    def find(self, topic_id: Uuid, index: int) -> Partition | None:
        topic = self.by_id.get(topic_id)
        return None if topic is None else topic.partitions.get(index)

    def is_in_service(self, partition: Partition) -> bool:
        """Whether the partition is still hosted: neither deleted nor offline."""
        return self.find(partition.topic_id, partition.index) is partition

    def hosted(self, topic: str, index: int) -> Partition:
        """Return a partition by topic name. Raises KafkaError with the reason if the partition is not hosted."""
        hosted = self.by_name.get(topic)
        partition = None if hosted is None else hosted.partitions.get(index)
        if partition is None:
            raise KafkaError(self.absence_error(self.image.topics.by_name(topic), index))
        return partition

    def absence_error(self, topic: TopicImage | None, index: int) -> ErrorCode:
        """Return the error code for a partition that is not hosted here."""
        if topic is None or topic.partition(index) is None:
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        if self.is_offline(topic.id, index):
            return ErrorCode.KAFKA_STORAGE_ERROR
        return ErrorCode.NOT_LEADER_OR_FOLLOWER

    def isr_rights(self, broker_id: BrokerId, broker_epoch: BrokerEpoch) -> int:
        """Return a number, 0 or more, that changes with a broker's epoch and with whether it may join an ISR."""
        return 2 * (broker_epoch + 1) + self._brokers.is_isr_eligible(broker_id, broker_epoch)

    # ---- hosting and dropping

    def host(self, name: str, topic_id: Uuid, index: int, log: Log, registration: PartitionRegistration) -> None:
        """Put a replica into service, with the role that the metadata assigns."""
        topic = self.by_id.get(topic_id)
        if topic is None:
            topic = HostedTopic(name, topic_id, self.traffic.topic(name))
            self.by_id[topic_id] = self.by_name[name] = topic
        partition = Partition.open(
            topic, index, log, registration, self._clock, self._brokers, self._log_operations, self.roles
        )
        topic.partitions[index] = partition
        self.roles.on_hosted(partition)

    def drop(self, topic_id: Uuid, index: int, error: ErrorCode) -> Partition | None:
        """Take a replica out of service, if it is hosted; its waiters fail with `error`. Returns the partition."""
        topic = self.by_id.get(topic_id)
        partition = None if topic is None else topic.partitions.pop(index, None)
        if partition is not None:
            self.roles.on_removed(partition)
        if topic is not None and not topic.partitions:
            del self.by_id[topic_id]
            if self.by_name.get(topic.name) is topic:
                del self.by_name[topic.name]
                self.traffic.remove(topic.name)
        if partition is not None:
            partition.close(error)
        return partition

    # ---- failed log directories

    @property
    def offline_count(self) -> int:
        """The number of assigned replicas whose log directory has failed."""
        return len(self._offline)

    def is_offline(self, topic_id: Uuid, index: int) -> bool:
        return (topic_id, index) in self._offline

    def mark_offline(self, topic_id: Uuid, index: int) -> None:
        """Note that an assigned replica's log directory has failed."""
        self._offline.add((topic_id, index))

    def forget_offline(self, topic_id: Uuid, index: int) -> None:
        """Note that an offline replica is no longer assigned."""
        self._offline.discard((topic_id, index))

    def on_directory_failed(self, directory: LogDir, lost: Sequence[Log]) -> None:
        """Take the partitions of a failed directory offline. Register with `DirectoryFailures.listen`.

        The node decides elsewhere whether it can continue.
        """
        lost_ids = {id(log) for log in lost}
        for partition in list(self.all()):
            if id(partition.log) in lost_ids:
                self.mark_offline(partition.topic_id, partition.index)
                self.drop(partition.topic_id, partition.index, ErrorCode.KAFKA_STORAGE_ERROR)
