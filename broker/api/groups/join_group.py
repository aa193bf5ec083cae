"""JoinGroup (key 11), versions 0-9: join the next generation of a group.

1+ rebalance timeout; 4+ a new member gets its member id first and joins again (KIP-394); 5+ static members (KIP-345);
7+ protocol type, and a null protocol name where there is none; 8+ reason (KIP-800); 9+ SkipAssignment (KIP-814).
"""

from broker.api.pipeline.permission import READ_GROUP
from broker.api.serving.context import RequestContext
from broker.api.serving.group_caller import caller
from broker.groups.answers import join_refused
from broker.runtime.coordinators.group_coordinator import GroupCoordinator
from protocol.errors import ErrorCode
from protocol.messages.join_group import JoinGroupRequest, JoinGroupResponse

NULL_PROTOCOL_NAME_FROM = 7


class JoinGroupHandler:
    """Answers JoinGroup."""

    def __init__(self, groups: GroupCoordinator) -> None:
        self._groups = groups

    async def __call__(self, request: JoinGroupRequest, context: RequestContext) -> JoinGroupResponse:
        if not context.allows(READ_GROUP, request.group_id):
            response = join_refused(ErrorCode.GROUP_AUTHORIZATION_FAILED)
            response.protocol_name = protocol_name(None, context.api_version)
            return response
        response = await self._groups.join_group(request, caller(context))
        response.protocol_name = protocol_name(response.protocol_name, context.api_version)
        return response


def protocol_name(name: str | None, api_version: int) -> str | None:
    """Return the protocol name of the response: no protocol is "" in old versions and null in later ones."""
    return name or (None if api_version >= NULL_PROTOCOL_NAME_FROM else "")
