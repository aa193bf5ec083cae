"""AlterClientQuotas (key 49), versions 0-1: set and remove clients' limits (KIP-546). Each entity has its answer."""

from collections.abc import Awaitable

from broker.api.serving.context import RequestContext
from broker.api.serving.controller_gateway import ControllerGateway
from protocol.messages.alter_client_quotas import AlterClientQuotasRequest, AlterClientQuotasResponse


class AlterClientQuotasHandler:
    """Answers AlterClientQuotas."""

    def __init__(self, controller: ControllerGateway) -> None:
        self._controller = controller

    def __call__(
        self, request: AlterClientQuotasRequest, context: RequestContext
    ) -> Awaitable[AlterClientQuotasResponse]:
        return self._controller.submit(lambda controller, _now: controller.alter_client_quotas(request))
