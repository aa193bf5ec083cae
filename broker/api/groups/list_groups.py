"""ListGroups (key 16), versions 0-5: the groups that this broker coordinates; 4+ by state (KIP-518), 5+ by type."""

from broker.api.pipeline.permission import CLUSTER_RESOURCE_NAME, DESCRIBE_CLUSTER, DESCRIBE_GROUP
from broker.api.serving.context import RequestContext
from broker.runtime.coordinators.group_coordinator import GroupCoordinator
from protocol.messages.list_groups import ListGroupsRequest, ListGroupsResponse


class ListGroupsHandler:
    """Answers ListGroups."""

    def __init__(self, groups: GroupCoordinator) -> None:
        self._groups = groups

    async def __call__(self, request: ListGroupsRequest, context: RequestContext) -> ListGroupsResponse:
        response = await self._groups.list_groups(request.states_filter, request.types_filter)
        if not context.allows(DESCRIBE_CLUSTER, CLUSTER_RESOURCE_NAME):
            response.groups = [each for each in response.groups if context.allows(DESCRIBE_GROUP, each.group_id)]
        return response
