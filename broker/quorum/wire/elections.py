"""Vote (52), BeginQuorumEpoch (53) and EndQuorumEpoch (54).

Version 1 of each adds directory ids and the leader's listeners (KIP-853); Vote 2 adds pre-votes (KIP-996). A pre-vote
would be a real vote in older versions, so it is never sent in one.
"""

from collections.abc import Sequence
from typing import Final, Protocol, TypeVar

from broker.quorum.identity import LogPosition, ReplicaKey
from broker.quorum.messages import (
    BeginQuorumEpochRequest,
    BeginQuorumEpochResponse,
    EndQuorumEpochRequest,
    EndQuorumEpochResponse,
    LeaderHint,
    VoteRequest,
    VoteResponse,
)
from broker.quorum.wire.shape import (
    METADATA_PARTITION,
    METADATA_TOPIC,
    MalformedResponse,
    WrongPartition,
    address_of,
    leader_of,
    listeners_of,
    named_error,
    only,
    replica_key,
    split_error,
)
from protocol.errors import ErrorCode
from protocol.ids import BrokerId, LeaderEpoch, Offset
from protocol.messages import begin_quorum_epoch as begin
from protocol.messages import end_quorum_epoch as end
from protocol.messages import vote
from protocol.primitives import ZERO_UUID

PRE_VOTE_FROM: Final = 2


class _Partition(Protocol):
    @property
    def partition_index(self) -> int: ...


P = TypeVar("P", bound=_Partition, covariant=True)


class _Topic(Protocol[P]):
    @property
    def topic_name(self) -> str: ...

    @property
    def partitions(self) -> Sequence[P]: ...


def _only_partition(topics: Sequence[_Topic[P]]) -> P | None:
    topic = only(topics)
    partition = None if topic is None or topic.topic_name != METADATA_TOPIC else only(topic.partitions)
    return None if partition is None or partition.partition_index != METADATA_PARTITION else partition


# Vote


def decode_vote(message: vote.VoteRequest) -> VoteRequest:
    """Decode a request. Raise WrongPartition."""
    partition = _only_partition(message.topics)
    if partition is None:
        raise WrongPartition(vote.VoteResponse(error_code=ErrorCode.INVALID_REQUEST))
    return VoteRequest(
        message.cluster_id,
        LeaderEpoch(partition.replica_epoch),
        ReplicaKey(BrokerId(partition.replica_id), partition.replica_directory_id),
        replica_key(message.voter_id, partition.voter_directory_id),
        LogPosition(LeaderEpoch(partition.last_offset_epoch), Offset(partition.last_offset)),
        partition.pre_vote,
    )


def encode_vote(request: VoteRequest) -> vote.VoteRequest:
    """Encode a request. A pre-vote needs version PRE_VOTE_FROM or later."""
    partition = vote.VoteRequestPartitionData(
        replica_epoch=request.epoch,
        replica_id=request.candidate.id,
        replica_directory_id=request.candidate.directory_id,
        voter_directory_id=ZERO_UUID if request.voter is None else request.voter.directory_id,
        last_offset_epoch=request.last.epoch,
        last_offset=request.last.end_offset,
        pre_vote=request.pre_vote,
    )
    return vote.VoteRequest(
        request.cluster_id,
        -1 if request.voter is None else request.voter.id,
        [vote.VoteRequestTopicData(METADATA_TOPIC, [partition])],
    )


def decode_vote_response(message: vote.VoteResponse, listener: str) -> VoteResponse:
    """Decode a response received under the named listener. Raise MalformedResponse."""
    partition = _only_partition(message.topics)
    if message.error_code:
        return VoteResponse(named_error(message.error_code), LeaderHint())
    if partition is None:
        raise MalformedResponse(repr(message))
    leader = leader_of(partition.leader_id, partition.leader_epoch, message.node_endpoints, listener)
    return VoteResponse(named_error(partition.error_code), leader, partition.vote_granted)


def encode_vote_response(response: VoteResponse, listener: str) -> vote.VoteResponse:
    """Encode a response to a request that arrived on the named listener."""
    whole, error = split_error(response.error)
    if whole:
        return vote.VoteResponse(error_code=whole)
    partition = vote.VoteResponsePartitionData(
        METADATA_PARTITION, error, response.leader.leader_id, response.leader.epoch, response.granted
    )
    address = address_of(response.leader, listener)
    nodes = [] if address is None else [vote.NodeEndpoint(response.leader.leader_id, *address)]
    return vote.VoteResponse(topics=[vote.VoteResponseTopicData(METADATA_TOPIC, [partition])], node_endpoints=nodes)


# BeginQuorumEpoch


def decode_begin(message: begin.BeginQuorumEpochRequest) -> BeginQuorumEpochRequest:
    """Decode a request. Raise WrongPartition."""
    partition = _only_partition(message.topics)
    if partition is None:
        raise WrongPartition(begin.BeginQuorumEpochResponse(error_code=ErrorCode.INVALID_REQUEST))
    return BeginQuorumEpochRequest(
        message.cluster_id,
        BrokerId(partition.leader_id),
        LeaderEpoch(partition.leader_epoch),
        replica_key(message.voter_id, partition.voter_directory_id),
        listeners_of(message.leader_endpoints),
    )


