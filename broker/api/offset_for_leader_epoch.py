"""OffsetForLeaderEpoch (key 23), versions 2-4: where an epoch ended in the leader's log (KIP-101, KIP-320).

Followers and consumers ask it to find out how much of what they hold survived an election. Only the leader answers.
2+ checks the epoch that the asker believes in; 3+ says who asks, which changes nothing here.
"""

from broker.api.context import RequestContext
from broker.runtime import partition_reads
from broker.runtime.partitions import Partitions
from protocol.errors import KafkaError
from protocol.messages.offset_for_leader_epoch import (
    EpochEndOffset,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopicResult,
)


class OffsetForLeaderEpochHandler:
    """Answers OffsetForLeaderEpoch."""

    def __init__(self, partitions: Partitions) -> None:
        self._partitions = partitions

    def __call__(self, request: OffsetForLeaderEpochRequest, context: RequestContext) -> OffsetForLeaderEpochResponse:
        return OffsetForLeaderEpochResponse(
            topics=[
                OffsetForLeaderTopicResult(topic.topic, [self._answer(topic.topic, p) for p in topic.partitions])
                for topic in request.topics
            ]
        )

    def _answer(self, topic: str, asked: OffsetForLeaderPartition) -> EpochEndOffset:
        try:
            partition = self._partitions.hosted(topic, asked.partition)
            end = partition_reads.epoch_end(partition, asked.current_leader_epoch, asked.leader_epoch)
        except KafkaError as error:
            return EpochEndOffset(error.code, asked.partition)
        return EpochEndOffset(0, asked.partition, end.epoch, end.end_offset)
