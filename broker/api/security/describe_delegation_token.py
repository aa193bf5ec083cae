"""DescribeDelegationToken (key 41), versions 1-3: the tokens of the given owners, or all, with HMACs (KIP-48)."""

from collections.abc import Sequence

from broker.api.pipeline.permission import DESCRIBE_TOKEN, DESCRIBE_TOKENS_OF_USER
from broker.api.serving.context import RequestContext
from broker.api.serving.metadata_source import MetadataSource
from broker.api.serving.token_requester import token_requester
from broker.metadata.controller.delegation_tokens import token_hmac
from broker.metadata.image.security_image import DelegationToken
from protocol.errors import ErrorCode, KafkaError
from protocol.messages.describe_delegation_token import (
    DescribedDelegationToken,
    DescribedDelegationTokenRenewer,
    DescribeDelegationTokenRequest,
    DescribeDelegationTokenResponse,
)


class DescribeDelegationTokenHandler:
    """Answers DescribeDelegationToken from the published image. `secret` is `delegation.token.secret.key`."""

    def __init__(self, metadata: MetadataSource, *, secret: str | None) -> None:
        self._metadata = metadata
        self._secret = secret

    def __call__(
        self, request: DescribeDelegationTokenRequest, context: RequestContext
    ) -> DescribeDelegationTokenResponse:
        token_requester(context)
        if self._secret is None:
            raise KafkaError(ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED)
        owners = None
        if request.owners is not None:
            owners = {f"{owner.principal_type}:{owner.principal_name}" for owner in request.owners}
        return DescribeDelegationTokenResponse(
            tokens=[
                _described(token_id, token, token_hmac(self._secret, token_id))
                for token_id, token in sorted(self._metadata.image.delegation_tokens.tokens.items())
                if (owners is None or token.owner in owners) and _may_see(context, token_id, token)
            ]
        )


def _may_see(context: RequestContext, token_id: str, token: DelegationToken) -> bool:
    """Whether the principal is owner, requester or renewer, or may describe the token or the owner's tokens (KIP-373).

    Without an authorizer everybody sees all tokens.
    """
    if context.authorizer is None or context.principal in (token.owner, token.requester, *token.renewers):
        return True
    return context.allows(DESCRIBE_TOKEN, token_id) or context.allows(DESCRIBE_TOKENS_OF_USER, token.owner)


def _described(token_id: str, token: DelegationToken, digest: bytes) -> DescribedDelegationToken:
    owner, requester = _parts(token.owner), _parts(token.requester)
    return DescribedDelegationToken(
        principal_type=owner[0],
        principal_name=owner[1],
        token_requester_principal_type=requester[0],
        token_requester_principal_name=requester[1],
        issue_timestamp=token.issue_timestamp_ms,
        expiry_timestamp=token.expiration_timestamp_ms,
        max_timestamp=token.max_timestamp_ms,
        token_id=token_id,
        hmac=digest,
        renewers=[DescribedDelegationTokenRenewer(*_parts(renewer)) for renewer in token.renewers],
    )


def _parts(principal: str) -> Sequence[str]:
    kind, _, name = principal.partition(":")
    return kind, name
