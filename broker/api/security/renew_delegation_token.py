"""RenewDelegationToken (key 39), versions 1-2: extend the lifetime of a delegation token (KIP-48)."""

from broker.api.serving.context import RequestContext
from broker.api.serving.controller_gateway import ControllerGateway
from broker.api.serving.token_requester import NO_TIME, token_requester
from protocol.errors import KafkaError
from protocol.messages.renew_delegation_token import RenewDelegationTokenRequest, RenewDelegationTokenResponse


class RenewDelegationTokenHandler:
    """Answers RenewDelegationToken."""

    def __init__(self, controller: ControllerGateway) -> None:
        self._controller = controller

    async def __call__(
        self, request: RenewDelegationTokenRequest, context: RequestContext
    ) -> RenewDelegationTokenResponse:
        try:
            requester = token_requester(context)
            return await self._controller.submit(
                lambda controller, _now: controller.renew_delegation_token(
                    request, requester=requester, wall_ms=context.received_ms
                )
            )
        except KafkaError as error:
            return RenewDelegationTokenResponse(error.code, NO_TIME)
