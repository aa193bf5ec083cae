"""ShareGroupDescribe (key 77), version 1: state, epochs and assignments of share groups (KIP-932)."""

from broker.api.describe_groups import GROUP_OPERATIONS
from broker.api.serving.context import RequestContext
from broker.runtime.coordinators.share_group_coordinator import ShareGroupCoordinator
from protocol.errors import ErrorCode
from protocol.messages.share_group_describe import ShareGroupDescribeRequest, ShareGroupDescribeResponse


class ShareGroupDescribeHandler:
    """Answers ShareGroupDescribe."""

    def __init__(self, groups: ShareGroupCoordinator) -> None:
        self._groups = groups

    async def __call__(self, request: ShareGroupDescribeRequest, context: RequestContext) -> ShareGroupDescribeResponse:
        groups = await self._groups.describe(request.group_ids)
        if request.include_authorized_operations:
            for group in groups:
                if group.error_code == ErrorCode.NONE:
                    group.authorized_operations = GROUP_OPERATIONS
        return ShareGroupDescribeResponse(groups=groups)
