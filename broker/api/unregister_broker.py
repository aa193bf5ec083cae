"""UnregisterBroker (key 64), version 0: forget a broker that will not come back (KIP-631)."""

from collections.abc import Awaitable

from broker.api.serving.context import RequestContext
from broker.api.serving.controller_gateway import ControllerGateway
from protocol.messages.unregister_broker import UnregisterBrokerRequest, UnregisterBrokerResponse


class UnregisterBrokerHandler:
    """Answers UnregisterBroker. Nobody asks whether the broker lives: one that does registers again by itself."""

    def __init__(self, controller: ControllerGateway) -> None:
        self._controller = controller

    def __call__(
        self, request: UnregisterBrokerRequest, context: RequestContext
    ) -> Awaitable[UnregisterBrokerResponse]:
        return self._controller.submit(lambda controller, _now: controller.unregister_broker(request))
