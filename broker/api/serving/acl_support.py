"""Whether access control lists mean anything here: without an authorizer nobody would heed them (KIP-11)."""

from typing import Final

from protocol.errors import ErrorCode, KafkaError

HAS_AUTHORIZER: Final = False  # none can be configured yet; entries can be kept, but nobody would heed them


def check_authorizer(has_authorizer: bool) -> None:
    """Raises KafkaError SECURITY_DISABLED."""
    if not has_authorizer:
        raise KafkaError(ErrorCode.SECURITY_DISABLED, "no authorizer is configured")
