"""Changes of leaders and in-sync sets after broker and directory events, and elections on request.

Every function returns records and changes no state. The partition index finds the affected partitions. Each change is
decided when it is taken from the iterator, on the image of that moment.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

from broker.metadata.controller.partition_changes import Election, ElectionRules, PartitionChange
from broker.metadata.controller.split_changes import Changes
from broker.metadata.controller.state import ControllerState
from broker.metadata.image.cluster_image import BrokerRegistration
from broker.metadata.image.config_image import ConfigsImage
from broker.metadata.image.features import FeaturesImage
from broker.metadata.image.partition import MIGRATING_DIRECTORY, UNASSIGNED_DIRECTORY, PartitionRegistration
from broker.metadata.image.partition_index import PartitionId
from broker.metadata.image.records import VersionedRecord
from broker.metadata.image.topic_image import TopicImage
from protocol.primitives import Uuid


class _TopicPolicy(NamedTuple):
    """The election settings of one topic."""

    rules: ElectionRules
    min_isr: int
    election: Election


class _CommonPolicy(NamedTuple):
    """The policy of all topics without configs of their own, valid for these parts of the image."""

    configs: ConfigsImage
    features: FeaturesImage
    policy: _TopicPolicy


class _Replica(NamedTuple):
    """A partition with its topic and registration."""

    topic: TopicImage
    partition: PartitionId
    registration: PartitionRegistration


class LeaderAndIsrUpdates:
    """Partition changes as consequences of broker events."""

    def __init__(self, state: ControllerState) -> None:
        self._state = state
        self._common: _CommonPolicy | None = None

    def broker_removed(self, broker: int) -> Changes:
        """Remove a broker from every in-sync set and from leadership."""
        for held in self._replicas_of(broker):
            yield self._shrunk(held, broker) if broker in held.registration.isr else None

    def broker_lost_unflushed_data(self, broker: int) -> Changes:
        """Remove a broker from in-sync sets and ELRs after an unclean shutdown, until it has caught up (KIP-966)."""
        for held in self._replicas_of(broker):
            is_concerned = broker in held.registration.isr or broker in held.registration.elr
            yield self._shrunk(held, broker, lost_data=True) if is_concerned else None

    def broker_unfenced(self, broker: int) -> Changes:
        """Elect leaders of leaderless partitions while a broker is being unfenced; other brokers may be elected too."""
        for found in self._existing(self._state.index.leaderless()):
            yield self._elected(found, arriving=broker)

    def elect_where_leaderless(self) -> Changes:
        """Elect leaders of leaderless partitions where a replica is eligible."""
        for found in self._existing(self._state.index.leaderless()):
            yield self._elected(found)

    def directories_lost(self, broker: int, lost: Iterable[Uuid]) -> Changes:
        """Remove a broker from the in-sync sets of its partitions in failed directories."""
        gone = set(lost)
        for held in self._replicas_of(broker):
            registration = held.registration
            is_concerned = broker in registration.isr and registration.directory_of(broker) in gone
            yield self._shrunk(held, broker) if is_concerned else None

    def replica_offline(
        self, partition: PartitionId, registration: PartitionRegistration, broker: int
    ) -> VersionedRecord | None:
        """Remove a replica without an online directory from leadership and the in-sync set."""
        topic = self._state.image.topics.by_id(partition.topic_id)
        assert topic is not None, "the registration belongs to a topic of the image"
        return self._shrunk(_Replica(topic, partition, registration), broker)

    def elect(self, partition: PartitionId, election: Election) -> VersionedRecord | None:
        """Return the record of an election in one partition, None without a change."""
        change = self.change(partition, self._look_up(partition).registration)
        change.election = election
        return change.build()

    def change(
        self,
        partition: PartitionId,
        registration: PartitionRegistration,
        *,
        leaving: int | None = None,
        arriving: int | None = None,
    ) -> PartitionChange:
        """Return a change of one partition, for the caller to set its targets.

        `leaving` may not lead although active in the image; `arriving` may lead although fenced in the image.
        """
        topic = self._state.image.topics.by_id(partition.topic_id)
        assert topic is not None, "the index and the image agree"
        return self._change(partition, registration, self._policy(topic), leaving, arriving)

    def _change(
        self,
        partition: PartitionId,
        registration: PartitionRegistration,
        policy: _TopicPolicy,
        leaving: int | None,
        arriving: int | None,
    ) -> PartitionChange:
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
        """Return the directory of a new replica: the broker's only one, else unassigned for the broker to choose."""
        broker = self._state.image.brokers.get(broker_id)
        if broker is None or len(broker.directories) > 1:
            return UNASSIGNED_DIRECTORY
        return broker.directories[0] if broker.directories else MIGRATING_DIRECTORY

    def _shrunk(self, held: _Replica, broker: int, *, lost_data: bool = False) -> VersionedRecord | None:
        topic, partition, registration = held
        policy = self._policy(topic)
        change = self._change(partition, registration, policy, broker, None)
        change.isr = tuple([member for member in registration.isr if member != broker])
        change.election = policy.election
        if lost_data:
            change.unclean_shutdown_replicas = (broker,)
        return change.build()

    def _acceptance(
        self, registration: PartitionRegistration, leaving: int | None, arriving: int | None
    ) -> Callable[[int], bool]:
        brokers, all_leaving = self._state.image.brokers, self._state.leaving

        def is_acceptable(broker_id: int) -> bool:
            broker = brokers.get(broker_id)
            if broker is None or broker_id == leaving or broker_id in all_leaving:
                return False
            return (broker.is_active or broker_id == arriving) and _serves(broker, registration)

        return is_acceptable

    def _elected(self, found: _Replica, *, arriving: int | None = None) -> VersionedRecord | None:
        topic, partition, registration = found
        if registration.has_leader:  # elected meanwhile
            return None
        policy = self._policy(topic)
        change = self._change(partition, registration, policy, None, arriving)
        change.election = policy.election
        return change.build()

    def _policy(self, topic: TopicImage) -> _TopicPolicy:
        image, common = self._state.image, self._common
        if image.configs.topic(topic.name):
            return self._policy_of(topic.name)
        if common is None or common.configs is not image.configs or common.features is not image.features:
            common = self._common = _CommonPolicy(image.configs, image.features, self._policy_of(topic.name))
        return common.policy

    def _policy_of(self, topic: str) -> _TopicPolicy:
        election = Election.UNCLEAN if self._state.allows_unclean_election(topic) else Election.ONLINE
        return _TopicPolicy(self._state.rules, self._state.min_insync_replicas(topic), election)

    def _replicas_of(self, broker: int) -> Iterator[_Replica]:
        return self._existing(self._state.index.partitions_of(broker))

    def _existing(self, partitions: Iterable[PartitionId]) -> Iterator[_Replica]:
        """Look up partitions when they are taken; skip those that are deleted by then."""
        for partition in partitions:
            topic_id, index = partition
            topic = self._state.image.topics.by_id(topic_id)
            registration = None if topic is None else topic.partitions.get(index)
            if topic is not None and registration is not None:
                yield _Replica(topic, partition, registration)

    def _look_up(self, partition: PartitionId) -> _Replica:
        found = next(self._existing((partition,)), None)
        assert found is not None, "the index and the image agree"
        return found


def _serves(broker: BrokerRegistration, registration: PartitionRegistration) -> bool:
    """Whether the broker's replica is in an online directory; true for a broker without a replica."""
    if broker.id not in registration.replicas:
        return True
    return broker.has_online_directory(registration.directory_of(broker.id))
