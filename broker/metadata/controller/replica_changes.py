"""Replica changes that brokers request: in-sync sets by leaders (KIP-497), log directories by hosts (KIP-858).

Both need a registered broker with its current epoch. Errors are reported per partition.
"""

from collections.abc import Iterable
from typing import Final, NamedTuple

from broker.metadata.controller.brokers import Brokers
from broker.metadata.controller.leader_and_isr_updates import LeaderAndIsrUpdates
from broker.metadata.controller.partition_changes import Election, PartitionChange
from broker.metadata.controller.result import ControllerResult
from broker.metadata.controller.state import ControllerState
from broker.metadata.image.partition import LeaderRecoveryState, PartitionRegistration
from broker.metadata.image.partition_index import PartitionId
from broker.metadata.image.records import VersionedRecord
from protocol.errors import ErrorCode, KafkaError
from protocol.ids import BrokerEpoch, BrokerId
from protocol.messages import alter_partition
from protocol.messages.alter_partition import AlterPartitionRequest, AlterPartitionResponse
from protocol.messages.assign_replicas_to_dirs import (
    AssignReplicasToDirsRequest,
    AssignReplicasToDirsResponse,
    AssignReplicasToDirsResponseDirectoryData,
    AssignReplicasToDirsResponsePartitionData,
    AssignReplicasToDirsResponseTopicData,
)
from protocol.messages.metadata_records import PartitionChangeRecord
from protocol.primitives import Uuid

# In a request: the member's epoch is unknown to the sender.
ANY_EPOCH: Final = BrokerEpoch(-1)


class _Member(NamedTuple):
    """A proposed in-sync replica."""

    broker: BrokerId
    epoch: BrokerEpoch


class ReplicaChanges:
    """The commands AlterPartition and AssignReplicasToDirs."""

    def __init__(self, state: ControllerState, brokers: Brokers, leader_and_isr: LeaderAndIsrUpdates) -> None:
        self._state = state
        self._brokers = brokers
        self._leader_and_isr = leader_and_isr

    # AlterPartition

    def alter(self, request: AlterPartitionRequest) -> ControllerResult[AlterPartitionResponse]:
        """Apply new in-sync sets (versions 2 and 3). Raises KafkaError STALE_BROKER_EPOCH."""
        self._brokers.check_epoch(BrokerId(request.broker_id), BrokerEpoch(request.broker_epoch))
        records: list[VersionedRecord] = []
        response = AlterPartitionResponse()
        for topic in request.topics:
            answer = alter_partition.AlterPartitionResponseTopicData(topic_id=topic.topic_id)
            for requested in topic.partitions:
                try:
                    answer.partitions.append(self._alter(request.broker_id, topic.topic_id, requested, records))
                except KafkaError as error:
                    answer.partitions.append(
                        alter_partition.AlterPartitionResponsePartitionData(requested.partition_index, error.code)
                    )
            response.topics.append(answer)
        return ControllerResult(records, response)

    def _alter(
        self,
        sender: int,
        topic_id: Uuid,
        requested: alter_partition.AlterPartitionRequestPartitionData,
        records: list[VersionedRecord],
    ) -> alter_partition.AlterPartitionResponsePartitionData:
        partition = PartitionId(topic_id, requested.partition_index)
        before = self._registration(partition)
        members = _members(requested)
        _check_epochs(before, sender, requested)
        _check_isr(before, sender, requested, members)
        self._check_eligible(members)
        change = self._leader_and_isr.change(partition, before)
        change.isr = _in_replica_order(before, members)
        change.recovery_state = LeaderRecoveryState(requested.leader_recovery_state)
        if self._allows_unclean(topic_id):
            change.election = Election.UNCLEAN
        after = self._built(change, before, records)
        if after.leader != sender:  # completing a reassignment changed the leader
            raise KafkaError(ErrorCode.NEW_LEADER_ELECTED)
        return alter_partition.AlterPartitionResponsePartitionData(
            partition_index=requested.partition_index,
            leader_id=after.leader,
            leader_epoch=after.leader_epoch,
            isr=list(after.isr),
            leader_recovery_state=after.leader_recovery_state,
            partition_epoch=after.partition_epoch,
        )

    def _check_eligible(self, members: Iterable[_Member]) -> None:
        """Refuse members that are not active in the incarnation that the leader saw (KIP-841, KIP-903)."""
        for broker_id, epoch in members:
            broker = self._state.image.brokers.get(broker_id)
            if broker is None or not self._state.is_active(broker_id) or epoch not in (ANY_EPOCH, broker.epoch):
                raise KafkaError(ErrorCode.INELIGIBLE_REPLICA, f"broker {broker_id} cannot join the in-sync set")

    # AssignReplicasToDirs

    def assign_directories(
        self, request: AssignReplicasToDirsRequest
    ) -> ControllerResult[AssignReplicasToDirsResponse]:
        """Record the directories of a broker's replicas.

        Raises KafkaError STALE_BROKER_EPOCH, UNSUPPORTED_VERSION at a metadata.version without directories.
        """
        if not self._state.version.supports_directories:
            raise KafkaError(ErrorCode.UNSUPPORTED_VERSION)
        self._brokers.check_epoch(BrokerId(request.broker_id), BrokerEpoch(request.broker_epoch))
        records: list[VersionedRecord] = []
        response = AssignReplicasToDirsResponse()
        for directory in request.directories:
            topics = [
                AssignReplicasToDirsResponseTopicData(
                    topic.topic_id,
                    [
                        AssignReplicasToDirsResponsePartitionData(
                            each.partition_index,
                            self._assign(
                                request.broker_id,
                                directory.id,
                                PartitionId(topic.topic_id, each.partition_index),
                                records,
                            ),
                        )
                        for each in topic.partitions
                    ],
                )
                for topic in directory.topics
            ]
            response.directories.append(AssignReplicasToDirsResponseDirectoryData(directory.id, topics))
        return ControllerResult(records, response)

    def _assign(
        self, broker_id: int, directory: Uuid, partition: PartitionId, records: list[VersionedRecord]
    ) -> ErrorCode:
        try:
            before = self._registration(partition)
        except KafkaError as error:
            return error.code
        if broker_id not in before.replicas:
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        broker = self._state.image.brokers.get(broker_id)
        assert broker is not None, "its epoch was checked"
        change = self._leader_and_isr.change(partition, before)
        change.move_replica(broker_id, directory)
        moved = self._built(change, before, records)
        if not broker.has_online_directory(directory):  # the directory failed before the assignment arrived
            offline = self._leader_and_isr.replica_offline(partition, moved, broker_id)
            records += () if offline is None else (offline,)
        return ErrorCode.NONE

    @staticmethod
    def _built(
        change: PartitionChange, before: PartitionRegistration, records: list[VersionedRecord]
    ) -> PartitionRegistration:
        """Add the change's record, if any; return the registration after it."""
        record = change.build()
        if record is None:
            return before
        assert isinstance(record.message, PartitionChangeRecord)
        records.append(record)
        return before.merge(record.message)

    def _registration(self, partition: PartitionId) -> PartitionRegistration:
        topic = self._state.image.topics.by_id(partition.topic_id)
        if topic is None:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_ID)
        registration = topic.partitions.get(partition.partition)
        if registration is None:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        return registration

    def _allows_unclean(self, topic_id: Uuid) -> bool:
        topic = self._state.image.topics.by_id(topic_id)
        return topic is not None and self._state.allows_unclean_election(topic.name)


