"""Fetch (1) between replicas of the metadata log, versions 12-18, and FetchSnapshot (59), versions 0-1.

Fetch 13+ uses topic ids; 15+ has the replica id in another field; 16+ and FetchSnapshot 1 return the leader's address;
17+ and FetchSnapshot 1 have the replica's directory id (KIP-853); 18 has the replica's high watermark (KIP-1166).
Replicas of the metadata log neither set nor read the other fields of Fetch.
"""

from typing import Final

from broker.quorum.identity import LogPosition, ReplicaKey, SnapshotId
from broker.quorum.messages import (
    FetchRequest,
    FetchResponse,
    FetchSnapshotRequest,
    FetchSnapshotResponse,
    LeaderHint,
)
from broker.quorum.wire.shape import (
    METADATA_PARTITION,
    METADATA_TOPIC,
    MalformedResponse,
    WrongPartition,
    address_of,
    leader_of,
    named_error,
    only,
    split_error,
)
from protocol.errors import ErrorCode
from protocol.ids import BrokerId, LeaderEpoch, Offset
from protocol.messages import fetch
from protocol.messages import fetch_snapshot as snapshot
from protocol.primitives import METADATA_TOPIC_ID

FETCH_FROM: Final = 12
"""The first version that can replicate the metadata log."""
_BY_ID_FROM: Final = 13
_REPLICA_STATE_FROM: Final = 15


# Fetch


def decode_fetch(message: fetch.FetchRequest, version: int) -> FetchRequest:
    """Decode a request. Raise WrongPartition."""
    topic = only(message.topics)
    partition = None if topic is None or not _is_ours(topic, version) else only(topic.partitions)
    if partition is None or partition.partition != METADATA_PARTITION:
        raise WrongPartition(fetch.FetchResponse(error_code=ErrorCode.INVALID_REQUEST))
    replica_id = message.replica_state.replica_id if version >= _REPLICA_STATE_FROM else message.replica_id
    return FetchRequest(
        message.cluster_id,
        ReplicaKey(BrokerId(replica_id), partition.replica_directory_id),
        LeaderEpoch(partition.current_leader_epoch),
        Offset(partition.fetch_offset),
        LeaderEpoch(partition.last_fetched_epoch),
        message.max_wait_ms,
        message.max_bytes,
        Offset(partition.high_watermark),
    )


def encode_fetch(request: FetchRequest, version: int) -> fetch.FetchRequest:
    has_state = version >= _REPLICA_STATE_FROM
    partition = fetch.FetchPartition(
        partition=METADATA_PARTITION,
        current_leader_epoch=request.epoch,
        fetch_offset=request.fetch_offset,
        last_fetched_epoch=request.last_fetched_epoch,
        replica_directory_id=request.replica.directory_id,
        high_watermark=request.high_watermark,
    )
    return fetch.FetchRequest(
        cluster_id=request.cluster_id,
        replica_id=-1 if has_state else request.replica.id,
        replica_state=fetch.ReplicaState(request.replica.id) if has_state else fetch.ReplicaState(),
        max_wait_ms=request.max_wait_ms,
        max_bytes=request.max_bytes,
        topics=[fetch.FetchTopic(METADATA_TOPIC, METADATA_TOPIC_ID, [partition])],
    )


def decode_fetch_response(message: fetch.FetchResponse, listener: str) -> FetchResponse:
    """Decode a response. `records` are views of the buffer of `message`. Raise MalformedResponse."""
    if message.error_code:
        return FetchResponse(named_error(message.error_code), LeaderHint())
    topic = only(message.responses)
    partition = None if topic is None else only(topic.partitions)
    if partition is None or partition.partition_index != METADATA_PARTITION:
        raise MalformedResponse(repr(message))
    leader, diverging, found = partition.current_leader, partition.diverging_epoch, partition.snapshot_id
    return FetchResponse(
        named_error(partition.error_code),
        leader_of(leader.leader_id, leader.leader_epoch, message.node_endpoints, listener),
        Offset(partition.high_watermark),
        Offset(partition.log_start_offset),
        LogPosition(LeaderEpoch(diverging.epoch), Offset(diverging.end_offset)) if diverging.epoch >= 0 else None,
        SnapshotId(Offset(found.end_offset), LeaderEpoch(found.epoch))
        if found.end_offset >= 0 or found.epoch >= 0
        else None,
        records=b"" if partition.records is None else partition.records,
    )


def encode_fetch_response(response: FetchResponse, listener: str) -> fetch.FetchResponse:
    whole, error = split_error(response.error)
    if whole:
        return fetch.FetchResponse(error_code=whole)
    leader, address = response.leader, address_of(response.leader, listener)
    partition = fetch.PartitionData(
        partition_index=METADATA_PARTITION,
        error_code=error,
        high_watermark=response.high_watermark,
        log_start_offset=response.log_start_offset,
        current_leader=fetch.LeaderIdAndEpoch(leader.leader_id, leader.epoch),
        records=response.records,
    )
    if response.diverging is not None:
        partition.diverging_epoch = fetch.EpochEndOffset(*response.diverging)
    if response.snapshot_id is not None:
        partition.snapshot_id = fetch.SnapshotId(*response.snapshot_id)
    return fetch.FetchResponse(
        responses=[fetch.FetchableTopicResponse(METADATA_TOPIC, METADATA_TOPIC_ID, [partition])],
        node_endpoints=[] if address is None else [fetch.NodeEndpoint(leader.leader_id, *address)],
    )


