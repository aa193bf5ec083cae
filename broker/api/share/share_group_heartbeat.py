"""ShareGroupHeartbeat (key 76), version 1: a member of a share group joins, reports or leaves (KIP-932)."""

from broker.api.pipeline.permission import READ_GROUP
from broker.api.serving.access import require_described, require_group
from broker.api.serving.context import RequestContext
from broker.api.serving.group_caller import caller
from broker.runtime.coordinators.share_group_coordinator import ShareGroupCoordinator
from protocol.messages.share_group_heartbeat import ShareGroupHeartbeatRequest, ShareGroupHeartbeatResponse


class ShareGroupHeartbeatHandler:
    """Answers ShareGroupHeartbeat."""

    def __init__(self, groups: ShareGroupCoordinator) -> None:
        self._groups = groups

    async def __call__(
        self, request: ShareGroupHeartbeatRequest, context: RequestContext
    ) -> ShareGroupHeartbeatResponse:
        require_group(context, READ_GROUP, request.group_id)
        require_described(context, request.subscribed_topic_names or ())
        return await self._groups.heartbeat(request, caller(context))
