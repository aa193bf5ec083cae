"""Reassignments: begin, completion by the leader's AlterPartition, replacement, cancellation (KIP-455, KIP-860)."""

from collections.abc import Mapping, Sequence

import pytest

from broker.metadata.controller.state import ControllerSettings
from broker.metadata.image.partition import PartitionRegistration
from protocol.errors import ErrorCode
from protocol.messages.alter_partition import (
    AlterPartitionRequest,
    AlterPartitionRequestPartitionData,
    AlterPartitionRequestTopicData,
    BrokerState,
)
from protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from protocol.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsTopics,
)
from protocol.messages.metadata_records import PartitionChangeRecord
from protocol.primitives import Uuid
from tests.broker.metadata.images import Cluster


class ReassignmentHarness:
    """Five brokers, and topic t with partition 0 on 1, 2 and partition 1 on 3, 4."""

    def __init__(self, settings: ControllerSettings | None = None) -> None:
        self.cluster = Cluster(settings)
        self.cluster.start_brokers(1, 2, 3, 4, 5)
        self.topic_id = self.cluster.create_topic("t", [[1, 2], [3, 4]]) if settings is None else Uuid(bytes(16))

    @property
    def partition(self) -> PartitionRegistration:
        return self.cluster.partition("t")

    def moves(self) -> tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]:
        return self.partition.replicas, self.partition.adding_replicas, self.partition.removing_replicas

    def move(
        self, target: Sequence[int] | None, *, topic: str = "t", index: int = 0, may_change_factor: bool = True
    ) -> ErrorCode:
        requested = [ReassignablePartition(index, None if target is None else list(target))]
        request = AlterPartitionReassignmentsRequest(
            allow_replication_factor_change=may_change_factor, topics=[ReassignableTopic(topic, requested)]
        )
        response = self.cluster.write(self.cluster.controller.alter_reassignments(request))
        assert response.allow_replication_factor_change is may_change_factor
        return ErrorCode(response.responses[0].partitions[0].error_code)

    def in_sync(self, *isr: int) -> ErrorCode:
        """Propose an in-sync set as the leader."""
        before, brokers = self.partition, self.cluster.image.brokers.brokers
        proposal = AlterPartitionRequestPartitionData(
            partition_index=0,
            leader_epoch=before.leader_epoch,
            new_isr_with_epochs=[BrokerState(each, brokers[each].epoch) for each in isr],
            partition_epoch=before.partition_epoch,
        )
        topic = AlterPartitionRequestTopicData(self.topic_id, [proposal])
        request = AlterPartitionRequest(before.leader, brokers[before.leader].epoch, [topic])
        response = self.cluster.write(self.cluster.controller.alter_partitions(request))
        return ErrorCode(response.topics[0].partitions[0].error_code)

    def ongoing(self, requested: Mapping[str, Sequence[int]] | None = None) -> dict[tuple[str, int], list[list[int]]]:
        topics = (
            None if requested is None else [ListPartitionReassignmentsTopics(n, list(i)) for n, i in requested.items()]
        )
        request = ListPartitionReassignmentsRequest(topics=topics)
        response = self.cluster.write(self.cluster.controller.list_reassignments(request))
        assert all(topic.partitions for topic in response.topics)
        return {
            (topic.name, each.partition_index): [each.replicas, each.adding_replicas, each.removing_replicas]
            for topic in response.topics
            for each in topic.partitions
        }


@pytest.fixture
def harness() -> ReassignmentHarness:
    return ReassignmentHarness()


class TestBeginAndComplete:
    def test_new_replicas_are_added_before_old_ones_are_removed(self, harness: ReassignmentHarness) -> None:
        assert harness.move([3, 4]) is ErrorCode.NONE
        assert harness.moves() == ((3, 4, 1, 2), (3, 4), (1, 2))
        assert (harness.partition.isr, harness.partition.leader, harness.partition.leader_epoch) == ((1, 2), 1, 0)
        assert len(harness.partition.directories) == 4

    def test_reassignment_completes_when_remaining_replicas_are_in_sync(self, harness: ReassignmentHarness) -> None:
        harness.move([3, 4])
        assert harness.in_sync(1, 2, 3) is ErrorCode.NONE
        assert harness.partition.is_reassigning
        assert harness.in_sync(1, 2, 3, 4) is ErrorCode.NEW_LEADER_ELECTED
        assert harness.moves() == ((3, 4), (), ())
        assert (harness.partition.isr, harness.partition.leader, harness.partition.leader_epoch) == ((3, 4), 3, 1)

    def test_removed_replicas_bump_the_leader_epoch_of_the_same_leader(self, harness: ReassignmentHarness) -> None:
        harness.move([1, 3])
        assert harness.in_sync(1, 2, 3) is ErrorCode.NONE
        assert (harness.moves(), harness.partition.leader, harness.partition.leader_epoch) == (((1, 3), (), ()), 1, 1)

    def test_adding_replicas_keeps_the_leader_epoch(self, harness: ReassignmentHarness) -> None:
        harness.move([1, 2, 3])
        harness.in_sync(1, 2, 3)
        assert (harness.moves(), harness.partition.leader_epoch) == (((1, 2, 3), (), ()), 0)

    def test_removing_replicas_completes_at_once(self, harness: ReassignmentHarness) -> None:
        harness.move([2])
        assert (harness.moves(), harness.partition.isr, harness.partition.leader) == (((2,), (), ()), (2,), 2)

    def test_reordering_completes_at_once_without_election(self, harness: ReassignmentHarness) -> None:
        harness.move([2, 1])
        assert (harness.moves(), harness.partition.leader, harness.partition.leader_epoch) == (((2, 1), (), ()), 1, 0)

    def test_present_assignment_writes_nothing(self, harness: ReassignmentHarness) -> None:
        before = harness.cluster.controller.last_offset
        assert harness.move([1, 2]) is ErrorCode.NONE
        assert harness.cluster.controller.last_offset == before