def encode_begin(request: BeginQuorumEpochRequest) -> begin.BeginQuorumEpochRequest:
    partition = begin.BeginQuorumEpochRequestPartitionData(
        voter_directory_id=ZERO_UUID if request.voter is None else request.voter.directory_id,
        leader_id=request.leader_id,
        leader_epoch=request.epoch,
    )
    return begin.BeginQuorumEpochRequest(
        request.cluster_id,
        -1 if request.voter is None else request.voter.id,
        [begin.BeginQuorumEpochRequestTopicData(METADATA_TOPIC, [partition])],
        [begin.LeaderEndpoint(*each) for each in request.listeners],
    )


def decode_begin_response(message: begin.BeginQuorumEpochResponse, listener: str) -> BeginQuorumEpochResponse:
    """Decode a response. Raise MalformedResponse."""
    partition = _only_partition(message.topics)
    if message.error_code:
        return BeginQuorumEpochResponse(named_error(message.error_code), LeaderHint())
    if partition is None:
        raise MalformedResponse(repr(message))
    leader = leader_of(partition.leader_id, partition.leader_epoch, message.node_endpoints, listener)
    return BeginQuorumEpochResponse(named_error(partition.error_code), leader)


def encode_begin_response(response: BeginQuorumEpochResponse, listener: str) -> begin.BeginQuorumEpochResponse:
    whole, error = split_error(response.error)
    if whole:
        return begin.BeginQuorumEpochResponse(error_code=whole)
    leader = response.leader
    partition = begin.BeginQuorumEpochResponsePartitionData(METADATA_PARTITION, error, leader.leader_id, leader.epoch)
    address = address_of(leader, listener)
    return begin.BeginQuorumEpochResponse(
        topics=[begin.BeginQuorumEpochResponseTopicData(METADATA_TOPIC, [partition])],
        node_endpoints=[] if address is None else [begin.NodeEndpoint(leader.leader_id, *address)],
    )


# EndQuorumEpoch


def decode_end(message: end.EndQuorumEpochRequest) -> EndQuorumEpochRequest:
    """Decode a request. Raise WrongPartition."""
    partition = _only_partition(message.topics)
    if partition is None:
        raise WrongPartition(end.EndQuorumEpochResponse(error_code=ErrorCode.INVALID_REQUEST))
    named = [
        ReplicaKey(BrokerId(each.candidate_id), each.candidate_directory_id) for each in partition.preferred_candidates
    ]
    return EndQuorumEpochRequest(
        message.cluster_id,
        BrokerId(partition.leader_id),
        LeaderEpoch(partition.leader_epoch),
        tuple(named or [ReplicaKey(BrokerId(each)) for each in partition.preferred_successors]),
        listeners_of(message.leader_endpoints),
    )


def encode_end(request: EndQuorumEpochRequest) -> end.EndQuorumEpochRequest:
    """Encode a request. It contains the successors twice, once in the fields of version 0."""
    partition = end.EndQuorumEpochRequestPartitionData(
        leader_id=request.leader_id,
        leader_epoch=request.epoch,
        preferred_successors=[each.id for each in request.successors],
        preferred_candidates=[end.ReplicaInfo(*each) for each in request.successors],
    )
    return end.EndQuorumEpochRequest(
        request.cluster_id,
        [end.EndQuorumEpochRequestTopicData(METADATA_TOPIC, [partition])],
        [end.LeaderEndpoint(*each) for each in request.listeners],
    )


def decode_end_response(message: end.EndQuorumEpochResponse, listener: str) -> EndQuorumEpochResponse:
    """Decode a response. Raise MalformedResponse."""
    partition = _only_partition(message.topics)
    if message.error_code:
        return EndQuorumEpochResponse(named_error(message.error_code), LeaderHint())
    if partition is None:
        raise MalformedResponse(repr(message))
    leader = leader_of(partition.leader_id, partition.leader_epoch, message.node_endpoints, listener)
    return EndQuorumEpochResponse(named_error(partition.error_code), leader)


def encode_end_response(response: EndQuorumEpochResponse, listener: str) -> end.EndQuorumEpochResponse:
    whole, error = split_error(response.error)
    if whole:
        return end.EndQuorumEpochResponse(error_code=whole)
    leader = response.leader
    partition = end.EndQuorumEpochResponsePartitionData(METADATA_PARTITION, error, leader.leader_id, leader.epoch)
    address = address_of(leader, listener)
    return end.EndQuorumEpochResponse(
        topics=[end.EndQuorumEpochResponseTopicData(METADATA_TOPIC, [partition])],
        node_endpoints=[] if address is None else [end.NodeEndpoint(leader.leader_id, *address)],
    )
