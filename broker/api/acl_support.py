"""Whether access control lists mean anything here: without an authorizer nobody would heed them (KIP-11)."""

from protocol.errors import ErrorCode, KafkaError


def check_authorizer(has_authorizer: bool) -> None:
    """Raises KafkaError SECURITY_DISABLED."""
    if not has_authorizer:
        raise KafkaError(ErrorCode.SECURITY_DISABLED, "no authorizer is configured")
