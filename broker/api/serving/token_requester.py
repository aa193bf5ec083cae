"""Who may ask for delegation tokens: those who have proven who they are, or anybody could have any token (KIP-48)."""

from typing import Final

from broker.api.serving.context import RequestContext
from broker.net.request import ANONYMOUS
from protocol.errors import ErrorCode, KafkaError

# Instead of a time, in the answer to a request that was refused.
NO_TIME: Final = -1


def token_requester(context: RequestContext) -> str:
    """The principal that asks. Raises KafkaError DELEGATION_TOKEN_REQUEST_NOT_ALLOWED if it is nobody in particular."""
    if context.principal == ANONYMOUS:
        raise KafkaError(ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED)
    return context.principal
