"""Heartbeat (key 12), versions 0-4: a member is alive. 3+ static members (KIP-345). Answered at once, always."""

from broker.api.serving.context import RequestContext
from broker.runtime.coordinators.group_coordinator import GroupCoordinator
from protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse


class HeartbeatHandler:
    """Answers Heartbeat."""

    def __init__(self, groups: GroupCoordinator) -> None:
        self._groups = groups

    def __call__(self, request: HeartbeatRequest, _context: RequestContext) -> HeartbeatResponse:
        return self._groups.heartbeat(request)
