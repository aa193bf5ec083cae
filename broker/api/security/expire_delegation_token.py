"""ExpireDelegationToken (key 40), versions 1-2: expire a delegation token earlier, or at once (KIP-48)."""

from broker.api.serving.context import RequestContext
from broker.api.serving.controller_gateway import ControllerGateway
from broker.api.serving.token_requester import NO_TIME, token_requester
from protocol.errors import KafkaError
from protocol.messages.expire_delegation_token import ExpireDelegationTokenRequest, ExpireDelegationTokenResponse


class ExpireDelegationTokenHandler:
    """Answers ExpireDelegationToken."""

    def __init__(self, controller: ControllerGateway) -> None:
        self._controller = controller

    async def __call__(
        self, request: ExpireDelegationTokenRequest, context: RequestContext
    ) -> ExpireDelegationTokenResponse:
        try:
            requester = token_requester(context)
            return await self._controller.submit(
                lambda controller, _now: controller.expire_delegation_token(
                    request, requester=requester, wall_ms=context.received_ms
                )
            )
        except KafkaError as error:
            return ExpireDelegationTokenResponse(error.code, NO_TIME)
