"""OffsetForLeaderEpoch (key 23), versions 2-4: the end offset of a leader epoch in the leader's log (KIP-101, KIP-320).

Followers and consumers use it to find where their log diverges after an election. Only the leader answers. 2+ checks
the sender's current leader epoch; 3+ names the replica that asks, which changes nothing here.
"""

from broker.api.pipeline.permission import CLUSTER_ACTION, CLUSTER_RESOURCE_NAME, DESCRIBE_TOPIC
from broker.api.serving.context import RequestContext
from broker.replication.epochs import EpochEnd
from broker.runtime.partitions import partition_reads
from broker.runtime.partitions.metadata_topic import ClusterMetadataTopic
from broker.runtime.partitions.registry import Partitions
from protocol.errors import ErrorCode, KafkaError
from protocol.ids import LeaderEpoch
from protocol.messages.offset_for_leader_epoch import (
    EpochEndOffset,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopicResult,
)


class OffsetForLeaderEpochHandler:
    """Answers OffsetForLeaderEpoch. `metadata_topic` is None where clients may not read `__cluster_metadata`."""

    def __init__(self, partitions: Partitions, metadata_topic: ClusterMetadataTopic | None = None) -> None:
        self._partitions = partitions
        self._metadata_topic = metadata_topic

    def __call__(self, request: OffsetForLeaderEpochRequest, context: RequestContext) -> OffsetForLeaderEpochResponse:
        is_broker = context.allows(CLUSTER_ACTION, CLUSTER_RESOURCE_NAME)
        return OffsetForLeaderEpochResponse(
            topics=[
                OffsetForLeaderTopicResult(
                    topic.topic,
                    [self._answer(topic.topic, p) for p in topic.partitions]
                    if is_broker or context.allows(DESCRIBE_TOPIC, topic.topic)
                    else [EpochEndOffset(ErrorCode.TOPIC_AUTHORIZATION_FAILED, p.partition) for p in topic.partitions],
                )
                for topic in request.topics
            ]
        )

    def _answer(self, topic: str, asked: OffsetForLeaderPartition) -> EpochEndOffset:
        try:
            end = self._epoch_end(topic, asked)
        except KafkaError as error:
            return EpochEndOffset(error.code, asked.partition)
        return EpochEndOffset(0, asked.partition, end.epoch, end.end_offset)

    def _epoch_end(self, topic: str, asked: OffsetForLeaderPartition) -> EpochEnd:
        """Return the epoch's end. Raises KafkaError."""
        current, epoch = LeaderEpoch(asked.current_leader_epoch), LeaderEpoch(asked.leader_epoch)
        if self._metadata_topic is not None and self._metadata_topic.matches(topic):
            partition = self._metadata_topic.serving(self._partitions.image, asked.partition)
            return partition.epoch_end(current, epoch)
        hosted = self._partitions.hosted(topic, asked.partition)
        return partition_reads.epoch_end(hosted, current, epoch)
