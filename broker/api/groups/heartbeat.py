"""Heartbeat (key 12), versions 0-4: keep a member's session alive; 3+ static members (KIP-345). Never waits."""

from broker.api.pipeline.permission import READ_GROUP
from broker.api.serving.context import RequestContext
from broker.runtime.coordinators.group_coordinator import GroupCoordinator
from protocol.errors import ErrorCode
from protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse


class HeartbeatHandler:
    """Answers Heartbeat."""

    def __init__(self, groups: GroupCoordinator) -> None:
        self._groups = groups

    def __call__(self, request: HeartbeatRequest, context: RequestContext) -> HeartbeatResponse:
        if not context.allows(READ_GROUP, request.group_id):
            return HeartbeatResponse(error_code=ErrorCode.GROUP_AUTHORIZATION_FAILED)
        return self._groups.heartbeat(request)
