"""ConsumerGroupDescribe (key 69), versions 0-1: state, epochs and assignments of consumer groups (KIP-848).

1+ tells members of the classic protocol from those of the consumer protocol (KIP-1099).
"""

from broker.api.describe_groups import GROUP_OPERATIONS
from broker.api.serving.context import RequestContext
from broker.runtime.coordinators.consumer_group_coordinator import ConsumerGroupCoordinator
from protocol.errors import ErrorCode
from protocol.messages.consumer_group_describe import ConsumerGroupDescribeRequest, ConsumerGroupDescribeResponse


class ConsumerGroupDescribeHandler:
    """Answers ConsumerGroupDescribe."""

    def __init__(self, groups: ConsumerGroupCoordinator) -> None:
        self._groups = groups

    async def __call__(
        self, request: ConsumerGroupDescribeRequest, _context: RequestContext
    ) -> ConsumerGroupDescribeResponse:
        groups = await self._groups.describe(request.group_ids)
        if request.include_authorized_operations:
            for group in groups:
                if group.error_code == ErrorCode.NONE:
                    group.authorized_operations = GROUP_OPERATIONS
        return ConsumerGroupDescribeResponse(groups=groups)
