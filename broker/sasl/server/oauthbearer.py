"""OAUTHBEARER, the server's side (RFC 7628; KIP-255): one message with a bearer token and SASL extensions.

A refused token is answered with JSON that states the reason. The exchange fails at the client's next message.
"""

import json
import re
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import field
from typing import Final

from broker.sasl.mechanism import Accepted, AuthenticationFailed, Challenge
from protocol.lazy_dataclass import lazy_dataclass

OAUTHBEARER: Final = "OAUTHBEARER"
TOKEN_BYTES_MAX: Final = 64 << 10
"""A longer token is refused unread; tokens of identity providers have a few KB."""

_SEPARATOR: Final = "\x01"
_FIRST: Final = re.compile(
    r"n,(?:a=(?P<authorization_id>(?:[\x01-\x2b\x2d-\x3c\x3e-\x7f]|=2C|=3D)+))?,"
    r"\x01(?P<pairs>(?:[A-Za-z]+=[\x21-\x7e \t\r\n]+\x01)*)\x01"
)
_CREDENTIALS: Final = re.compile(r"(?P<scheme>\w+) +(?P<token>[-._~+/A-Za-z0-9]+=*)")
_NO_REASON: Final = (
    f"Authentication failed during authentication due to invalid credentials with SASL mechanism {OAUTHBEARER}"
)


class TokenRefused(Exception):
    """A token is not accepted. The text is for the log, without the token.

    `status` is the code for the client (RFC 6750, section 3.1); `scope` names the scope that the token lacks.
    """

    def __init__(self, reason: str, status: str = "invalid_token", scope: str | None = None) -> None:
        super().__init__(reason)
        self.status = status
        self.scope = scope


@lazy_dataclass(frozen=True, slots=True)
class CheckedToken:
    """A valid token: the name of its subject, and its end as wall-clock time in ms."""

    subject: str
    expiry_ms: int


CheckToken = Callable[[str], "CheckedToken | Awaitable[CheckedToken]"]
"""Checks a token. Raises TokenRefused."""


@lazy_dataclass(frozen=True, slots=True)
class ClientFirst:
    """The client's first message. The authorization id is empty if the client sent none."""

    token: str = field(repr=False)
    authorization_id: str
    extensions: Mapping[str, str] = field(repr=False)


class OAuthBearerServer:
    """A `ServerExchange`. `on_refused` receives the reason for which a token was refused."""

    def __init__(self, check: CheckToken, on_refused: Callable[[str], None]) -> None:
        self._check = check
        self._on_refused = on_refused
        self._refusal: str | None = None

    def respond(self, token: bytes) -> Challenge | Accepted | Awaitable[Challenge | Accepted]:
        """Check the token, or fail after a refusal. Raise AuthenticationFailed with the message for the client."""
        if self._refusal is not None:
            raise AuthenticationFailed(self._refusal)
        first = parse_first(token)
        try:
            checked = self._check(first.token)
        except TokenRefused as refused:
            return self._refuse(refused)
        return _accepted(checked, first) if isinstance(checked, CheckedToken) else self._later(checked, first)

    async def _later(self, pending: Awaitable[CheckedToken], first: ClientFirst) -> Challenge | Accepted:
        try:
            return _accepted(await pending, first)
        except TokenRefused as refused:
            return self._refuse(refused)

    def _refuse(self, refused: TokenRefused) -> Challenge:
        self._on_refused(str(refused))
        said = {"status": refused.status}
        if refused.scope is not None:
            said["scope"] = refused.scope
        self._refusal = json.dumps(said, separators=(",", ":"))
        return Challenge(self._refusal.encode())


def _accepted(checked: CheckedToken, first: ClientFirst) -> Accepted:
    if first.authorization_id not in ("", checked.subject):
        raise AuthenticationFailed(
            f"Authentication failed: Client requested an authorization id ({first.authorization_id}) that is different "
            f"from the token's principal name ({checked.subject})"
        )
    return Accepted(b"", f"User:{checked.subject}", checked.expiry_ms)


def parse_first(message: bytes) -> ClientFirst:
    """Parse the client's first message (RFC 7628, section 3.1). Raise AuthenticationFailed."""
    if len(message) > TOKEN_BYTES_MAX:
        raise AuthenticationFailed(_NO_REASON)
    match = _FIRST.fullmatch(message.decode("latin-1"))
    if match is None:
        raise AuthenticationFailed(_NO_REASON)
    pairs = dict(pair.split("=", 1) for pair in match["pairs"].split(_SEPARATOR) if pair)
    credentials = _CREDENTIALS.fullmatch(pairs.pop("auth", ""))
    if credentials is None or credentials["scheme"].lower() != "bearer":
        raise AuthenticationFailed(_NO_REASON)
    authorization_id = (match["authorization_id"] or "").replace("=2C", ",").replace("=3D", "=")
    return ClientFirst(credentials["token"], authorization_id, pairs)
