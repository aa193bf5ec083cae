"""OffsetDelete (key 47), version 0: delete a group's committed offsets of some partitions (KIP-496)."""

from collections.abc import Callable, Set

from broker.api.pipeline.permission import DELETE_GROUP, READ_TOPIC
from broker.api.serving.access import denied_names
from broker.api.serving.context import RequestContext
from broker.api.serving.offset_topics import OffsetTopics
from broker.metadata.image.metadata_image import MetadataImage
from broker.runtime.coordinators.group_coordinator import GroupCoordinator
from broker.runtime.partitions.metadata_topic import ClusterMetadataTopic
from protocol.errors import ErrorCode
from protocol.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)


class OffsetDeleteHandler:
    """Answers OffsetDelete.

    Missing topics and partitions are refused here; the rest goes to the group, even if it is empty.
    """

    def __init__(
        self,
        groups: GroupCoordinator,
        image: Callable[[], MetadataImage],
        metadata_topic: ClusterMetadataTopic | None = None,
    ) -> None:
        self._groups = groups
        self._topics = OffsetTopics(image, metadata_topic)

    async def __call__(self, request: OffsetDeleteRequest, context: RequestContext) -> OffsetDeleteResponse:
        if not context.allows(DELETE_GROUP, request.group_id):
            return OffsetDeleteResponse(error_code=ErrorCode.GROUP_AUTHORIZATION_FAILED)
        denied = denied_names(context, READ_TOPIC, (topic.name for topic in request.topics))
        missing: dict[str, set[int]] = {}
        for topic in request.topics:
            missing.setdefault(topic.name, set()).update(
                _asked(topic) if topic.name in denied else self._missing(topic)
            )
        known = [OffsetDeleteRequestTopic(topic.name, _without(topic, missing[topic.name])) for topic in request.topics]
        request.topics = [topic for topic in known if topic.partitions]
        response = await self._groups.delete_offsets(request)
        if response.error_code == ErrorCode.NONE:
            _add_missing(response, missing, denied)
        return response

    def _missing(self, topic: OffsetDeleteRequestTopic) -> set[int]:
        found = self._topics.by_name(topic.name)
        asked = _asked(topic)
        return asked if found is None else {each for each in asked if found.partition(each) is None}


def _asked(topic: OffsetDeleteRequestTopic) -> set[int]:
    return {each.partition_index for each in topic.partitions}


def _without(topic: OffsetDeleteRequestTopic, missing: set[int]) -> list[OffsetDeleteRequestPartition]:
    return [each for each in topic.partitions if each.partition_index not in missing]


def _add_missing(response: OffsetDeleteResponse, missing: dict[str, set[int]], denied: Set[str]) -> None:
    answered = {topic.name: topic for topic in response.topics}
    for name, partitions in missing.items():
        code = ErrorCode.TOPIC_AUTHORIZATION_FAILED if name in denied else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        if partitions:
            if name not in answered:
                answered[name] = OffsetDeleteResponseTopic(name)
                response.topics.append(answered[name])
            answered[name].partitions.extend(OffsetDeleteResponsePartition(each, code) for each in sorted(partitions))
