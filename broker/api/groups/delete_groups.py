"""DeleteGroups (key 42), versions 0-2: remove groups without members, and their committed offsets.

The states of a share group's partitions, which are at share coordinators, are deleted first (KIP-932).
"""

from broker.api.pipeline.permission import DELETE_GROUP
from broker.api.serving.context import RequestContext
from broker.runtime.coordinators.group_coordinator import GroupCoordinator
from broker.runtime.coordinators.share_group_coordinator import ShareGroupCoordinator
from protocol.errors import ErrorCode
from protocol.messages.delete_groups import DeletableGroupResult, DeleteGroupsRequest, DeleteGroupsResponse


class DeleteGroupsHandler:
    """Answers DeleteGroups."""

    def __init__(self, groups: GroupCoordinator, share_groups: ShareGroupCoordinator) -> None:
        self._groups = groups
        self._share_groups = share_groups

    async def __call__(self, request: DeleteGroupsRequest, context: RequestContext) -> DeleteGroupsResponse:
        groups = dict.fromkeys(request.groups_names)
        return DeleteGroupsResponse(results=[await self._delete(each, context) for each in groups])

    async def _delete(self, group_id: str, context: RequestContext) -> DeletableGroupResult:
        if not context.allows(DELETE_GROUP, group_id):
            return DeletableGroupResult(group_id, ErrorCode.GROUP_AUTHORIZATION_FAILED)
        code = await self._share_groups.delete_states(group_id)
        if code is not ErrorCode.NONE:
            return DeletableGroupResult(group_id, code)
        return await self._groups.delete_group(group_id)
