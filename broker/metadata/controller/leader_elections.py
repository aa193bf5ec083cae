"""Elections that an operator requests: of the preferred leader, or of any replica (KIP-183, KIP-460)."""

from collections.abc import Iterable
from typing import Final

from broker.metadata.controller.leader_and_isr_updates import LeaderAndIsrUpdates
from broker.metadata.controller.partition_changes import Election
from broker.metadata.controller.result import MAX_RECORDS_PER_BATCH, ControllerResult
from broker.metadata.controller.state import ControllerState
from broker.metadata.image.partition import PartitionRegistration
from broker.metadata.image.partition_index import PartitionId
from broker.metadata.image.records import VersionedRecord
from protocol.errors import ErrorCode, KafkaError
from protocol.messages.elect_leaders import (
    ElectLeadersRequest,
    ElectLeadersResponse,
    PartitionResult,
    ReplicaElectionResult,
    TopicPartitions,
)

_ELECTIONS: Final = {0: Election.PREFERRED, 1: Election.UNCLEAN}
_UNAVAILABLE: Final = {
    Election.PREFERRED: ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE,
    Election.UNCLEAN: ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE,
}


class LeaderElections:
    """The command ElectLeaders."""

    def __init__(self, state: ControllerState, leader_and_isr: LeaderAndIsrUpdates) -> None:
        self._state = state
        self._leader_and_isr = leader_and_isr

    def elect(self, request: ElectLeadersRequest) -> ControllerResult[ElectLeadersResponse]:
        """Elect leaders where needed. Null partitions mean all, and yield results only where an election is needed.

        Raises KafkaError INVALID_REQUEST for an unknown election type, POLICY_VIOLATION for more elections than one
        request allows. A requested unclean election ignores the topic's unclean.leader.election.enable.
        """
        if request.topic_partitions == []:
            return ControllerResult((), ElectLeadersResponse())
        election = _ELECTIONS.get(request.election_type)
        if election is None:
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"election type {request.election_type} is unknown")
        requested = self._electable(election) if request.topic_partitions is None else request.topic_partitions
        records: dict[PartitionId, VersionedRecord] = {}
        response = ElectLeadersResponse()
        for topic in requested:
            results = [self._result(topic.topic, partition, election, records) for partition in topic.partitions]
            response.replica_election_results.append(ReplicaElectionResult(topic.topic, results))
        return ControllerResult(list(records.values()), response, atomic=False)

    def _electable(self, election: Election) -> Iterable[TopicPartitions]:
        """Return all partitions that such an election could change, by topic."""
        index = self._state.index
        partitions = index.imbalanced() if election is Election.PREFERRED else index.leaderless()
        by_topic: dict[str, list[int]] = {}
        for topic_id, partition in partitions:
            topic = self._state.image.topics.by_id(topic_id)
            assert topic is not None, "the index and the image agree"
            by_topic.setdefault(topic.name, []).append(partition)
        return [TopicPartitions(name, sorted(indexes)) for name, indexes in sorted(by_topic.items())]

    def _result(
        self, name: str, partition: int, election: Election, records: dict[PartitionId, VersionedRecord]
    ) -> PartitionResult:
        try:
            self._elect(name, partition, election, records)
        except KafkaError as error:
            if error.code is ErrorCode.POLICY_VIOLATION:
                raise
            return PartitionResult(partition, error.code, error.message)
        return PartitionResult(partition, ErrorCode.NONE, None)

    def _elect(
        self, name: str, partition: int, election: Election, records: dict[PartitionId, VersionedRecord]
    ) -> None:
        topic = self._state.image.topics.by_name(name)
        registration = None if topic is None else topic.partitions.get(partition)
        if topic is None or registration is None:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        if not _is_needed(registration, election):
            raise KafkaError(ErrorCode.ELECTION_NOT_NEEDED)
        here = PartitionId(topic.id, partition)
        record = self._leader_and_isr.elect(here, election)
        if record is None:
            raise KafkaError(_UNAVAILABLE[election])
        records[here] = record
        if len(records) > MAX_RECORDS_PER_BATCH:
            raise KafkaError(
                ErrorCode.POLICY_VIOLATION, f"the request needs more than {MAX_RECORDS_PER_BATCH} elections; split it"
            )


def _is_needed(registration: PartitionRegistration, election: Election) -> bool:
    if election is Election.PREFERRED:
        return not registration.has_preferred_leader
    return not registration.has_leader
