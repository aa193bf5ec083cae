"""ConsumerGroupHeartbeat (key 68), versions 0-1: a member of a consumer group joins, reports or leaves (KIP-848).

1+ clients choose their member id (KIP-1082) and may subscribe by regular expression.
"""

from collections.abc import Awaitable

from broker.api.serving.context import RequestContext
from broker.api.serving.group_caller import caller
from broker.runtime.coordinators.consumer_group_coordinator import ConsumerGroupCoordinator
from protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest, ConsumerGroupHeartbeatResponse


class ConsumerGroupHeartbeatHandler:
    """Answers ConsumerGroupHeartbeat."""

    def __init__(self, groups: ConsumerGroupCoordinator) -> None:
        self._groups = groups

    def __call__(
        self, request: ConsumerGroupHeartbeatRequest, context: RequestContext
    ) -> ConsumerGroupHeartbeatResponse | Awaitable[ConsumerGroupHeartbeatResponse]:
        return self._groups.heartbeat(request, caller(context))
