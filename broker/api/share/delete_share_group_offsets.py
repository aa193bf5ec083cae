"""DeleteShareGroupOffsets (key 92), version 0: forget topics of a share group without members (KIP-932)."""

from broker.api.pipeline.permission import DELETE_GROUP, READ_TOPIC
from broker.api.serving.access import denied_names
from broker.api.serving.context import RequestContext
from broker.runtime.coordinators.share_group_coordinator import ShareGroupCoordinator
from protocol.errors import ErrorCode
from protocol.messages.delete_share_group_offsets import (
    DeleteShareGroupOffsetsRequest,
    DeleteShareGroupOffsetsResponse,
    DeleteShareGroupOffsetsResponseTopic,
)


class DeleteShareGroupOffsetsHandler:
    """Answers DeleteShareGroupOffsets."""

    def __init__(self, groups: ShareGroupCoordinator) -> None:
        self._groups = groups

    async def __call__(
        self, request: DeleteShareGroupOffsetsRequest, context: RequestContext
    ) -> DeleteShareGroupOffsetsResponse:
        if not context.allows(DELETE_GROUP, request.group_id):
            return DeleteShareGroupOffsetsResponse(error_code=ErrorCode.GROUP_AUTHORIZATION_FAILED)
        denied = denied_names(context, READ_TOPIC, (topic.topic_name for topic in request.topics))
        request.topics = [topic for topic in request.topics if topic.topic_name not in denied]
        response = await self._groups.delete_offsets(request)
        if response.error_code == ErrorCode.NONE:
            code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
            response.responses.extend(
                DeleteShareGroupOffsetsResponseTopic(name, error_code=code, error_message=code.message)
                for name in sorted(denied)
            )
        return response
