"""StreamsGroupDescribe (key 89), version 0: state, topology and tasks of streams groups (KIP-1071)."""

from broker.api.describe_groups import GROUP_OPERATIONS
from broker.api.serving.context import RequestContext
from broker.runtime.coordinators.streams_group_coordinator import StreamsGroupCoordinator
from protocol.errors import ErrorCode
from protocol.messages.streams_group_describe import StreamsGroupDescribeRequest, StreamsGroupDescribeResponse


class StreamsGroupDescribeHandler:
    """Answers StreamsGroupDescribe."""

    def __init__(self, groups: StreamsGroupCoordinator) -> None:
        self._groups = groups

    async def __call__(
        self, request: StreamsGroupDescribeRequest, _context: RequestContext
    ) -> StreamsGroupDescribeResponse:
        groups = await self._groups.describe(request.group_ids)
        if request.include_authorized_operations:
            for group in groups:
                if group.error_code == ErrorCode.NONE:
                    group.authorized_operations = GROUP_OPERATIONS
        return StreamsGroupDescribeResponse(groups=groups)
