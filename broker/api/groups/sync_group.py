"""SyncGroup (key 14), versions 0-5: return the member's assignment of this generation; the leader sends all of them.

3+ static members (KIP-345); 5+ protocol type and name, which are then mandatory (KIP-559).
"""

from broker.api.pipeline.permission import READ_GROUP
from broker.api.serving.context import RequestContext
from broker.groups.answers import sync_refused
from broker.runtime.coordinators.group_coordinator import GroupCoordinator
from protocol.errors import ErrorCode
from protocol.messages.sync_group import SyncGroupRequest, SyncGroupResponse

PROTOCOL_REQUIRED_FROM = 5


class SyncGroupHandler:
    """Answers SyncGroup."""

    def __init__(self, groups: GroupCoordinator) -> None:
        self._groups = groups

    async def __call__(self, request: SyncGroupRequest, context: RequestContext) -> SyncGroupResponse:
        lacks_protocol = request.protocol_type is None or request.protocol_name is None
        if lacks_protocol and context.api_version >= PROTOCOL_REQUIRED_FROM:
            return sync_refused(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
        if not context.allows(READ_GROUP, request.group_id):
            return sync_refused(ErrorCode.GROUP_AUTHORIZATION_FAILED)
        return await self._groups.sync_group(request)
