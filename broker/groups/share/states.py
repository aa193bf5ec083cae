"""Requests of a group coordinator about share partitions of one group, and the answers in the responses."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final, Generic, NamedTuple, Protocol, TypeVar

from broker.coordination.share_partition_key import SharePartitionKey
from protocol.errors import ErrorCode
from protocol.lazy_dataclass import lazy_dataclass
from protocol.messages import Message
from protocol.messages import delete_share_group_state as deletion
from protocol.messages import initialize_share_group_state as initialization
from protocol.messages import read_share_group_state_summary as summaries
from protocol.messages.delete_share_group_state import DeleteShareGroupStateRequest, DeleteShareGroupStateResponse
from protocol.messages.initialize_share_group_state import (
    InitializeShareGroupStateRequest,
    InitializeShareGroupStateResponse,
)
from protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from protocol.messages.read_share_group_state_summary import (
    ReadShareGroupStateSummaryRequest,
    ReadShareGroupStateSummaryResponse,
)
from protocol.primitives import Uuid

RETRIED_STATE_ERRORS: Final = frozenset(
    (
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    )
)
"""Errors that may pass. A topic that the share coordinator does not know may be one that it learns of in a moment."""

_LATEST: Final = -1
_CONSUMER: Final = -1
_READ_UNCOMMITTED: Final = 0

A = TypeVar("A")
T = TypeVar("T")
P = TypeVar("P")


@lazy_dataclass(frozen=True, slots=True)
class Answered(Generic[A]):
    """An answer about one share partition; `value` is None with an error, and where the answer is success alone."""

    error: ErrorCode
    value: A | None = None


class StateSummary(NamedTuple):
    """The offsets of a share partition; −1 for a start offset or a count that is unknown."""

    leader_epoch: int
    start_offset: int
    delivery_complete_count: int


class StateRequest(Protocol[A]):
    """A request about share partitions of one group that have the same coordinator, or leader."""

    def message(self, keys: Sequence[SharePartitionKey]) -> Message: ...

    def answers(self, keys: Sequence[SharePartitionKey], outcome: object) -> Mapping[SharePartitionKey, Answered[A]]:
        """Return the answers in a response. Any other outcome is a NETWORK_EXCEPTION for all."""
        ...


@lazy_dataclass(frozen=True, slots=True)
class InitializationRequest:
    """Begins a state epoch at start offsets."""

    start_offsets: Mapping[SharePartitionKey, int]
    state_epoch: int

    def message(self, keys: Sequence[SharePartitionKey]) -> Message:
        def partition(key: SharePartitionKey) -> initialization.PartitionData:
            return initialization.PartitionData(key.partition, self.state_epoch, self.start_offsets[key])

        topics = _by_topic(keys, partition)
        return InitializeShareGroupStateRequest(
            keys[0].group_id, [initialization.InitializeStateData(*each) for each in topics.items()]
        )

    def answers(self, keys: Sequence[SharePartitionKey], outcome: object) -> Mapping[SharePartitionKey, Answered[None]]:
        if not isinstance(outcome, InitializeShareGroupStateResponse):
            return _failed(keys)
        group_id = keys[0].group_id
        return {
            SharePartitionKey(group_id, topic.topic_id, each.partition): Answered(ErrorCode(each.error_code))
            for topic in outcome.results
            for each in topic.partitions
        }


@lazy_dataclass(frozen=True, slots=True)
class DeletionRequest:
    """Deletes states."""

    def message(self, keys: Sequence[SharePartitionKey]) -> Message:
        topics = _by_topic(keys, lambda key: deletion.PartitionData(key.partition))
        return DeleteShareGroupStateRequest(
            keys[0].group_id, [deletion.DeleteStateData(*each) for each in topics.items()]
        )

    def answers(self, keys: Sequence[SharePartitionKey], outcome: object) -> Mapping[SharePartitionKey, Answered[None]]:
        if not isinstance(outcome, DeleteShareGroupStateResponse):
            return _failed(keys)
        group_id = keys[0].group_id
        return {
            SharePartitionKey(group_id, topic.topic_id, each.partition): Answered(ErrorCode(each.error_code))
            for topic in outcome.results
            for each in topic.partitions
        }


@lazy_dataclass(frozen=True, slots=True)
class SummaryRequest:
    """Reads offsets."""

    def message(self, keys: Sequence[SharePartitionKey]) -> Message:
        topics = _by_topic(keys, lambda key: summaries.PartitionData(key.partition))
        return ReadShareGroupStateSummaryRequest(
            keys[0].group_id, [summaries.ReadStateSummaryData(*each) for each in topics.items()]
        )

    def answers(
        self, keys: Sequence[SharePartitionKey], outcome: object
    ) -> Mapping[SharePartitionKey, Answered[StateSummary]]:
        if not isinstance(outcome, ReadShareGroupStateSummaryResponse):
            return _failed(keys)
        group_id = keys[0].group_id
        return {
            SharePartitionKey(group_id, topic.topic_id, each.partition): Answered(
                ErrorCode(each.error_code),
                StateSummary(each.leader_epoch, each.start_offset, each.delivery_complete_count),
            )
            for topic in outcome.results
            for each in topic.partitions
        }


@lazy_dataclass(frozen=True, slots=True)
class EndOffsetRequest:
    """Asks partition leaders for high watermarks. `topic_name` returns the name of a share partition's topic."""

    topic_name: Callable[[SharePartitionKey], str]

    def message(self, keys: Sequence[SharePartitionKey]) -> Message:
        by_name: dict[str, list[ListOffsetsPartition]] = {}
        for key in keys:
            asked = ListOffsetsPartition(key.partition, timestamp=_LATEST)
            by_name.setdefault(self.topic_name(key), []).append(asked)
        return ListOffsetsRequest(
            _CONSUMER, _READ_UNCOMMITTED, [ListOffsetsTopic(name, partitions) for name, partitions in by_name.items()]
        )

    def answers(self, keys: Sequence[SharePartitionKey], outcome: object) -> Mapping[SharePartitionKey, Answered[int]]:
        if not isinstance(outcome, ListOffsetsResponse):
            return _failed(keys)
        found = {(topic.name, each.partition_index): each for topic in outcome.topics for each in topic.partitions}
        places = {key: found.get((self.topic_name(key), key.partition)) for key in keys}
        return {
            key: Answered(ErrorCode(each.error_code), each.offset) for key, each in places.items() if each is not None
        }


def _by_topic(keys: Iterable[SharePartitionKey], partition: Callable[[SharePartitionKey], P]) -> dict[Uuid, list[P]]:
    topics: dict[Uuid, list[P]] = {}
    for key in keys:
        topics.setdefault(key.topic_id, []).append(partition(key))
    return topics


def _failed(keys: Iterable[SharePartitionKey]) -> dict[SharePartitionKey, Answered[A]]:
    failure: Answered[A] = Answered(ErrorCode.NETWORK_EXCEPTION)  # Answered[A](…) cannot construct a frozen slots class
    return dict.fromkeys(keys, failure)
