"""Errors of the transaction coordinator, as clients of each version know them."""

from protocol.errors import ErrorCode


def fencing_error(code: ErrorCode, api_version: int, producer_fenced_from: int) -> ErrorCode:
    """Return the error for a client: PRODUCER_FENCED exists from an API version on (KIP-588)."""
    is_unknown = code is ErrorCode.PRODUCER_FENCED and api_version < producer_fenced_from
    return ErrorCode.INVALID_PRODUCER_EPOCH if is_unknown else code
