"""OAUTHBEARER, the client's side (RFC 7628; KIP-255): a bearer token and SASL extensions in one message.

A server that refuses the token sends a challenge, JSON with the reason; the client answers it with one byte, and the
server then fails the login.
"""

import json
import re
from collections.abc import Mapping
from dataclasses import field
from typing import Final

from broker.sasl.mechanism import AuthenticationFailed
from protocol.lazy_dataclass import lazy_dataclass

OAUTHBEARER: Final = "OAUTHBEARER"
_AUTH: Final = "auth"
_SEPARATOR: Final = "\x01"
_REFUSAL_ANSWER: Final = b"\x01"
_EXTENSION_NAME: Final = re.compile("[A-Za-z]+")
_EXTENSION_VALUE: Final = re.compile(r"[\x21-\x7E \t\r\n]+")
_SHOWN_CHARACTERS: Final = 200


@lazy_dataclass(frozen=True, slots=True)
class OAuthToken:
    """An access token. Times are wall-clock ms; `start_ms` is None for a token without issue time."""

    value: str = field(repr=False)
    principal: str
    expiry_ms: int
    start_ms: int | None = None


class OAuthBearerClient:
    """A `ClientExchange`. `extensions` have passed `extension_problem`."""

    def __init__(self, token: OAuthToken, extensions: Mapping[str, str]) -> None:
        self._token = token
        self._extensions = extensions
        self._is_refused = False

    def first(self) -> bytes:
        """Return the message with the token."""
        pairs = {_AUTH: f"Bearer {self._token.value}", **self._extensions}
        message = "".join(f"{name}={value}{_SEPARATOR}" for name, value in pairs.items())
        return f"n,,{_SEPARATOR}{message}{_SEPARATOR}".encode()

    def respond(self, challenge: bytes) -> bytes | None:
        """Return None for success, and the answer to a refusal. Raise AuthenticationFailed for a second refusal."""
        if self._is_refused:
            raise AuthenticationFailed("the server refused the token and did not fail the login")
        if not challenge:
            return None
        self._is_refused = True
        return _REFUSAL_ANSWER


def extension_problem(extensions: Mapping[str, str]) -> str | None:
    """Return why SASL extensions cannot be sent (RFC 7628, section 3.1), without their values; None if they can."""
    for name, value in extensions.items():
        if name == _AUTH:
            return "the SASL extension auth is reserved"
        if _EXTENSION_NAME.fullmatch(name) is None:
            return f"the name of the SASL extension {name!r} has other characters than letters"
        if _EXTENSION_VALUE.fullmatch(value) is None:
            return f"the value of the SASL extension {name} is empty or has characters other than printable ASCII"
    return None


def refusal_sentence(message: str) -> str:
    """Return a server's error message in words if it is the JSON of RFC 7628, section 3.2.2; else the message."""
    try:
        reason = json.loads(message)
    except (ValueError, RecursionError):
        return message
    status = reason.get("status") if isinstance(reason, dict) else None
    if not isinstance(status, str) or not status:
        return message
    facts = [f"the server refused the token with {_shown(status)}"]
    if isinstance(scope := reason.get("scope"), str) and scope:
        facts.append(f"needs the scope {_shown(scope)}")
    if isinstance(place := reason.get("openid-configuration"), str) and place:
        facts.append(f"describes its provider at {_shown(place)}")
    return " and ".join(facts)


def _shown(text: str) -> str:
    printable = "".join(character if character.isprintable() else " " for character in text)
    return printable[:_SHOWN_CHARACTERS]
