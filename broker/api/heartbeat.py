"""Heartbeat (key 12), versions 0-4: keep a member's session alive; 3+ static members (KIP-345). Never waits."""

from broker.api.serving.context import RequestContext
from broker.runtime.coordinators.group_coordinator import GroupCoordinator
from protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse


class HeartbeatHandler:
    """Answers Heartbeat."""

    def __init__(self, groups: GroupCoordinator) -> None:
        self._groups = groups

    def __call__(self, request: HeartbeatRequest, _context: RequestContext) -> HeartbeatResponse:
        return self._groups.heartbeat(request)
