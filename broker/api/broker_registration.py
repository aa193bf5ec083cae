"""BrokerRegistration (key 62), versions 0-4: a broker joins, or comes back as another process (KIP-631).

1 is of migrations from ZooKeeper, 2 brings log directories (KIP-858), 3 the epoch that a clean shutdown left, 4
features whose lowest level is 0 (KIP-584).
"""

from collections.abc import Awaitable

from broker.api.serving.context import RequestContext
from broker.api.serving.controller_gateway import ControllerGateway
from protocol.messages.broker_registration import BrokerRegistrationRequest, BrokerRegistrationResponse


class BrokerRegistrationHandler:
    """Answers BrokerRegistration at the controller."""

    def __init__(self, controller: ControllerGateway) -> None:
        self._controller = controller

    def __call__(
        self, request: BrokerRegistrationRequest, context: RequestContext
    ) -> Awaitable[BrokerRegistrationResponse]:
        return self._controller.submit(lambda controller, now: controller.register_broker(request, now_ms=now))
