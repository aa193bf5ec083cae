"""CreateDelegationToken (key 38), versions 1-3: issue a delegation token (KIP-48), from 3 on for others (KIP-373)."""

from collections.abc import Awaitable

from broker.api.context import RequestContext
from broker.api.controller_gateway import ControllerGateway
from broker.api.token_requester import token_requester
from protocol.messages.create_delegation_token import CreateDelegationTokenRequest, CreateDelegationTokenResponse


class CreateDelegationTokenHandler:
    """Answers CreateDelegationToken."""

    def __init__(self, controller: ControllerGateway) -> None:
        self._controller = controller

    def __call__(
        self, request: CreateDelegationTokenRequest, context: RequestContext
    ) -> Awaitable[CreateDelegationTokenResponse]:
        requester = token_requester(context)
        return self._controller.submit(
            lambda controller, _now: controller.create_delegation_token(
                request, requester=requester, wall_ms=context.received_ms
            )
        )
