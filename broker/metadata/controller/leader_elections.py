"""LeaderElections that an operator asks for: the preferred leader, or any leader at all (KIP-183, KIP-460)."""

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
    """The controller's part for ElectLeaders."""

    def __init__(self, state: ControllerState, leader_and_isr: LeaderAndIsrUpdates) -> None:
        self._state = state
        self._leader_and_isr = leader_and_isr

    def elect(self, request: ElectLeadersRequest) -> ControllerResult[ElectLeadersResponse]:
        """Elect where it is needed; null for the partitions means all, and answers only for those that need it.

        Raises KafkaError INVALID_REQUEST for an unknown kind of election, POLICY_VIOLATION for more elections than fit
        one request. An unclean election asked for by name is made whatever the topic's configuration says.
        """
        if request.topic_partitions == []:
            return ControllerResult((), ElectLeadersResponse())
        election = _ELECTIONS.get(request.election_type)
        if election is None:
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"{request.election_type} is no type of election")
        asked = self._wanting(election) if request.topic_partitions is None else request.topic_partitions
        records: dict[PartitionId, VersionedRecord] = {}
        response = ElectLeadersResponse()
        for topic in asked:
            results = [self._result(topic.topic, partition, election, records) for partition in topic.partitions]
            response.replica_election_results.append(ReplicaElectionResult(topic.topic, results))
        return ControllerResult(list(records.values()), response, atomic=False)

    def _wanting(self, election: Election) -> Iterable[TopicPartitions]:
        """All partitions that such an election could change, by topic."""
        index = self._state.index
        partitions = index.imbalanced() if election is Election.PREFERRED else index.leaderless()
        by_topic: dict[str, list[int]] = {}
        for topic_id, partition in partitions:
            topic = self._state.image.topics.by_id(topic_id)
            assert topic is not None, "the index follows the image"
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
                ErrorCode.POLICY_VIOLATION, f"more than {MAX_RECORDS_PER_BATCH} elections at once are not possible"
            )


def _is_needed(registration: PartitionRegistration, election: Election) -> bool:
    if election is Election.PREFERRED:
        return not registration.has_preferred_leader
    return not registration.has_leader
