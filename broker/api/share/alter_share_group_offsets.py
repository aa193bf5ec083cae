"""AlterShareGroupOffsets (key 91), version 0: start offsets of a share group without members (KIP-932)."""

from broker.api.pipeline.permission import READ_GROUP, READ_TOPIC
from broker.api.serving.access import denied_names
from broker.api.serving.context import RequestContext
from broker.runtime.coordinators.share_group_coordinator import ShareGroupCoordinator
from protocol.errors import ErrorCode
from protocol.messages.alter_share_group_offsets import (
    AlterShareGroupOffsetsRequest,
    AlterShareGroupOffsetsRequestTopic,
    AlterShareGroupOffsetsResponse,
    AlterShareGroupOffsetsResponsePartition,
    AlterShareGroupOffsetsResponseTopic,
)


class AlterShareGroupOffsetsHandler:
    """Answers AlterShareGroupOffsets."""

    def __init__(self, groups: ShareGroupCoordinator) -> None:
        self._groups = groups

    async def __call__(
        self, request: AlterShareGroupOffsetsRequest, context: RequestContext
    ) -> AlterShareGroupOffsetsResponse:
        if not context.allows(READ_GROUP, request.group_id):
            return AlterShareGroupOffsetsResponse(error_code=ErrorCode.GROUP_AUTHORIZATION_FAILED)
        denied = denied_names(context, READ_TOPIC, (topic.topic_name for topic in request.topics))
        refused = [topic for topic in request.topics if topic.topic_name in denied]
        request.topics = [topic for topic in request.topics if topic.topic_name not in denied]
        response = await self._groups.alter_offsets(request)
        if response.error_code == ErrorCode.NONE:
            response.responses.extend(_refused(topic) for topic in refused)
        return response


def _refused(topic: AlterShareGroupOffsetsRequestTopic) -> AlterShareGroupOffsetsResponseTopic:
    code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
    partitions = [
        AlterShareGroupOffsetsResponsePartition(each.partition_index, code, code.message) for each in topic.partitions
    ]
    return AlterShareGroupOffsetsResponseTopic(topic.topic_name, partitions=partitions)
