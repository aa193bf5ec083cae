"""ListGroups (key 16), versions 0-5: the groups that this broker coordinates; 4+ by state (KIP-518), 5+ by type."""

from broker.api.serving.context import RequestContext
from broker.runtime.coordinators.group_coordinator import GroupCoordinator
from protocol.messages.list_groups import ListGroupsRequest, ListGroupsResponse


class ListGroupsHandler:
    """Answers ListGroups."""

    def __init__(self, groups: GroupCoordinator) -> None:
        self._groups = groups

    async def __call__(self, request: ListGroupsRequest, _context: RequestContext) -> ListGroupsResponse:
        return await self._groups.list_groups(request.states_filter, request.types_filter)