class TestReplace:
    def test_new_target_starts_from_the_original_replicas(self, harness: ReassignmentHarness) -> None:
        harness.move([1, 3])
        harness.move([1, 4])
        assert harness.moves() == ((1, 4, 2, 3), (3, 4), (2, 3))
        harness.in_sync(1, 2, 4)
        assert harness.moves() == ((1, 4), (), ())

    def test_replaced_target_can_be_cancelled(self, harness: ReassignmentHarness) -> None:
        harness.move([1, 3])
        harness.move([1, 4])
        harness.move(None)
        assert harness.moves() == ((1, 2), (), ())

    def test_wider_target_keeps_replicas_marked_for_removal(self, harness: ReassignmentHarness) -> None:
        harness.move([3, 2])
        harness.move([3, 2, 1])
        assert harness.moves() == ((3, 2, 1), (3,), ())
        harness.in_sync(1, 2, 3)
        assert harness.moves() == ((3, 2, 1), (), ())


class TestCancel:
    def test_cancelling_restores_the_original_replicas(self, harness: ReassignmentHarness) -> None:
        harness.move([3, 4])
        harness.in_sync(1, 2, 3)
        assert harness.move(None) is ErrorCode.NONE
        assert (harness.moves(), harness.partition.isr) == (((1, 2), (), ()), (1, 2))

    def test_cancelling_replaces_an_added_leader(self, harness: ReassignmentHarness) -> None:
        harness.move([3, 4])
        harness.cluster.append_messages(PartitionChangeRecord(0, harness.topic_id, isr=[2, 3], leader=3), version=2)
        harness.move(None)
        assert (harness.partition.leader, harness.partition.isr) == (2, (2,))

    def test_cancelling_is_refused_if_data_would_be_lost(self, harness: ReassignmentHarness) -> None:
        harness.move([3, 4])
        harness.cluster.append_messages(PartitionChangeRecord(0, harness.topic_id, isr=[3], leader=3), version=2)
        assert harness.move(None) is ErrorCode.INVALID_REPLICA_ASSIGNMENT

    def test_cancelling_without_reassignment_is_refused(self, harness: ReassignmentHarness) -> None:
        assert harness.move(None) is ErrorCode.NO_REASSIGNMENT_IN_PROGRESS


class TestRefusals:
    @pytest.mark.parametrize("target", [[], [1, 1], [9], [-1]])
    def test_invalid_targets_are_refused(self, harness: ReassignmentHarness, target: list[int]) -> None:
        assert harness.move(target) is ErrorCode.INVALID_REPLICA_ASSIGNMENT

    @pytest.mark.parametrize(("topic", "index"), [("x", 0), ("t", 9)])
    def test_unknown_partitions_are_refused(self, harness: ReassignmentHarness, topic: str, index: int) -> None:
        assert harness.move([1], topic=topic, index=index) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert harness.move(None, topic=topic, index=index) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

    def test_forbidden_replication_factor_change_is_refused(self, harness: ReassignmentHarness) -> None:
        assert harness.move([1, 2, 3], may_change_factor=False) is ErrorCode.INVALID_REPLICATION_FACTOR
        assert harness.move([1, 3], may_change_factor=False) is ErrorCode.NONE
        assert harness.move([4], may_change_factor=False) is ErrorCode.INVALID_REPLICATION_FACTOR
        assert harness.move([4, 5], may_change_factor=False) is ErrorCode.NONE

    def test_one_error_does_not_affect_other_partitions(self, harness: ReassignmentHarness) -> None:
        requested = [ReassignablePartition(0, [9]), ReassignablePartition(1, [3, 5]), ReassignablePartition(1, [3, 1])]
        request = AlterPartitionReassignmentsRequest(topics=[ReassignableTopic("t", requested)])
        response = harness.cluster.write(harness.cluster.controller.alter_reassignments(request))
        codes = [ErrorCode(each.error_code) for each in response.responses[0].partitions]
        assert codes == [ErrorCode.INVALID_REPLICA_ASSIGNMENT, ErrorCode.NONE, ErrorCode.INVALID_REQUEST]
        assert harness.cluster.partition("t", 1).adding_replicas == (5,)


class TestList:
    def test_null_lists_all_reassignments(self, harness: ReassignmentHarness) -> None:
        assert harness.ongoing() == {}
        harness.move([3, 4])
        harness.move([3, 4, 5], index=1)
        assert harness.ongoing() == {("t", 0): [[3, 4, 1, 2], [3, 4], [1, 2]], ("t", 1): [[3, 4, 5], [5], []]}

    def test_list_returns_requested_partitions(self, harness: ReassignmentHarness) -> None:
        harness.move([3, 4])
        assert harness.ongoing({"t": [1, 7], "x": [0]}) == {}
        assert harness.ongoing({"t": [0, 1]}).keys() == {("t", 0)}

    def test_reassignments_survive_failover(self, harness: ReassignmentHarness) -> None:
        harness.move([3, 4])
        harness.cluster.fail_over()
        assert harness.ongoing().keys() == {("t", 0)}
        harness.cluster.write(harness.cluster.controller.delete_topics([harness.topic_id]))
        assert harness.ongoing() == {}
