"""What becomes of leaders and in-sync sets when brokers come, go, or lose a directory; and elections on request.

Every function gives records and changes nothing. The work is that of the partitions concerned, found by the index, and
is done as the records are taken: each is decided on the image of that moment.
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
    """What holds for elections in one topic."""

    rules: ElectionRules
    min_isr: int
    election: Election


class _CommonPolicy(NamedTuple):
    """The policy of all topics without configs of their own, while an image has these parts."""

    configs: ConfigsImage
    features: FeaturesImage
    policy: _TopicPolicy


class _Replica(NamedTuple):
    """A partition that was looked up."""

    topic: TopicImage
    partition: PartitionId
    registration: PartitionRegistration


class LeaderAndIsrUpdates:
    """Partition changes as a consequence of broker events."""

    def __init__(self, state: ControllerState) -> None:
        self._state = state
        self._common: _CommonPolicy | None = None

    def broker_leaves(self, broker: int) -> Changes:
        """Take a broker out of every in-sync set it is in, and lead without it."""
        for held in self._held_by(broker):
            yield self._shrunk(held, broker) if broker in held.registration.isr else None

    def broker_lost_unflushed_data(self, broker: int) -> Changes:
        """A broker stopped uncleanly: it can neither be in sync nor eligible until it has caught up (KIP-966)."""
        for held in self._held_by(broker):
            is_concerned = broker in held.registration.isr or broker in held.registration.elr
            yield self._shrunk(held, broker, lost_data=True) if is_concerned else None

    def broker_arrives(self, broker: int) -> Changes:
        """Let a broker that is being unfenced lead what nobody leads, where it may; or others, where now they may."""
        for found in self._looked_up(self._state.index.leaderless()):
            yield self._revived(found, arriving=broker)

    def vacancies_filled(self) -> Changes:
        """Elect where nobody leads, and somebody may."""
        for found in self._looked_up(self._state.index.leaderless()):
            yield self._revived(found)

    def directories_lost(self, broker: int, lost: Iterable[Uuid]) -> Changes:
        """Directories went offline: what they hold is not in sync any more."""
        gone = set(lost)
        for held in self._held_by(broker):
            registration = held.registration
            is_concerned = broker in registration.isr and registration.directory_of(broker) in gone
            yield self._shrunk(held, broker) if is_concerned else None

    def replica_offline(
        self, partition: PartitionId, registration: PartitionRegistration, broker: int
    ) -> VersionedRecord | None:
        """One replica is in no directory that is online: it can neither lead nor be in sync."""
        topic = self._state.image.topics.by_id(partition.topic_id)
        assert topic is not None, "whose registration this is"
        return self._shrunk(_Replica(topic, partition, registration), broker)

    def elect(self, partition: PartitionId, election: Election) -> VersionedRecord | None:
        """The record of an election in one partition, None if it changes nothing."""
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
        """A change of one partition, to be given its targets.

        `leaving` may not lead although it is still active in the image, `arriving` may although still fenced there.
        """
        topic = self._state.image.topics.by_id(partition.topic_id)
        assert topic is not None, "the index follows the image"
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
        """Where a new replica goes: the broker's only directory, else it is for the broker to say."""
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

    def _revived(self, found: _Replica, *, arriving: int | None = None) -> VersionedRecord | None:
        topic, partition, registration = found
        if registration.has_leader:  # by now
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

    def _held_by(self, broker: int) -> Iterator[_Replica]:
        return self._looked_up(self._state.index.partitions_of(broker))

    def _looked_up(self, partitions: Iterable[PartitionId]) -> Iterator[_Replica]:
        """Those of the partitions that are still there when their turn comes."""
        for partition in partitions:
            topic_id, index = partition
            topic = self._state.image.topics.by_id(topic_id)
            registration = None if topic is None else topic.partitions.get(index)
            if topic is not None and registration is not None:
                yield _Replica(topic, partition, registration)

    def _look_up(self, partition: PartitionId) -> _Replica:
        found = next(self._looked_up((partition,)), None)
        assert found is not None, "the index follows the image"
        return found


def _serves(broker: BrokerRegistration, registration: PartitionRegistration) -> bool:
    """Whether the broker's replica lies in a directory that is online; a broker without a replica passes."""
    if broker.id not in registration.replicas:
        return True
    return broker.has_online_directory(registration.directory_of(broker.id))
