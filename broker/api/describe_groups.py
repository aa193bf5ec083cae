"""DescribeGroups (key 15), versions 0-6: state, protocol and members of groups.

3+ authorized operations; 4+ instance ids of static members; 6+ GROUP_ID_NOT_FOUND with a message for a missing group,
which earlier versions report as Dead (KIP-1043).
"""

from typing import Final

from broker.api.pipeline.permission import AclOperation
from broker.api.serving.authorized_operations import operation_bits
from broker.api.serving.context import RequestContext
from broker.runtime.coordinators.group_coordinator import GroupCoordinator
from protocol.errors import ErrorCode
from protocol.messages.describe_groups import DescribedGroup, DescribeGroupsRequest, DescribeGroupsResponse

AUTHORIZED_OPERATIONS_FROM = 3

GROUP_OPERATIONS: Final = operation_bits(
    (
        AclOperation.READ,
        AclOperation.DELETE,
        AclOperation.DESCRIBE,
        AclOperation.DESCRIBE_CONFIGS,
        AclOperation.ALTER_CONFIGS,
    )
)


class DescribeGroupsHandler:
    """Answers DescribeGroups."""

    def __init__(self, groups: GroupCoordinator) -> None:
        self._groups = groups

    async def __call__(self, request: DescribeGroupsRequest, context: RequestContext) -> DescribeGroupsResponse:
        groups = await self._groups.describe_groups(request.groups, context.api_version)
        if request.include_authorized_operations and context.api_version >= AUTHORIZED_OPERATIONS_FROM:
            for group in groups:
                _authorize(group)
        return DescribeGroupsResponse(groups=groups)


def _authorize(group: DescribedGroup) -> None:
    if group.error_code == ErrorCode.NONE:
        group.authorized_operations = GROUP_OPERATIONS