def _is_ours(topic: fetch.FetchTopic, version: int) -> bool:
    return topic.topic_id == METADATA_TOPIC_ID if version >= _BY_ID_FROM else topic.topic == METADATA_TOPIC


# FetchSnapshot


def decode_fetch_snapshot(message: snapshot.FetchSnapshotRequest) -> FetchSnapshotRequest:
    """Decode the part for the metadata log; `answer_other_partitions` answers the rest. Raise WrongPartition."""
    partition = metadata_snapshot_partition(message)
    return FetchSnapshotRequest(
        message.cluster_id,
        ReplicaKey(BrokerId(message.replica_id), partition.replica_directory_id),
        LeaderEpoch(partition.current_leader_epoch),
        SnapshotId(Offset(partition.snapshot_id.end_offset), LeaderEpoch(partition.snapshot_id.epoch)),
        partition.position,
        message.max_bytes,
    )


def metadata_snapshot_partition(
    message: snapshot.FetchSnapshotRequest,
) -> snapshot.FetchSnapshotRequestPartitionSnapshot:
    """Return the part of a request for the metadata log, the only log with snapshots (KIP-630).

    Raise WrongPartition if the request names the log not at all or more than once.
    """
    named = [each for topic in message.topics for each in topic.partitions if _has_snapshots(topic.name, each)]
    if len(named) == 1:
        return named[0]
    if named or not any(topic.partitions for topic in message.topics):
        raise WrongPartition(snapshot.FetchSnapshotResponse(error_code=ErrorCode.INVALID_REQUEST))
    raise WrongPartition(answer_other_partitions(message, snapshot.FetchSnapshotResponse()))


def answer_other_partitions(
    message: snapshot.FetchSnapshotRequest, response: snapshot.FetchSnapshotResponse
) -> snapshot.FetchSnapshotResponse:
    """Answer all partitions except the metadata log's with UNKNOWN_TOPIC_OR_PARTITION, in the order of the request."""
    if response.error_code:
        return response
    answered = [each for topic in response.topics for each in topic.partitions]
    response.topics = [
        snapshot.FetchSnapshotResponseTopicSnapshot(
            topic.name,
            [
                answered[0] if _has_snapshots(topic.name, each) else _unknown_partition(each.partition)
                for each in topic.partitions
            ],
        )
        for topic in message.topics
    ]
    return response


def _has_snapshots(name: str, partition: snapshot.FetchSnapshotRequestPartitionSnapshot) -> bool:
    return name == METADATA_TOPIC and partition.partition == METADATA_PARTITION


def encode_fetch_snapshot(request: FetchSnapshotRequest) -> snapshot.FetchSnapshotRequest:
    partition = snapshot.FetchSnapshotRequestPartitionSnapshot(
        METADATA_PARTITION,
        request.epoch,
        snapshot.FetchSnapshotRequestSnapshotId(*request.snapshot_id),
        request.position,
        request.replica.directory_id,
    )
    return snapshot.FetchSnapshotRequest(
        request.cluster_id,
        request.replica.id,
        request.max_bytes,
        [snapshot.FetchSnapshotRequestTopicSnapshot(METADATA_TOPIC, [partition])],
    )


def decode_fetch_snapshot_response(message: snapshot.FetchSnapshotResponse, listener: str) -> FetchSnapshotResponse:
    """Decode a response. `data` is a view of the buffer of `message`. Raise MalformedResponse."""
    if message.error_code:
        return FetchSnapshotResponse(named_error(message.error_code), LeaderHint())
    topic = only(message.topics)
    partition = None if topic is None else only(topic.partitions)
    if topic is None or partition is None or topic.name != METADATA_TOPIC or partition.index != METADATA_PARTITION:
        raise MalformedResponse(repr(message))
    leader = partition.current_leader
    return FetchSnapshotResponse(
        named_error(partition.error_code),
        leader_of(leader.leader_id, leader.leader_epoch, message.node_endpoints, listener),
        SnapshotId(Offset(partition.snapshot_id.end_offset), LeaderEpoch(partition.snapshot_id.epoch)),
        partition.size,
        partition.position,
        data=b"" if partition.unaligned_records is None else partition.unaligned_records,
    )


def encode_fetch_snapshot_response(response: FetchSnapshotResponse, listener: str) -> snapshot.FetchSnapshotResponse:
    whole, error = split_error(response.error)
    if whole:
        return snapshot.FetchSnapshotResponse(error_code=whole)
    leader, address = response.leader, address_of(response.leader, listener)
    partition = snapshot.FetchSnapshotResponsePartitionSnapshot(
        METADATA_PARTITION,
        error,
        snapshot.FetchSnapshotResponseSnapshotId(*response.snapshot_id),
        snapshot.LeaderIdAndEpoch(leader.leader_id, leader.epoch),
        response.size,
        response.position,
        response.data,
    )
    return snapshot.FetchSnapshotResponse(
        topics=[snapshot.FetchSnapshotResponseTopicSnapshot(METADATA_TOPIC, [partition])],
        node_endpoints=[] if address is None else [snapshot.NodeEndpoint(leader.leader_id, *address)],
    )


def _unknown_partition(index: int) -> snapshot.FetchSnapshotResponsePartitionSnapshot:
    return snapshot.FetchSnapshotResponsePartitionSnapshot(
        index=index,
        error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        current_leader=snapshot.LeaderIdAndEpoch(-1, 0),
        unaligned_records=b"",
    )
