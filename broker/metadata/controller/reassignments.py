"""Reassignment of partitions to other brokers (KIP-455).

1. A target becomes a change that adds the new replicas and records which replicas are added and removed.
2. The new replicas fetch and join the in-sync set by the leader's AlterPartition.
3. When all remaining replicas are in sync, that change drops the removed ones (`partition_changes.py`).

A new target for a partition under reassignment starts from the replicas before any reassignment: replicas that the
abandoned reassignment added are removed again, and cancelling it restores the original replicas.
"""

from collections.abc import Sequence

from broker.metadata.controller.leader_and_isr_updates import LeaderAndIsrUpdates
from broker.metadata.controller.partition_changes import Election
from broker.metadata.controller.replica_assignments import bad_assignment, check_assignment
from broker.metadata.controller.result import ControllerResult
from broker.metadata.controller.state import ControllerState
from broker.metadata.image.partition import PartitionRegistration
from broker.metadata.image.partition_index import PartitionId
from broker.metadata.image.records import VersionedRecord
from broker.metadata.image.topic_image import TopicImage
from protocol.errors import ErrorCode, KafkaError
from protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartitionResponse,
    ReassignableTopicResponse,
)
from protocol.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
    ListPartitionReassignmentsTopics,
    OngoingPartitionReassignment,
    OngoingTopicReassignment,
)


class Reassignments:
    """The commands AlterPartitionReassignments and ListPartitionReassignments."""

    def __init__(self, state: ControllerState, leader_and_isr: LeaderAndIsrUpdates) -> None:
        self._state = state
        self._leader_and_isr = leader_and_isr

    def alter(
        self, request: AlterPartitionReassignmentsRequest
    ) -> ControllerResult[AlterPartitionReassignmentsResponse]:
        """Begin, replace and cancel reassignments. Each partition has a result; all valid changes are one batch."""
        if not request.topics:
            return ControllerResult((), AlterPartitionReassignmentsResponse())
        records: dict[PartitionId, VersionedRecord | None] = {}
        response = AlterPartitionReassignmentsResponse(
            error_message=None, allow_replication_factor_change=request.allow_replication_factor_change
        )
        for topic in request.topics:
            answer = ReassignableTopicResponse(topic.name)
            for requested in topic.partitions:
                outcome = ReassignablePartitionResponse(requested.partition_index, error_message=None)
                try:
                    self._alter(
                        topic.name,
                        requested.partition_index,
                        requested.replicas,
                        may_change_factor=request.allow_replication_factor_change,
                        records=records,
                    )
                except KafkaError as error:
                    outcome.error_code, outcome.error_message = error.code, error.message
                answer.partitions.append(outcome)
            response.responses.append(answer)
        return ControllerResult([record for record in records.values() if record is not None], response)

    def _alter(
        self,
        name: str,
        partition: int,
        target: Sequence[int] | None,
        *,
        may_change_factor: bool,
        records: dict[PartitionId, VersionedRecord | None],
    ) -> None:
        topic = self._state.image.topics.by_name(name)
        before = None if topic is None else topic.partitions.get(partition)
        if topic is None or before is None:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        here = PartitionId(topic.id, partition)
        if here in records:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "the partition is named twice in the request")
        if target is None:
            records[here] = self._cancel(topic, here, before)
        else:
            records[here] = self._begin(here, before, target, may_change_factor=may_change_factor)

    def _begin(
        self, here: PartitionId, before: PartitionRegistration, target: Sequence[int], *, may_change_factor: bool
    ) -> VersionedRecord | None:
        check_assignment(target, self._state.image.brokers)
        if not may_change_factor:
            _check_same_factor(before, target)
        original = _original(before)
        replicas = (*target, *sorted(set(before.replicas).difference(target)))
        change = self._leader_and_isr.change(here, before)
        change.replicas = replicas
        change.removing = tuple(sorted(set(replicas).difference(target)))
        change.adding = tuple(sorted(set(replicas).difference(original)))
        return change.build()

    def _cancel(self, topic: TopicImage, here: PartitionId, before: PartitionRegistration) -> VersionedRecord | None:
        if not before.is_reassigning:
            raise KafkaError(ErrorCode.NO_REASSIGNMENT_IN_PROGRESS)
        allows_unclean = self._state.allows_unclean_election(topic.name)
        replicas = _original(before)
        isr = tuple(member for member in before.isr if member in replicas)
        if not isr:
            if not allows_unclean:
                raise bad_assignment(
                    "only replicas that cancelling removes are in sync; allow unclean leader election to cancel"
                )
            isr = replicas[:1]
        change = self._leader_and_isr.change(here, before)
        change.replicas, change.isr = replicas, isr
        change.removing = change.adding = ()
        if allows_unclean:
            change.election = Election.UNCLEAN
        return change.build()

    # Listing

    def list(self, request: ListPartitionReassignmentsRequest) -> ControllerResult[ListPartitionReassignmentsResponse]:
        """List ongoing reassignments of the requested partitions, null meaning all."""
        requested = self._all() if request.topics is None else request.topics
        answers = [self._ongoing(topic) for topic in requested]
        return ControllerResult(
            (), ListPartitionReassignmentsResponse(error_message=None, topics=[a for a in answers if a.partitions])
        )

    def _all(self) -> Sequence[ListPartitionReassignmentsTopics]:
        by_topic: dict[str, list[int]] = {}
        for topic_id, partition in self._state.index.reassigning():
            topic = self._state.image.topics.by_id(topic_id)
            assert topic is not None, "the index and the image agree"
            by_topic.setdefault(topic.name, []).append(partition)
        return [ListPartitionReassignmentsTopics(name, sorted(indexes)) for name, indexes in sorted(by_topic.items())]

    def _ongoing(self, requested: ListPartitionReassignmentsTopics) -> OngoingTopicReassignment:
        answer = OngoingTopicReassignment(requested.name)
        topic = self._state.image.topics.by_name(requested.name)
        for index in requested.partition_indexes if topic is not None else ():
            registration = topic.partitions.get(index) if topic is not None else None
            if registration is not None and registration.is_reassigning:
                answer.partitions.append(
                    OngoingPartitionReassignment(
                        index,
                        list(registration.replicas),
                        list(registration.adding_replicas),
                        list(registration.removing_replicas),
                    )
                )
        return answer


def _original(before: PartitionRegistration) -> tuple[int, ...]:
    """Return the replicas without those that the reassignment adds."""
    return tuple(replica for replica in before.replicas if replica not in before.adding_replicas)


def _check_same_factor(before: PartitionRegistration, target: Sequence[int]) -> None:
    """Refuse a change of the replication factor, which for an ongoing reassignment is that of its target (KIP-860)."""
    size = sum(replica not in before.removing_replicas for replica in before.replicas)
    if len(target) != size:
        raise KafkaError(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            f"the partition has {size} replicas, the target has {len(target)}, and the request forbids a change",
        )
