"""OffsetCommit (key 8), versions 2-10: store the committed offsets of a group.

2-4 a retention time of the client's own; 6+ leader epochs; 7+ static members (KIP-345); 9+ GROUP_ID_NOT_FOUND and
STALE_MEMBER_EPOCH (KIP-848); 10+ topics by id. Missing topics and partitions are refused here; the rest goes to the
group.
"""

from collections.abc import Awaitable, Callable

from broker.api.pipeline.permission import READ_GROUP, READ_TOPIC
from broker.api.serving.access import require_group
from broker.api.serving.context import RequestContext
from broker.api.serving.offset_topics import OffsetTopics
from broker.metadata.image.metadata_image import MetadataImage
from broker.metadata.image.topic_image import TopicImage
from broker.runtime.coordinators.group_coordinator import GroupCoordinator
from broker.runtime.partitions.metadata_topic import ClusterMetadataTopic
from protocol.errors import ErrorCode
from protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)

TOPIC_IDS_FROM = 10


class OffsetCommitHandler:
    """Answers OffsetCommit."""

    def __init__(
        self,
        groups: GroupCoordinator,
        image: Callable[[], MetadataImage],
        metadata_topic: ClusterMetadataTopic | None = None,
    ) -> None:
        self._groups = groups
        self._topics = OffsetTopics(image, metadata_topic)

    def __call__(
        self, request: OffsetCommitRequest, context: RequestContext
    ) -> OffsetCommitResponse | Awaitable[OffsetCommitResponse]:
        require_group(context, READ_GROUP, request.group_id)
        known, refused = self._split(request.topics, context)
        if not known:
            return OffsetCommitResponse(topics=refused)
        request.topics = known
        response = self._groups.commit_offsets(request, context.api_version)
        if len(known) == 1 and not refused:
            return response
        if not isinstance(response, OffsetCommitResponse):
            return _merged_later(response, refused)
        response.topics = merged(response.topics, refused)
        return response

    def _split(
        self, topics: list[OffsetCommitRequestTopic], context: RequestContext
    ) -> tuple[list[OffsetCommitRequestTopic], list[OffsetCommitResponseTopic]]:
        """Split the request into existing partitions, by topic name, and errors for the rest."""
        by_id = context.api_version >= TOPIC_IDS_FROM
        known: list[OffsetCommitRequestTopic] = []
        refused: list[OffsetCommitResponseTopic] = []
        for topic in topics:
            found = self._topics.by_id(topic.topic_id) if by_id else self._topics.by_name(topic.name)
            error = ErrorCode.UNKNOWN_TOPIC_ID if by_id and found is None else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            name = topic.name if found is None else found.name
            if (found is not None or not by_id) and not context.allows(READ_TOPIC, name):
                found, error = None, ErrorCode.TOPIC_AUTHORIZATION_FAILED
            existing = [each for each in topic.partitions if _exists(found, each.partition_index)]
            missing = [
                OffsetCommitResponsePartition(each.partition_index, error)
                for each in topic.partitions
                if not _exists(found, each.partition_index)
            ]
            if existing:
                known.append(OffsetCommitRequestTopic(name, topic.topic_id, existing))
            if missing:
                refused.append(OffsetCommitResponseTopic(name, topic.topic_id, missing))
        return known, refused


async def _merged_later(
    pending: Awaitable[OffsetCommitResponse], refused: list[OffsetCommitResponseTopic]
) -> OffsetCommitResponse:
    response = await pending
    response.topics = merged(response.topics, refused)
    return response


def merged(
    topics: list[OffsetCommitResponseTopic], refused: list[OffsetCommitResponseTopic]
) -> list[OffsetCommitResponseTopic]:
    """Merge results into one entry per topic, however often the request names the topic."""
    by_topic: dict[tuple[str, bytes], OffsetCommitResponseTopic] = {}
    for topic in (*topics, *refused):
        merged_topic = by_topic.setdefault((topic.name, topic.topic_id), topic)
        if merged_topic is not topic:
            merged_topic.partitions.extend(topic.partitions)
    return list(by_topic.values())


def _exists(topic: TopicImage | None, partition: int) -> bool:
    return topic is not None and topic.partition(partition) is not None
