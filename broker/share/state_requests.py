"""Requests of a partition leader to a share coordinator, and their results, for several partitions of one group."""

from collections.abc import Iterable, Mapping
from typing import Final

from broker.coordination.share_partition_key import SharePartitionKey
from broker.share.partition import FENCING_ERRORS, PersistedState, StateWrite
from broker.share.records import DeliveryBatch, RecordState
from protocol.errors import ErrorCode
from protocol.lazy_dataclass import lazy_dataclass
from protocol.messages import read_share_group_state as reading
from protocol.messages import write_share_group_state as writing
from protocol.messages.read_share_group_state import ReadShareGroupStateRequest, ReadShareGroupStateResponse
from protocol.messages.write_share_group_state import WriteShareGroupStateRequest, WriteShareGroupStateResponse
from protocol.primitives import Uuid

RETRIED: Final = frozenset(
    (
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.REQUEST_TIMED_OUT,
    )
)
"""Errors after which the same request may succeed, at this coordinator or at the next."""


@lazy_dataclass(frozen=True, slots=True)
class StateAnswer:
    """A coordinator's answer about one share partition; `state` is None for a write, or with an error."""

    error: ErrorCode
    state: PersistedState | None = None


Answers = Mapping[SharePartitionKey, StateAnswer]


def member_error(error: ErrorCode) -> ErrorCode:
    """Return the code that tells a member of a coordinator's error."""
    if error in (ErrorCode.FENCED_LEADER_EPOCH, ErrorCode.FENCED_STATE_EPOCH):
        return ErrorCode.NOT_LEADER_OR_FOLLOWER
    if error is ErrorCode.NONE or error in FENCING_ERRORS:
        return error
    return ErrorCode.COORDINATOR_NOT_AVAILABLE if error in RETRIED else ErrorCode.UNKNOWN_SERVER_ERROR


def read_request(group_id: str, epochs: Mapping[SharePartitionKey, int]) -> ReadShareGroupStateRequest:
    """Return a request for the states of share partitions, with the leader epoch of each."""
    topics: dict[Uuid, reading.ReadStateData] = {}
    for key, leader_epoch in epochs.items():
        topic = topics.setdefault(key.topic_id, reading.ReadStateData(key.topic_id))
        topic.partitions.append(reading.PartitionData(key.partition, leader_epoch))
    return ReadShareGroupStateRequest(group_id, list(topics.values()))


def write_request(group_id: str, writes: Mapping[SharePartitionKey, StateWrite]) -> WriteShareGroupStateRequest:
    """Return a request that writes states of share partitions."""
    topics: dict[Uuid, writing.WriteStateData] = {}
    for key, write in writes.items():
        topic = topics.setdefault(key.topic_id, writing.WriteStateData(key.topic_id))
        topic.partitions.append(
            writing.PartitionData(
                key.partition,
                write.state_epoch,
                write.leader_epoch,
                write.start_offset,
                write.delivery_complete_count,
                [writing.StateBatch(*batch) for batch in write.batches],
            )
        )
    return WriteShareGroupStateRequest(group_id, list(topics.values()))


def read_answers(group_id: str, response: ReadShareGroupStateResponse) -> Answers:
    """Return the states in a response."""
    return {
        SharePartitionKey(group_id, topic.topic_id, found.partition): _read_answer(found)
        for topic in response.results
        for found in topic.partitions
    }


def write_answers(group_id: str, response: WriteShareGroupStateResponse) -> Answers:
    """Return the results in a response."""
    return {
        SharePartitionKey(group_id, topic.topic_id, each.partition): StateAnswer(ErrorCode(each.error_code))
        for topic in response.results
        for each in topic.partitions
    }


def failed_answers(keys: Iterable[SharePartitionKey], error: ErrorCode) -> Answers:
    """Return one error for all share partitions."""
    return dict.fromkeys(keys, StateAnswer(error))


def _read_answer(found: reading.PartitionResult) -> StateAnswer:
    if found.error_code:
        return StateAnswer(ErrorCode(found.error_code))
    batches = [
        DeliveryBatch(each.first_offset, each.last_offset, RecordState(each.delivery_state), each.delivery_count)
        for each in found.state_batches
    ]
    return StateAnswer(ErrorCode.NONE, PersistedState(found.state_epoch, found.start_offset, batches))
