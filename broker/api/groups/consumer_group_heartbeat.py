"""ConsumerGroupHeartbeat (key 68), versions 0-1: a member of a consumer group joins, reports or leaves (KIP-848).

1+ clients choose their member id (KIP-1082) and may subscribe by regular expression.
"""

from collections.abc import Awaitable

from broker.api.pipeline.permission import DESCRIBE_TOPIC, READ_GROUP
from broker.api.serving.access import require_described, require_group
from broker.api.serving.context import RequestContext
from broker.api.serving.group_caller import caller
from broker.runtime.coordinators.consumer_group_coordinator import ConsumerGroupCoordinator, every_topic_is_visible
from protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest, ConsumerGroupHeartbeatResponse


class ConsumerGroupHeartbeatHandler:
    """Answers ConsumerGroupHeartbeat."""

    def __init__(self, groups: ConsumerGroupCoordinator) -> None:
        self._groups = groups

    def __call__(
        self, request: ConsumerGroupHeartbeatRequest, context: RequestContext
    ) -> ConsumerGroupHeartbeatResponse | Awaitable[ConsumerGroupHeartbeatResponse]:
        require_group(context, READ_GROUP, request.group_id)
        require_described(context, request.subscribed_topic_names or ())
        is_visible = context.later_check(DESCRIBE_TOPIC) or every_topic_is_visible
        return self._groups.heartbeat(request, caller(context), is_visible)
