"""Requesters of delegation tokens: authenticated principals only, because a token acts for its owner (KIP-48)."""

from typing import Final

from broker.api.serving.context import RequestContext
from broker.net.request import ANONYMOUS
from protocol.errors import ErrorCode, KafkaError

# The timestamp of a response that reports an error.
NO_TIME: Final = -1


def token_requester(context: RequestContext) -> str:
    """Return the requesting principal. Raises KafkaError DELEGATION_TOKEN_REQUEST_NOT_ALLOWED for an anonymous client,
    and for one that has authenticated with a token.
    """
    if context.principal == ANONYMOUS or context.connection.is_token_authenticated:
        raise KafkaError(ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED)
    return context.principal
