"""PLAIN, the server's side (RFC 4616; KIP-43): user name and password in one message.

Passwords come from the options `user_NAME="password"` of the listener's JAAS entry.
"""

import hmac
from collections.abc import Mapping
from typing import Final

from broker.sasl.mechanism import Accepted, AuthenticationFailed

_PARTS: Final = 3
_UNKNOWN: Final = "\x00"  # no password has this character


class PlainServer:
    """A `ServerExchange` of one message. `passwords` are by user name."""

    def __init__(self, passwords: Mapping[str, str]) -> None:
        self._passwords = passwords

    def respond(self, token: bytes) -> Accepted:
        """Check `authorization id NUL user NUL password`. Raise AuthenticationFailed, in Kafka's words."""
        try:
            parts = token.decode().split("\x00")
        except UnicodeDecodeError:
            parts = []
        if len(parts) != _PARTS:
            raise AuthenticationFailed(
                "Invalid SASL/PLAIN response: expected three parts of UTF-8 text, separated by NUL"
            )
        authorization_id, user, password = parts
        if not user:
            raise AuthenticationFailed("Authentication failed: username not specified")
        if not password:
            raise AuthenticationFailed("Authentication failed: password not specified", user)
        expected = self._passwords.get(user, _UNKNOWN)
        if not hmac.compare_digest(expected.encode(), password.encode()):
            raise AuthenticationFailed("Authentication failed: Invalid username or password", user)
        if authorization_id not in ("", user):
            raise AuthenticationFailed(
                "Authentication failed: Client requested an authorization id that is different from username", user
            )
        return Accepted(b"", f"User:{user}", None)
