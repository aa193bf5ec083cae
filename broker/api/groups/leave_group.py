"""LeaveGroup (key 13), versions 0-5: members leave, or are removed.

0-2 name one member, whose error is the response's; 3+ a list, by member id or by instance id alone (KIP-345); 5+
reasons.
"""

from broker.api.pipeline.permission import READ_GROUP
from broker.api.serving.context import RequestContext
from broker.runtime.coordinators.group_coordinator import GroupCoordinator
from protocol.errors import ErrorCode
from protocol.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse, MemberIdentity

MEMBER_LIST_FROM = 3


class LeaveGroupHandler:
    """Answers LeaveGroup."""

    def __init__(self, groups: GroupCoordinator) -> None:
        self._groups = groups

    async def __call__(self, request: LeaveGroupRequest, context: RequestContext) -> LeaveGroupResponse:
        if not context.allows(READ_GROUP, request.group_id):
            return LeaveGroupResponse(error_code=ErrorCode.GROUP_AUTHORIZATION_FAILED)
        if context.api_version >= MEMBER_LIST_FROM:
            return await self._groups.leave_group(request.group_id, request.members)
        response = await self._groups.leave_group(request.group_id, [MemberIdentity(member_id=request.member_id)])
        member_errors = [member.error_code for member in response.members]
        return LeaveGroupResponse(error_code=response.error_code or next(iter(member_errors), 0))
