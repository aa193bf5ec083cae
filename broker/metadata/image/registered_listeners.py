"""Checks of the listeners in registrations."""

from collections.abc import Iterable
from typing import Final, Protocol

from protocol.errors import ErrorCode, KafkaError

_SECURITY_PROTOCOLS: Final = range(4)
_PORTS: Final = range(1, 65_536)


class RegisteredListener(Protocol):
    """A listener in the registration of a broker or controller."""

    name: str
    host: str
    port: int
    security_protocol: int


def check_listeners(listeners: Iterable[RegisteredListener]) -> None:
    """Raise KafkaError INVALID_REGISTRATION for an unknown security protocol, an empty host or an invalid port."""
    for listener in listeners:
        known = listener.security_protocol in _SECURITY_PROTOCOLS
        if not known or listener.port not in _PORTS or not listener.host.strip():
            raise KafkaError(
                ErrorCode.INVALID_REGISTRATION,
                f"listener {listener.name} has an empty host, an invalid port or an unknown security protocol",
            )
