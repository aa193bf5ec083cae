"""DescribeGroups (key 15), versions 0-6: state, protocol and members of groups.

3+ authorized operations; 4+ instance ids of static members; 6+ GROUP_ID_NOT_FOUND with a message for a missing group,
which earlier versions report as Dead (KIP-1043).
"""

from broker.api.pipeline.permission import DESCRIBE_GROUP
from broker.api.serving.access import denied_names
from broker.api.serving.authorized_operations import group_operations
from broker.api.serving.context import RequestContext
from broker.runtime.coordinators.group_coordinator import GroupCoordinator
from protocol.errors import ErrorCode
from protocol.messages.describe_groups import DescribedGroup, DescribeGroupsRequest, DescribeGroupsResponse

AUTHORIZED_OPERATIONS_FROM = 3


class DescribeGroupsHandler:
    """Answers DescribeGroups."""

    def __init__(self, groups: GroupCoordinator) -> None:
        self._groups = groups

    async def __call__(self, request: DescribeGroupsRequest, context: RequestContext) -> DescribeGroupsResponse:
        denied = denied_names(context, DESCRIBE_GROUP, request.groups)
        wanted = [each for each in request.groups if each not in denied]
        groups = await self._groups.describe_groups(wanted, context.api_version)
        if request.include_authorized_operations and context.api_version >= AUTHORIZED_OPERATIONS_FROM:
            for group in groups:
                _authorize(group, context)
        groups += [DescribedGroup(ErrorCode.GROUP_AUTHORIZATION_FAILED, group_id=each) for each in sorted(denied)]
        return DescribeGroupsResponse(groups=groups)


def _authorize(group: DescribedGroup, context: RequestContext) -> None:
    if group.error_code == ErrorCode.NONE:
        group.authorized_operations = group_operations(context, group.group_id)
