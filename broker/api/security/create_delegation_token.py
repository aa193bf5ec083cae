"""CreateDelegationToken (key 38), versions 1-3: issue a token (KIP-48); 3+ for another owner (KIP-373)."""

from broker.api.pipeline.permission import CREATE_TOKENS_OF_USER
from broker.api.serving.access import require
from broker.api.serving.context import RequestContext
from broker.api.serving.controller_gateway import ControllerGateway
from broker.api.serving.token_requester import NO_TIME, token_requester
from protocol.errors import ErrorCode, KafkaError
from protocol.messages.create_delegation_token import CreateDelegationTokenRequest, CreateDelegationTokenResponse


class CreateDelegationTokenHandler:
    """Answers CreateDelegationToken."""

    def __init__(self, controller: ControllerGateway) -> None:
        self._controller = controller

    async def __call__(
        self, request: CreateDelegationTokenRequest, context: RequestContext
    ) -> CreateDelegationTokenResponse:
        try:
            requester = token_requester(context)
            owner = f"{request.owner_principal_type}:{request.owner_principal_name}"
            if request.owner_principal_name and owner != requester:
                require(context, CREATE_TOKENS_OF_USER, owner, ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED)
            return await self._controller.submit(
                lambda controller, _now: controller.create_delegation_token(
                    request, requester=requester, wall_ms=context.received_ms
                )
            )
        except KafkaError as error:
            return _refusal(error.code, request, context.principal)


def _refusal(code: ErrorCode, request: CreateDelegationTokenRequest, requester: str) -> CreateDelegationTokenResponse:
    """Return an error response, which names the owner and the requester all the same."""
    requester_type, _, requester_name = requester.partition(":")
    owned = bool(request.owner_principal_name)
    return CreateDelegationTokenResponse(
        error_code=code,
        principal_type=(request.owner_principal_type or "") if owned else requester_type,
        principal_name=(request.owner_principal_name or "") if owned else requester_name,
        token_requester_principal_type=requester_type,
        token_requester_principal_name=requester_name,
        issue_timestamp_ms=NO_TIME,
        expiry_timestamp_ms=NO_TIME,
        max_timestamp_ms=NO_TIME,
    )
