"""ExpireDelegationToken (key 40), versions 1-2: let a delegation token end sooner, or at once (KIP-48)."""

from collections.abc import Awaitable

from broker.api.context import RequestContext
from broker.api.controller_gateway import ControllerGateway
from broker.api.token_requester import token_requester
from protocol.messages.expire_delegation_token import ExpireDelegationTokenRequest, ExpireDelegationTokenResponse


class ExpireDelegationTokenHandler:
    """Answers ExpireDelegationToken."""

    def __init__(self, controller: ControllerGateway) -> None:
        self._controller = controller

    def __call__(
        self, request: ExpireDelegationTokenRequest, context: RequestContext
    ) -> Awaitable[ExpireDelegationTokenResponse]:
        requester = token_requester(context)
        return self._controller.submit(
            lambda controller, _now: controller.expire_delegation_token(
                request, requester=requester, wall_ms=context.received_ms
            )
        )
