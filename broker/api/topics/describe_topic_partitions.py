"""DescribeTopicPartitions (key 75), version 0: topics in name order, page by page, with eligible leaders (KIP-966).

A page is limited by partitions, not topics; the cursor names the first partition of the next page.
"""

from broker.api.pipeline.permission import DESCRIBE_TOPIC
from broker.api.serving.authorized_operations import topic_operations
from broker.api.serving.context import RequestContext
from broker.api.serving.metadata_source import MetadataSource, leader_endpoint, offline_replicas
from broker.metadata.image.metadata_image import MetadataImage
from broker.metadata.image.partition import NO_LEADER, PartitionRegistration
from broker.metadata.image.topic_image import TopicImage
from broker.metadata.image.topic_names import invalid_name_reason, is_internal
from broker.runtime.partitions.metadata_topic import ClusterMetadataTopic
from protocol.errors import ErrorCode, KafkaError
from protocol.messages.describe_topic_partitions import (
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsRequestCursor,
    DescribeTopicPartitionsResponse,
    DescribeTopicPartitionsResponseCursor,
    DescribeTopicPartitionsResponsePartition,
    DescribeTopicPartitionsResponseTopic,
)


class DescribeTopicPartitionsHandler:
    """Answers DescribeTopicPartitions. `partition_limit` is `max.request.partition.size.limit`.

    `metadata_topic` (None where clients may not read it) is described to clients that name it.
    """

    def __init__(
        self, metadata: MetadataSource, *, partition_limit: int, metadata_topic: ClusterMetadataTopic | None = None
    ) -> None:
        self._metadata = metadata
        self._metadata_topic = metadata_topic
        self._partition_limit = partition_limit

    def __call__(
        self, request: DescribeTopicPartitionsRequest, context: RequestContext
    ) -> DescribeTopicPartitionsResponse:
        image, cursor = self._metadata.image, request.cursor
        asked = {topic.name for topic in request.topics}
        _check_cursor(cursor, asked)
        names = sorted(asked) if asked else image.topics.names()
        remaining = max(1, min(self._partition_limit, request.response_partition_limit))
        response = DescribeTopicPartitionsResponse()
        refused: list[DescribeTopicPartitionsResponseTopic] = []
        for name in names:
            if cursor is not None and name < cursor.topic_name:
                continue
            if not context.allows(DESCRIBE_TOPIC, name):
                if asked:
                    refused.append(
                        DescribeTopicPartitionsResponseTopic(ErrorCode.TOPIC_AUTHORIZATION_FAILED, name=name)
                    )
                continue
            start = cursor.partition_index if cursor is not None and name == cursor.topic_name else 0
            if remaining == 0:
                response.next_cursor = DescribeTopicPartitionsResponseCursor(name, start)
                break
            topic = image.topics.by_name(name)
            if topic is None and self._metadata_topic is not None and self._metadata_topic.matches(name):
                topic = self._metadata_topic.topic(image)
            if topic is None:
                response.topics.append(_missing(name, context))
                continue
            indexes = [index for index in sorted(topic.partitions) if index >= start]
            page = indexes[:remaining]
            response.topics.append(_described(topic, page, image, context))
            remaining -= len(page)
            if len(page) < len(indexes):
                response.next_cursor = DescribeTopicPartitionsResponseCursor(name, indexes[len(page)])
                break
        response.topics += refused
        return response


def _check_cursor(cursor: DescribeTopicPartitionsRequestCursor | None, asked: set[str]) -> None:
    """Raise KafkaError INVALID_REQUEST for a cursor that is not within the request."""
    if cursor is None:
        return
    if asked and cursor.topic_name not in asked:
        raise KafkaError(
            ErrorCode.INVALID_REQUEST, f"the cursor's topic {cursor.topic_name} is not among the requested topics"
        )
    if cursor.partition_index < 0:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"the cursor's partition {cursor.partition_index} is negative")


def _missing(name: str, context: RequestContext) -> DescribeTopicPartitionsResponseTopic:
    invalid = invalid_name_reason(name) is not None
    code = ErrorCode.INVALID_TOPIC_EXCEPTION if invalid else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    return DescribeTopicPartitionsResponseTopic(
        error_code=code,
        name=name,
        is_internal=is_internal(name),
        topic_authorized_operations=topic_operations(context, name),
    )


def _described(
    topic: TopicImage, indexes: list[int], image: MetadataImage, context: RequestContext
) -> DescribeTopicPartitionsResponseTopic:
    return DescribeTopicPartitionsResponseTopic(
        name=topic.name,
        topic_id=topic.id,
        is_internal=is_internal(topic.name),
        partitions=[_partition(index, topic.partitions[index], image, context.listener) for index in indexes],
        topic_authorized_operations=topic_operations(context, topic.name),
    )


def _partition(
    index: int, partition: PartitionRegistration, image: MetadataImage, listener: str
) -> DescribeTopicPartitionsResponsePartition:
    has_leader = leader_endpoint(image.brokers, partition.leader, listener) is not None
    return DescribeTopicPartitionsResponsePartition(
        partition_index=index,
        leader_id=partition.leader if has_leader else NO_LEADER,
        leader_epoch=partition.leader_epoch,
        replica_nodes=list(partition.replicas),
        isr_nodes=list(partition.isr),
        eligible_leader_replicas=list(partition.elr),
        last_known_elr=list(partition.last_known_elr),
        offline_replicas=offline_replicas(partition, image.brokers, listener),
    )