def _members(requested: alter_partition.AlterPartitionRequestPartitionData) -> list[_Member]:
    """Return the proposed set; version 3 has the members' epochs, version 2 only their ids."""
    if requested.new_isr_with_epochs:
        return [
            _Member(BrokerId(each.broker_id), BrokerEpoch(each.broker_epoch)) for each in requested.new_isr_with_epochs
        ]
    return [_Member(BrokerId(broker), ANY_EPOCH) for broker in requested.new_isr]


def _in_replica_order(before: PartitionRegistration, members: Iterable[_Member]) -> tuple[int, ...]:
    """Return the present order of an unchanged set, so that a repeated request changes nothing."""
    proposed = [member.broker for member in members]
    return before.isr if set(proposed) == set(before.isr) else tuple(proposed)


def _check_epochs(
    before: PartitionRegistration, sender: int, requested: alter_partition.AlterPartitionRequestPartitionData
) -> None:
    """Refuse stale senders, and answer NOT_CONTROLLER to senders that know more than this controller."""
    if requested.leader_epoch > before.leader_epoch or requested.partition_epoch > before.partition_epoch:
        raise KafkaError(ErrorCode.NOT_CONTROLLER)
    if requested.leader_epoch < before.leader_epoch:
        raise KafkaError(ErrorCode.FENCED_LEADER_EPOCH)
    if sender != before.leader:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"broker {sender} does not lead the partition")
    if requested.partition_epoch < before.partition_epoch:
        raise KafkaError(ErrorCode.INVALID_UPDATE_VERSION)


def _check_isr(
    before: PartitionRegistration,
    sender: int,
    requested: alter_partition.AlterPartitionRequestPartitionData,
    members: list[_Member],
) -> None:
    brokers = [member.broker for member in members]
    if len(set(brokers)) != len(brokers) or not set(brokers) <= set(before.replicas) or sender not in brokers:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"brokers {brokers} are not a valid in-sync set")
    if requested.leader_recovery_state not in tuple(LeaderRecoveryState):
        raise KafkaError(
            ErrorCode.INVALID_REQUEST, f"leader recovery state {requested.leader_recovery_state} is unknown"
        )
    if requested.leader_recovery_state == LeaderRecoveryState.RECOVERING:
        if len(brokers) > 1:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "a recovering leader must be the only in-sync replica")
        if before.leader_recovery_state is LeaderRecoveryState.RECOVERED:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "a recovered leader cannot return to recovering")
