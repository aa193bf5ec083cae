"""Listeners as nodes register them: whether anybody could reach a node through them."""

from collections.abc import Iterable
from typing import Final, Protocol

from protocol.errors import ErrorCode, KafkaError

_SECURITY_PROTOCOLS: Final = range(4)
_PORTS: Final = range(1, 65_536)


class RegisteredListener(Protocol):
    """What the registrations of brokers and of controllers say about a listener."""

    name: str
    host: str
    port: int
    security_protocol: int


def check_listeners(listeners: Iterable[RegisteredListener]) -> None:
    """Raises KafkaError INVALID_REGISTRATION for an unknown security protocol, an empty host or a port out of range."""
    for listener in listeners:
        known = listener.security_protocol in _SECURITY_PROTOCOLS
        if not known or listener.port not in _PORTS or not listener.host.strip():
            raise KafkaError(
                ErrorCode.INVALID_REGISTRATION, f"listener {listener.name} cannot be reached as registered"
            )
