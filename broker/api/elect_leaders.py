"""ElectLeaders (key 43), versions 0-2: preferred leaders (KIP-183), from version 1 on unclean ones too (KIP-460)."""

from collections.abc import Awaitable

from broker.api.serving.context import RequestContext
from broker.api.serving.controller_gateway import ControllerGateway
from protocol.messages.elect_leaders import ElectLeadersRequest, ElectLeadersResponse


class ElectLeadersHandler:
    """Answers ElectLeaders."""

    def __init__(self, controller: ControllerGateway) -> None:
        self._controller = controller

    def __call__(self, request: ElectLeadersRequest, context: RequestContext) -> Awaitable[ElectLeadersResponse]:
        return self._controller.submit(lambda controller, _now: controller.elect_leaders(request))
