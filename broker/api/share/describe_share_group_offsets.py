"""DescribeShareGroupOffsets (key 90), versions 0-1: start offsets and lags of share groups (KIP-932).

1+ has the lag (KIP-1226).
"""

from broker.api.pipeline.permission import DESCRIBE_GROUP, DESCRIBE_TOPIC
from broker.api.serving.access import denied_names
from broker.api.serving.context import RequestContext
from broker.runtime.coordinators.share_group_coordinator import ShareGroupCoordinator
from protocol.errors import ErrorCode
from protocol.messages.describe_share_group_offsets import (
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsRequestGroup,
    DescribeShareGroupOffsetsRequestTopic,
    DescribeShareGroupOffsetsResponse,
    DescribeShareGroupOffsetsResponseGroup,
    DescribeShareGroupOffsetsResponsePartition,
    DescribeShareGroupOffsetsResponseTopic,
)


class DescribeShareGroupOffsetsHandler:
    """Answers DescribeShareGroupOffsets."""

    def __init__(self, groups: ShareGroupCoordinator) -> None:
        self._groups = groups

    async def __call__(
        self, request: DescribeShareGroupOffsetsRequest, context: RequestContext
    ) -> DescribeShareGroupOffsetsResponse:
        groups = [await self._describe(each, context) for each in request.groups]
        return DescribeShareGroupOffsetsResponse(groups=groups)

    async def _describe(
        self, request: DescribeShareGroupOffsetsRequestGroup, context: RequestContext
    ) -> DescribeShareGroupOffsetsResponseGroup:
        """Describe one group: the topics that the principal may describe, and an error for others that it names."""
        if not context.allows(DESCRIBE_GROUP, request.group_id):
            code = ErrorCode.GROUP_AUTHORIZATION_FAILED
            return DescribeShareGroupOffsetsResponseGroup(request.group_id, error_code=code, error_message=code.message)
        if request.topics is None:
            response = await self._groups.describe_offsets(request)
            hidden = denied_names(context, DESCRIBE_TOPIC, (topic.topic_name for topic in response.topics))
            response.topics = [topic for topic in response.topics if topic.topic_name not in hidden]
            return response
        denied = denied_names(context, DESCRIBE_TOPIC, (topic.topic_name for topic in request.topics))
        refused = [topic for topic in request.topics if topic.topic_name in denied]
        request.topics = [topic for topic in request.topics if topic.topic_name not in denied]
        response = await self._groups.describe_offsets(request)
        if response.error_code == ErrorCode.NONE:
            response.topics.extend(_refused(topic) for topic in refused)
        return response


def _refused(topic: DescribeShareGroupOffsetsRequestTopic) -> DescribeShareGroupOffsetsResponseTopic:
    code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
    partitions = [
        DescribeShareGroupOffsetsResponsePartition(each, error_code=code, error_message=code.message)
        for each in topic.partitions
    ]
    return DescribeShareGroupOffsetsResponseTopic(topic.topic_name, partitions=partitions)
