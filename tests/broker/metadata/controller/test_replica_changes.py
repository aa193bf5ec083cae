"""AlterPartition and AssignReplicasToDirs, check by check (KIP-497, KIP-841, KIP-858, KIP-903)."""

from collections.abc import Sequence

import pytest

from broker.metadata.controller.configs import AlterOperation, ConfigOperation
from broker.metadata.image.config_image import ConfigResource, ResourceType
from broker.metadata.image.partition import LeaderRecoveryState, PartitionRegistration
from broker.metadata.image.records import VersionedRecord
from protocol.errors import ErrorCode, KafkaError
from protocol.messages.alter_partition import (
    AlterPartitionRequest,
    AlterPartitionRequestPartitionData,
    AlterPartitionRequestTopicData,
    AlterPartitionResponsePartitionData,
    BrokerState,
)
from protocol.messages.assign_replicas_to_dirs import (
    AssignReplicasToDirsRequest,
    AssignReplicasToDirsRequestDirectoryData,
    AssignReplicasToDirsRequestPartitionData,
    AssignReplicasToDirsRequestTopicData,
)
from protocol.messages.metadata_records import PartitionChangeRecord
from protocol.primitives import Uuid
from tests.broker.metadata.images import Cluster, uuid


class ReplicaChangeHarness:
    """A topic on brokers 1, 2, 3, led by 1."""

    def __init__(self) -> None:
        self.cluster = Cluster()
        self.cluster.start_brokers(1, 2, 3)
        self.topic_id = self.cluster.create_topic("t", [[1, 2, 3]])

    @property
    def partition(self) -> PartitionRegistration:
        return self.cluster.partition("t")

    def epoch(self, broker: int) -> int:
        return self.cluster.image.brokers.brokers[broker].epoch

    def alter(
        self,
        isr: Sequence[int],
        *,
        sender: int = 1,
        leader_epoch: int | None = None,
        partition_epoch: int | None = None,
        epochs: dict[int, int] | None = None,
        recovery: int = 0,
        topic_id: Uuid | None = None,
        index: int = 0,
    ) -> AlterPartitionResponsePartitionData:
        before = self.partition
        proposal = AlterPartitionRequestPartitionData(
            partition_index=index,
            leader_epoch=before.leader_epoch if leader_epoch is None else leader_epoch,
            new_isr_with_epochs=[BrokerState(each, (epochs or {}).get(each, self.epoch_or(each))) for each in isr],
            leader_recovery_state=recovery,
            partition_epoch=before.partition_epoch if partition_epoch is None else partition_epoch,
        )
        topic = AlterPartitionRequestTopicData(topic_id or self.topic_id, [proposal])
        request = AlterPartitionRequest(sender, self.epoch(sender), [topic])
        return self.cluster.write(self.cluster.controller.alter_partitions(request)).topics[0].partitions[0]

    def epoch_or(self, broker: int) -> int:
        known = self.cluster.image.brokers.get(broker)
        return -1 if known is None else known.epoch


@pytest.fixture
def harness() -> ReplicaChangeHarness:
    return ReplicaChangeHarness()


