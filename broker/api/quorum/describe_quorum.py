"""DescribeQuorum (key 55), versions 0-2: voters, observers and their log end offsets (KIP-595, KIP-836, KIP-853).

1+ times of the last fetch and of the last caught-up fetch; 2 directories, endpoints of voters, and error messages. Only
the leader knows; brokers forward the request.
"""

from collections.abc import Sequence
from typing import Final

from broker.api.serving.context import RequestContext
from broker.api.serving.quorum_peer import QuorumPeer
from broker.quorum.description import QuorumDescription, ReplicaStatus
from broker.quorum.wire.shape import METADATA_PARTITION, METADATA_TOPIC, only
from protocol.errors import ErrorCode
from protocol.messages.describe_quorum import (
    DescribeQuorumRequest,
    DescribeQuorumResponse,
    DescribeQuorumResponsePartitionData,
    DescribeQuorumResponseTopicData,
    Listener,
    Node,
    ReplicaState,
)
from protocol.primitives import ZERO_UUID

DIRECTORIES_FROM: Final = 2


class DescribeQuorumHandler:
    """Answers DescribeQuorum."""

    def __init__(self, replica: QuorumPeer) -> None:
        self._replica = replica

    def __call__(self, request: DescribeQuorumRequest, context: RequestContext) -> DescribeQuorumResponse:
        if not _is_metadata_log(request):
            return _unknown(request)
        found = self._replica.describe()
        if found.error:
            return _metadata_log_response(_failed(METADATA_PARTITION, found.error))
        has_directories = context.api_version >= DIRECTORIES_FROM
        response = _metadata_log_response(_described(found, has_directories))
        if has_directories:
            response.nodes = [Node(node.id, [Listener(*each) for each in node.listeners]) for node in found.nodes]
        return response


def _is_metadata_log(request: DescribeQuorumRequest) -> bool:
    topic = only(request.topics)
    partition = None if topic is None or topic.topic_name != METADATA_TOPIC else only(topic.partitions)
    return partition is not None and partition.partition_index == METADATA_PARTITION


def _described(found: QuorumDescription, has_directories: bool) -> DescribeQuorumResponsePartitionData:
    return DescribeQuorumResponsePartitionData(
        partition_index=METADATA_PARTITION,
        leader_id=found.leader_id,
        leader_epoch=found.epoch,
        high_watermark=found.high_watermark,
        current_voters=_states(found.voters, has_directories),
        observers=_states(found.observers, has_directories),
    )


def _states(replicas: Sequence[ReplicaStatus], has_directories: bool) -> list[ReplicaState]:
    return [
        ReplicaState(
            each.key.id,
            each.key.directory_id if has_directories else ZERO_UUID,
            each.log_end_offset,
            each.last_fetch_ms,
            each.last_caught_up_ms,
        )
        for each in replicas
    ]


def _failed(index: int, error: ErrorCode) -> DescribeQuorumResponsePartitionData:
    return DescribeQuorumResponsePartitionData(partition_index=index, error_code=error, error_message=error.message)


def _metadata_log_response(partition: DescribeQuorumResponsePartitionData) -> DescribeQuorumResponse:
    return DescribeQuorumResponse(topics=[DescribeQuorumResponseTopicData(METADATA_TOPIC, [partition])])


def _unknown(request: DescribeQuorumRequest) -> DescribeQuorumResponse:
    """Return an error for every partition: only the metadata log has a quorum, and a request names it once."""
    return DescribeQuorumResponse(
        topics=[
            DescribeQuorumResponseTopicData(
                topic.topic_name,
                [_failed(each.partition_index, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION) for each in topic.partitions],
            )
            for topic in request.topics
        ]
    )
