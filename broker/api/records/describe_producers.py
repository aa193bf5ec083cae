"""DescribeProducers (key 61), version 0: the active producers of a partition (KIP-664).

Any replica answers from its own log, the leader or a follower.
"""

from broker.api.pipeline.permission import READ_TOPIC
from broker.api.serving.context import RequestContext
from broker.metadata.image.topic_names import invalid_name_reason
from broker.runtime.partitions.partition import Partition
from broker.runtime.partitions.registry import Partitions
from protocol.errors import ErrorCode, KafkaError
from protocol.messages.describe_producers import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    PartitionResponse,
    ProducerState,
    TopicResponse,
)


class DescribeProducersHandler:
    """Answers DescribeProducers."""

    def __init__(self, partitions: Partitions) -> None:
        self._partitions = partitions

    def __call__(self, request: DescribeProducersRequest, context: RequestContext) -> DescribeProducersResponse:
        return DescribeProducersResponse(
            topics=[
                TopicResponse(topic.name, self._answers(topic.name, topic.partition_indexes, context))
                for topic in request.topics
            ]
        )

    def _answers(self, topic: str, indexes: list[int], context: RequestContext) -> list[PartitionResponse]:
        if (fault := invalid_name_reason(topic)) is not None:
            return [PartitionResponse(index, ErrorCode.INVALID_TOPIC_EXCEPTION, fault) for index in indexes]
        if not context.allows(READ_TOPIC, topic):
            code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
            return [PartitionResponse(index, code, code.message) for index in indexes]
        return [self._answer(topic, index) for index in indexes]

    def _answer(self, topic: str, index: int) -> PartitionResponse:
        try:
            partition = self._partitions.hosted(topic, index)
        except KafkaError as error:
            topic_is_known = self._partitions.image.topics.by_name(topic) is not None
            return PartitionResponse(index, error.code, None if topic_is_known else error.message)
        return PartitionResponse(index, active_producers=_producers(partition))


def _producers(partition: Partition) -> list[ProducerState]:
    return [
        ProducerState(
            entry.producer_id,
            entry.epoch,
            entry.last_sequence,
            entry.last_timestamp,
            entry.coordinator_epoch,
            entry.transaction_start,
        )
        for entry in partition.log.producers.entries.values()
    ]