class TestAlterPartition:
    def test_isr_shrinks_and_expands(self, harness: ReplicaChangeHarness) -> None:
        shrunk = harness.alter([1, 2])
        assert (shrunk.error_code, shrunk.isr, shrunk.partition_epoch, shrunk.leader_epoch) == (0, [1, 2], 1, 0)
        assert harness.partition.isr == (1, 2)
        assert harness.alter([1, 2, 3]).isr == [1, 2, 3]

    def test_unchanged_isr_is_confirmed_without_a_record(self, harness: ReplicaChangeHarness) -> None:
        before = harness.cluster.controller.last_offset
        assert harness.alter([3, 1, 2]).isr == [1, 2, 3]
        assert harness.cluster.controller.last_offset == before

    def test_version_2_names_members_by_id(self, harness: ReplicaChangeHarness) -> None:
        proposal = AlterPartitionRequestPartitionData(new_isr=[1, 3])
        request = AlterPartitionRequest(
            1, harness.epoch(1), [AlterPartitionRequestTopicData(harness.topic_id, [proposal])]
        )
        harness.cluster.write(harness.cluster.controller.alter_partitions(request))
        assert harness.partition.isr == (1, 3)

    def test_stale_sender_is_refused(self, harness: ReplicaChangeHarness) -> None:
        for broker, epoch in ((1, 0), (9, 1)):
            with pytest.raises(KafkaError) as caught:
                harness.cluster.controller.alter_partitions(AlterPartitionRequest(broker, epoch))
            assert caught.value.code is ErrorCode.STALE_BROKER_EPOCH

    def test_checks_run_in_order(self, harness: ReplicaChangeHarness) -> None:
        harness.alter([1, 2])
        answers = {
            ErrorCode.UNKNOWN_TOPIC_ID: harness.alter([1], topic_id=uuid(99)),
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: harness.alter([1], index=7),
            ErrorCode.NOT_CONTROLLER: harness.alter([1], leader_epoch=1, sender=2),
            ErrorCode.INVALID_UPDATE_VERSION: harness.alter([1], partition_epoch=0),
        }
        assert {code: ErrorCode(answer.error_code) for code, answer in answers.items()} == {
            each: each for each in answers
        }
        assert harness.alter([1], partition_epoch=9).error_code == ErrorCode.NOT_CONTROLLER
        assert harness.partition.isr == (1, 2)

    def test_former_leader_is_refused(self, harness: ReplicaChangeHarness) -> None:
        harness.cluster.expire_session(1, others=(2, 3))
        harness.cluster.heartbeat(1)
        assert harness.alter([1], leader_epoch=0).error_code == ErrorCode.FENCED_LEADER_EPOCH
        assert harness.alter([1, 2]).error_code == ErrorCode.INVALID_REQUEST, "the sender is no longer the leader"

    @pytest.mark.parametrize("isr", [[], [2], [1, 1], [1, 4], [1, -1]])
    def test_invalid_isr_is_refused(self, harness: ReplicaChangeHarness, isr: list[int]) -> None:
        assert harness.alter(isr).error_code == ErrorCode.INVALID_REQUEST

    def test_inactive_or_restarted_members_are_refused(self, harness: ReplicaChangeHarness) -> None:
        harness.alter([1])
        assert harness.alter([1, 2], epochs={2: 1}).error_code == ErrorCode.INELIGIBLE_REPLICA
        assert harness.alter([1, 2], epochs={2: -1}).error_code == ErrorCode.NONE
        harness.cluster.heartbeat(3, want_fence=True)
        assert harness.alter([1, 3]).error_code == ErrorCode.INELIGIBLE_REPLICA

    def test_recovery_state_follows_the_leader(self, harness: ReplicaChangeHarness) -> None:
        assert harness.alter([1], recovery=1).error_code == ErrorCode.INVALID_REQUEST
        assert harness.alter([1], recovery=7).error_code == ErrorCode.INVALID_REQUEST
        recovering = PartitionChangeRecord(0, harness.topic_id, isr=[1], leader=1, leader_recovery_state=1)
        harness.cluster.append([VersionedRecord(recovering, 2)])
        assert harness.alter([1, 2], recovery=1).error_code == ErrorCode.INVALID_REQUEST
        assert harness.alter([1], recovery=0).leader_recovery_state == LeaderRecoveryState.RECOVERED
        assert harness.partition.leader_recovery_state is LeaderRecoveryState.RECOVERED

    def test_completing_a_reassignment_may_replace_the_sender_as_leader(self, harness: ReplicaChangeHarness) -> None:
        begun = PartitionChangeRecord(0, harness.topic_id, isr=[1, 2], removing_replicas=[1])
        harness.cluster.append([VersionedRecord(begun, 2)])
        assert harness.alter([1, 2, 3]).error_code == ErrorCode.NEW_LEADER_ELECTED
        assert (harness.partition.replicas, harness.partition.isr, harness.partition.leader) == ((2, 3), (2, 3), 2)


