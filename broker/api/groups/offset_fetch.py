"""OffsetFetch (key 9), versions 1-10: the committed offsets of groups.

2+ null topics request all, and errors of the group have a field of their own; 5+ leader epochs; 7+ RequireStable
(KIP-447); 8+ several groups at once; 9+ member id and epoch (KIP-848); 10+ topics by id.
"""

import asyncio
from collections.abc import Callable

from broker.api.pipeline.permission import DESCRIBE_GROUP, DESCRIBE_TOPIC
from broker.api.serving.context import RequestContext
from broker.api.serving.offset_topics import OffsetTopics
from broker.metadata.image.metadata_image import MetadataImage
from broker.runtime.coordinators.group_coordinator import GroupCoordinator
from broker.runtime.partitions.metadata_topic import ClusterMetadataTopic
from protocol.errors import ErrorCode
from protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartition,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopic,
    OffsetFetchResponseTopics,
)

GROUP_ERROR_FROM = 2
GROUPS_FROM = 8
TOPIC_IDS_FROM = 10


class OffsetFetchHandler:
    """Answers OffsetFetch."""

    def __init__(
        self,
        groups: GroupCoordinator,
        image: Callable[[], MetadataImage],
        metadata_topic: ClusterMetadataTopic | None = None,
    ) -> None:
        self._groups = groups
        self._topics = OffsetTopics(image, metadata_topic)

    async def __call__(self, request: OffsetFetchRequest, context: RequestContext) -> OffsetFetchResponse:
        if context.api_version < GROUPS_FROM:
            group = await self._fetch(as_group(request), request.require_stable, context)
            return as_old_response(group, request, context.api_version)
        if len(request.groups) == 1:
            return OffsetFetchResponse(groups=[await self._fetch(request.groups[0], request.require_stable, context)])
        fetches = (self._fetch(group, request.require_stable, context) for group in request.groups)
        return OffsetFetchResponse(groups=await asyncio.gather(*fetches))

    async def _fetch(
        self, request: OffsetFetchRequestGroup, require_stable: bool, context: RequestContext
    ) -> OffsetFetchResponseGroup:
        """Return the offsets of one group that the principal may see."""
        by_id = context.api_version >= TOPIC_IDS_FROM
        fetch = self._fetch_by_id if by_id else self._groups.fetch_offsets
        if context.authorizer is None:
            return await fetch(request, require_stable)
        if not context.allows(DESCRIBE_GROUP, request.group_id):
            return OffsetFetchResponseGroup(group_id=request.group_id, error_code=ErrorCode.GROUP_AUTHORIZATION_FAILED)
        if request.topics is None:
            response = await fetch(request, require_stable)
            response.topics = [each for each in response.topics if context.allows(DESCRIBE_TOPIC, self._named(each))]
            return response
        denied = [each for each in request.topics if self._is_hidden(each, context, by_id=by_id)]
        request.topics = [each for each in request.topics if each not in denied]
        response = await fetch(request, require_stable)
        if response.error_code == ErrorCode.NONE:
            response.topics.extend(_failed_topic(each, ErrorCode.TOPIC_AUTHORIZATION_FAILED) for each in denied)
        return response

    def _named(self, topic: OffsetFetchResponseTopics) -> str:
        found = None if topic.name else self._topics.by_id(topic.topic_id)
        return topic.name if found is None else found.name

    def _is_hidden(self, topic: OffsetFetchRequestTopics, context: RequestContext, *, by_id: bool) -> bool:
        """Whether the principal may not describe a topic; an unknown id has its own error."""
        found = self._topics.by_id(topic.topic_id) if by_id else None
        name = topic.name if found is None else found.name
        return (found is not None or not by_id) and not context.allows(DESCRIBE_TOPIC, name)

    async def _fetch_by_id(self, request: OffsetFetchRequestGroup, require_stable: bool) -> OffsetFetchResponseGroup:
        if request.topics is None:
            return self._with_ids(await self._groups.fetch_offsets(request, require_stable))
        unknown = self._name(request.topics)
        request.topics = [topic for topic in request.topics if topic.name]
        response = await self._groups.fetch_offsets(request, require_stable)
        if response.error_code == ErrorCode.NONE:
            response.topics.extend(_failed_topic(each, ErrorCode.UNKNOWN_TOPIC_ID) for each in unknown)
        return response

    def _name(self, topics: list[OffsetFetchRequestTopics]) -> list[OffsetFetchRequestTopics]:
        """Set the names of the topics by their ids; return the topics without name."""
        for topic in topics:
            found = self._topics.by_id(topic.topic_id)
            topic.name = "" if found is None else found.name
        return [topic for topic in topics if not topic.name]

    def _with_ids(self, response: OffsetFetchResponseGroup) -> OffsetFetchResponseGroup:
        """Set the ids of the topics; leave out deleted topics, which this version cannot name."""
        for topic in response.topics:
            found = self._topics.by_name(topic.name)
            if found is not None:
                topic.topic_id = found.id
        response.topics = [topic for topic in response.topics if any(topic.topic_id)]
        return response


def as_group(request: OffsetFetchRequest) -> OffsetFetchRequestGroup:
    """Return the one group of an old request."""
    if request.topics is None:
        return OffsetFetchRequestGroup(group_id=request.group_id, topics=None)
    topics = [
        OffsetFetchRequestTopics(name=each.name, partition_indexes=each.partition_indexes) for each in request.topics
    ]
    return OffsetFetchRequestGroup(group_id=request.group_id, topics=topics)


def as_old_response(
    group: OffsetFetchResponseGroup, request: OffsetFetchRequest, api_version: int
) -> OffsetFetchResponse:
    """Return the response about one group in the form of versions before 8."""
    if group.error_code == ErrorCode.NONE:
        return OffsetFetchResponse(topics=[_old_topic(topic) for topic in group.topics])
    if api_version >= GROUP_ERROR_FROM:
        return OffsetFetchResponse(error_code=group.error_code)
    return OffsetFetchResponse(
        topics=[
            OffsetFetchResponseTopic(
                topic.name,
                [OffsetFetchResponsePartition(each, -1, -1, "", group.error_code) for each in topic.partition_indexes],
            )
            for topic in request.topics or []
        ]
    )


def _old_topic(topic: OffsetFetchResponseTopics) -> OffsetFetchResponseTopic:
    return OffsetFetchResponseTopic(
        topic.name,
        [
            OffsetFetchResponsePartition(
                each.partition_index, each.committed_offset, each.committed_leader_epoch, each.metadata, each.error_code
            )
            for each in topic.partitions
        ],
    )


def _failed_topic(topic: OffsetFetchRequestTopics, code: ErrorCode) -> OffsetFetchResponseTopics:
    return OffsetFetchResponseTopics(
        name=topic.name,
        topic_id=topic.topic_id,
        partitions=[OffsetFetchResponsePartitions(each, -1, -1, "", code) for each in topic.partition_indexes],
    )
