"""DeleteGroups (key 42), versions 0-2: remove groups without members, and their committed offsets."""

from broker.api.serving.context import RequestContext
from broker.runtime.coordinators.group_coordinator import GroupCoordinator
from protocol.messages.delete_groups import DeleteGroupsRequest, DeleteGroupsResponse


class DeleteGroupsHandler:
    """Answers DeleteGroups."""

    def __init__(self, groups: GroupCoordinator) -> None:
        self._groups = groups

    async def __call__(self, request: DeleteGroupsRequest, _context: RequestContext) -> DeleteGroupsResponse:
        return DeleteGroupsResponse(results=await self._groups.delete_groups(request.groups_names))