class TestAssignDirectories:
    def assign(
        self,
        harness: ReplicaChangeHarness,
        directory: Uuid,
        *,
        broker: int = 4,
        topic: Uuid | None = None,
        index: int = 0,
    ) -> ErrorCode:
        topics = [
            AssignReplicasToDirsRequestTopicData(
                topic or harness.topic_id, [AssignReplicasToDirsRequestPartitionData(index)]
            )
        ]
        data = [AssignReplicasToDirsRequestDirectoryData(directory, topics)]
        request = AssignReplicasToDirsRequest(broker, harness.epoch(broker), data)
        response = harness.cluster.write(harness.cluster.controller.assign_directories(request))
        return ErrorCode(response.directories[0].topics[0].partitions[0].error_code)

    @pytest.fixture
    def harness(self) -> ReplicaChangeHarness:
        """Broker 4 has two directories and leads a topic with broker 1."""
        harness = ReplicaChangeHarness()
        request = harness.cluster.registration(4)
        request.log_dirs = [uuid(70), uuid(71)]
        harness.cluster.write(harness.cluster.controller.register_broker(request, now_ms=harness.cluster.now_ms))
        harness.cluster.heartbeat(4)
        harness.topic_id = harness.cluster.create_topic("two", [[4, 1]])
        return harness

    def test_directory_is_recorded_without_an_election(self, harness: ReplicaChangeHarness) -> None:
        assert self.assign(harness, uuid(71)) is ErrorCode.NONE
        partition = harness.cluster.partition("two")
        assert partition.directories[0] == uuid(71)
        assert (partition.leader, partition.leader_epoch, partition.partition_epoch) == (4, 0, 1)

    def test_failure_of_the_assigned_directory_moves_the_leader(self, harness: ReplicaChangeHarness) -> None:
        self.assign(harness, uuid(71))
        harness.cluster.heartbeat(4, offline=[uuid(70)])
        assert harness.cluster.partition("two").leader == 4
        harness.cluster.heartbeat(4, offline=[uuid(71)])
        assert (harness.cluster.partition("two").leader, harness.cluster.partition("two").isr) == (1, (1,))

    def test_assignment_to_an_offline_directory_moves_the_leader(self, harness: ReplicaChangeHarness) -> None:
        harness.cluster.heartbeat(4, offline=[uuid(70)])
        assert self.assign(harness, uuid(70)) is ErrorCode.NONE
        assert (harness.cluster.partition("two").leader, harness.cluster.partition("two").isr) == (1, (1,))

    def test_only_in_sync_replica_in_an_offline_directory_needs_unclean_election(
        self, harness: ReplicaChangeHarness
    ) -> None:
        """A topic that allows it elects another replica, which lacks the failed directory's records."""
        allow = ConfigOperation("unclean.leader.election.enable", AlterOperation.SET, "true")
        topic = ConfigResource(ResourceType.TOPIC, "two")
        harness.cluster.write(harness.cluster.controller.alter_configs({topic: [allow]}, validate_only=False))
        harness.cluster.expire_session(1, others=(2, 3, 4))
        harness.cluster.heartbeat(1)
        assert harness.cluster.partition("two").isr == (4,)
        harness.cluster.heartbeat(4, offline=[uuid(70)])
        assert self.assign(harness, uuid(70)) is ErrorCode.NONE
        partition = harness.cluster.partition("two")
        assert (partition.leader, partition.isr, partition.directories[0]) == (1, (1,), uuid(70))
        assert partition.leader_recovery_state is LeaderRecoveryState.RECOVERING

    def test_invalid_assignments_are_refused(self, harness: ReplicaChangeHarness) -> None:
        assert self.assign(harness, uuid(71), topic=uuid(99)) is ErrorCode.UNKNOWN_TOPIC_ID
        assert self.assign(harness, uuid(71), index=9) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert self.assign(harness, uuid(71), broker=2) is ErrorCode.NOT_LEADER_OR_FOLLOWER

    def test_stale_sender_is_refused(self, harness: ReplicaChangeHarness) -> None:
        with pytest.raises(KafkaError) as caught:
            harness.cluster.controller.assign_directories(AssignReplicasToDirsRequest(4, 1))
        assert caught.value.code is ErrorCode.STALE_BROKER_EPOCH
