"""What becomes of leaders and in-sync sets when brokers come, go, or lose a directory; and elections on request.

Every function gives records and changes nothing. The work is that of the partitions concerned, found by the index.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

from broker.metadata.cluster_image import BrokerRegistration
from broker.metadata.image import MetadataImage
from broker.metadata.partition import LOST_DIRECTORY, MIGRATING_DIRECTORY, UNASSIGNED_DIRECTORY, PartitionRegistration
from broker.metadata.partition_changes import Election, ElectionRules, PartitionChange
from broker.metadata.partition_index import TopicPartition
from broker.metadata.records import VersionedRecord
from broker.metadata.state import ControllerState
from protocol.primitives import Uuid


class _TopicPolicy(NamedTuple):
    """What an image says about elections in one topic."""

    image: MetadataImage
    topic_id: Uuid
    rules: ElectionRules
    min_isr: int
    election: Election


class Leadership:
    """Partition changes as a consequence of broker events."""

    def __init__(self, state: ControllerState) -> None:
        self._state = state
        self._latest: _TopicPolicy | None = None  # a broker's partitions come topic by topic

    def broker_leaves(self, broker: int) -> list[VersionedRecord]:
        """Take a broker out of every in-sync set it is in, and lead without it."""
        return self._collect(
            self._shrunk(partition, registration, broker)
            for partition, registration in self._held_by(broker)
            if broker in registration.isr
        )

    def broker_lost_unflushed_data(self, broker: int) -> list[VersionedRecord]:
        """A broker stopped uncleanly: it can neither be in sync nor eligible until it has caught up (KIP-966)."""
        return self._collect(
            self._shrunk(partition, registration, broker, lost_data=True)
            for partition, registration in self._held_by(broker)
            if broker in registration.isr or broker in registration.elr
        )

    def broker_arrives(self, broker: int) -> list[VersionedRecord]:
        """Let a broker that is being unfenced lead what nobody leads, where it may."""
        records = []
        for partition in self._state.index.leaderless():
            registration = self._registration(partition)
            if broker not in registration.replicas:
                continue
            change = self.change(partition, registration, arriving=broker)
            change.election = self._policy(partition.topic_id).election
            records.append(change.build())
        return [record for record in records if record is not None]

    def directories_lost(self, broker: int, lost: Iterable[Uuid]) -> list[VersionedRecord]:
        """Directories went offline: what they hold is not in sync any more."""
        gone = set(lost)
        return self._collect(
            self._shrunk(partition, registration, broker)
            for partition, registration in self._held_by(broker)
            if broker in registration.isr and registration.directory_of(broker) in gone
        )

    def elect(self, partition: TopicPartition, election: Election) -> VersionedRecord | None:
        """The record of an election in one partition, None if it changes nothing."""
        change = self.change(partition, self._registration(partition))
        change.election = election
        return change.build()

    def change(
        self,
        partition: TopicPartition,
        registration: PartitionRegistration,
        *,
        leaving: int | None = None,
        arriving: int | None = None,
    ) -> PartitionChange:
        """A change of one partition, to be given its targets.

        `leaving` may not lead although it is still active in the image, `arriving` may although still fenced there.
        """
        policy = self._policy(partition.topic_id)
        return PartitionChange(
            registration,
            topic_id=partition.topic_id,
            partition=partition.partition,
            rules=policy.rules,
            min_isr=policy.min_isr,
            is_acceptable=self._acceptance(registration, leaving, arriving),
            directory_for=self.default_directory,
        )

    def default_directory(self, broker_id: int) -> Uuid:
        """Where a new replica goes: the broker's only directory, else it is for the broker to say."""
        broker = self._state.image.brokers.get(broker_id)
        if broker is None or len(broker.directories) > 1:
            return UNASSIGNED_DIRECTORY
        return broker.directories[0] if broker.directories else MIGRATING_DIRECTORY

    def _shrunk(
        self, partition: TopicPartition, registration: PartitionRegistration, broker: int, *, lost_data: bool = False
    ) -> VersionedRecord | None:
        change = self.change(partition, registration, leaving=broker)
        change.isr = tuple(member for member in registration.isr if member != broker)
        change.election = self._policy(partition.topic_id).election
        if lost_data:
            change.unclean_shutdown_replicas = (broker,)
        return change.build()

    def _acceptance(
        self, registration: PartitionRegistration, leaving: int | None, arriving: int | None
    ) -> Callable[[int], bool]:
        brokers = self._state.image.brokers

        def is_acceptable(broker_id: int) -> bool:
            broker = brokers.get(broker_id)
            if broker is None or broker_id == leaving or not (broker_id == arriving or broker.is_active):
                return False
            return _serves(broker, registration)

        return is_acceptable

    def _policy(self, topic_id: Uuid) -> _TopicPolicy:
        image, latest = self._state.image, self._latest
        if latest is not None and latest.image is image and latest.topic_id == topic_id:
            return latest
        topic = image.topics.by_id(topic_id)
        assert topic is not None, "the index follows the image"
        election = Election.UNCLEAN if self._state.allows_unclean_election(topic.name) else Election.ONLINE
        min_isr = self._state.min_insync_replicas(topic.name)
        self._latest = _TopicPolicy(image, topic_id, self._state.rules, min_isr, election)
        return self._latest

    def _held_by(self, broker: int) -> Iterator[tuple[TopicPartition, PartitionRegistration]]:
        for partition in self._state.index.partitions_of(broker):
            yield partition, self._registration(partition)

    def _registration(self, partition: TopicPartition) -> PartitionRegistration:
        registration = self._state.image.topics.partition(*partition)
        assert registration is not None, "the index follows the image"
        return registration

    @staticmethod
    def _collect(records: Iterable[VersionedRecord | None]) -> list[VersionedRecord]:
        return [record for record in records if record is not None]


def _serves(broker: BrokerRegistration, registration: PartitionRegistration) -> bool:
    """Whether the broker's replica lies in a directory that is online; a broker without a replica passes."""
    if broker.id not in registration.replicas:
        return True
    directory = registration.directory_of(broker.id)
    return directory != LOST_DIRECTORY and broker.has_online_directory(directory)
