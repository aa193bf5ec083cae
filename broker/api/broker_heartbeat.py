"""BrokerHeartbeat (key 63), versions 0-2: a broker lives, and says what it wants (KIP-631).

1 names log directories that failed (KIP-858), 2 those that take no new replicas (KIP-1066), not looked at yet.
"""

from collections.abc import Awaitable

from broker.api.serving.context import RequestContext
from broker.api.serving.controller_gateway import ControllerGateway
from broker.runtime.controller.broker_watch import BrokerWatch
from protocol.messages.broker_heartbeat import BrokerHeartbeatRequest, BrokerHeartbeatResponse


class BrokerHeartbeatHandler:
    """Answers BrokerHeartbeat at the controller. `watch` is told where they come from."""

    def __init__(self, controller: ControllerGateway, watch: BrokerWatch | None = None) -> None:
        self._controller = controller
        self._watch = watch

    def __call__(self, request: BrokerHeartbeatRequest, context: RequestContext) -> Awaitable[BrokerHeartbeatResponse]:
        if self._watch is not None:
            self._watch.on_heartbeat(request.broker_id, request.broker_epoch, context.connection)
        return self._controller.submit(lambda controller, now: controller.heartbeat(request, now_ms=now))
