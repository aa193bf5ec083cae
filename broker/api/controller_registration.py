"""ControllerRegistration (key 70), version 0: a controller says where it is and what it can run with (KIP-919)."""

from collections.abc import Awaitable

from broker.api.serving.context import RequestContext
from broker.api.serving.controller_gateway import ControllerGateway
from protocol.messages.controller_registration import ControllerRegistrationRequest, ControllerRegistrationResponse


class ControllerRegistrationHandler:
    """Answers ControllerRegistration at the controller."""

    def __init__(self, controller: ControllerGateway) -> None:
        self._controller = controller

    def __call__(
        self, request: ControllerRegistrationRequest, context: RequestContext
    ) -> Awaitable[ControllerRegistrationResponse]:
        return self._controller.submit(lambda controller, _now: controller.register_controller(request))
