"""TxnOffsetCommit (key 28), versions 0-5: commit offsets of a group in a producer's transaction (KIP-98).

2+ leader epochs; 3+ member and generation (KIP-447); 4+ TRANSACTION_ABORTABLE; 5+ adds the offsets to the transaction,
so that the client sends no AddOffsetsToTxn (KIP-890). Missing topics and partitions are refused here; the rest goes to
the group.
"""

from collections.abc import Callable

from broker.api.pipeline.permission import READ_GROUP, READ_TOPIC, WRITE_TRANSACTIONAL_ID
from broker.api.serving.access import require, require_group
from broker.api.serving.context import RequestContext
from broker.api.serving.offset_topics import OffsetTopics
from broker.metadata.image.metadata_image import MetadataImage
from broker.metadata.image.topic_image import TopicImage
from broker.runtime.coordinators.group_coordinator import GroupCoordinator
from broker.runtime.partitions.metadata_topic import ClusterMetadataTopic
from protocol.errors import ErrorCode
from protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestTopic,
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)

LOADING_ERROR_FROM = 2
"""Older clients crash on COORDINATOR_LOAD_IN_PROGRESS (KAFKA-7296)."""


class TxnOffsetCommitHandler:
    """Answers TxnOffsetCommit."""

    def __init__(
        self,
        groups: GroupCoordinator,
        image: Callable[[], MetadataImage],
        metadata_topic: ClusterMetadataTopic | None = None,
    ) -> None:
        self._groups = groups
        self._topics = OffsetTopics(image, metadata_topic)

    async def __call__(self, request: TxnOffsetCommitRequest, context: RequestContext) -> TxnOffsetCommitResponse:
        require(
            context, WRITE_TRANSACTIONAL_ID, request.transactional_id, ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
        )
        require_group(context, READ_GROUP, request.group_id)
        known, refused = self._split(request.topics, context)
        if not known:
            return TxnOffsetCommitResponse(topics=refused)
        request.topics = known
        response = await self._groups.commit_transactional_offsets(request, context.api_version)
        if context.api_version < LOADING_ERROR_FROM:
            _avoid_loading_error(response)
        response.topics = _merged(response.topics, refused)
        return response

    def _split(
        self, topics: list[TxnOffsetCommitRequestTopic], context: RequestContext
    ) -> tuple[list[TxnOffsetCommitRequestTopic], list[TxnOffsetCommitResponseTopic]]:
        """Split the request into existing partitions and errors for the rest."""
        known: list[TxnOffsetCommitRequestTopic] = []
        refused: list[TxnOffsetCommitResponseTopic] = []
        for topic in topics:
            found, error = self._topics.by_name(topic.name), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            if not context.allows(READ_TOPIC, topic.name):
                found, error = None, ErrorCode.TOPIC_AUTHORIZATION_FAILED
            existing = [each for each in topic.partitions if _exists(found, each.partition_index)]
            missing = [
                TxnOffsetCommitResponsePartition(each.partition_index, error)
                for each in topic.partitions
                if not _exists(found, each.partition_index)
            ]
            if existing:
                known.append(TxnOffsetCommitRequestTopic(topic.name, existing))
            if missing:
                refused.append(TxnOffsetCommitResponseTopic(topic.name, missing))
        return known, refused


def _exists(topic: TopicImage | None, partition: int) -> bool:
    return topic is not None and topic.partition(partition) is not None


def _avoid_loading_error(response: TxnOffsetCommitResponse) -> None:
    for topic in response.topics:
        for partition in topic.partitions:
            if partition.error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
                partition.error_code = ErrorCode.COORDINATOR_NOT_AVAILABLE


def _merged(
    topics: list[TxnOffsetCommitResponseTopic], refused: list[TxnOffsetCommitResponseTopic]
) -> list[TxnOffsetCommitResponseTopic]:
    """Merge results into one entry per topic."""
    by_name: dict[str, TxnOffsetCommitResponseTopic] = {}
    for topic in (*topics, *refused):
        merged = by_name.setdefault(topic.name, topic)
        if merged is not topic:
            merged.partitions.extend(topic.partitions)
    return list(by_name.values())
