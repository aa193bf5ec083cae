"""Access tokens as the client reads and makes them: claims of a JWT, and unsecured tokens (KIP-255, KIP-768).

A client does not verify signatures: it needs the subject and the times, and the server decides. Errors are
AuthenticationFailed and show nothing of the token.
"""

import base64
import binascii
import json
import math
from collections.abc import Mapping
from dataclasses import field
from typing import Any, Final

from broker.sasl.client.oauthbearer import OAuthToken
from broker.sasl.mechanism import AuthenticationFailed
from protocol.lazy_dataclass import lazy_dataclass

MAX_TOKEN_CHARACTERS: Final = 262_144
"""A limit of this client: half of the default of `sasl.server.max.receive.size`, which the whole message must meet."""

_TOKEN_CHARACTERS: Final = frozenset("-_.=ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789")


@lazy_dataclass(frozen=True, slots=True)
class UnsecuredClaims:
    """The claims of an unsecured token but `iat` and `exp`, as (name, value) pairs. Values of lists are tuples."""

    claims: tuple[tuple[str, str | float | tuple[str, ...]], ...] = field(repr=False)
    lifetime_s: int = 3600
    principal_claim: str = "sub"
    scope_claim: str = "scope"


def read_token(value: str, subject_claim: str = "sub", scope_claim: str = "scope") -> OAuthToken:
    """Read the claims of a JWT like Kafka's login validator. Raise AuthenticationFailed."""
    if len(value) > MAX_TOKEN_CHARACTERS:
        raise AuthenticationFailed(f"the access token is longer than {MAX_TOKEN_CHARACTERS} characters")
    sections = value.split(".")
    if len(sections) != 3 or not _TOKEN_CHARACTERS.issuperset(value):
        raise AuthenticationFailed("the access token is not a JWT of three sections")
    claims = _claims(sections[1])
    _check_scope(claims, scope_claim)
    principal = claims.get(subject_claim)
    if not isinstance(principal, str) or not principal.strip():
        raise AuthenticationFailed(f"the access token lacks the claim {subject_claim}")
    expiry_ms = _time_ms(claims, "exp")
    if expiry_ms is None:
        raise AuthenticationFailed("the access token lacks the claim exp")
    return OAuthToken(value, principal, expiry_ms, _time_ms(claims, "iat"))


def make_unsecured_token(wanted: UnsecuredClaims, now_ms: int) -> OAuthToken:
    """Return a token without signature, for development. Raise AuthenticationFailed if a claim is missing."""
    now = now_ms / 1000
    claims: dict[str, Any] = {"exp": now + wanted.lifetime_s, "iat": now, **dict(wanted.claims)}
    value = f"{_encode({'alg': 'none'})}.{_encode(claims)}."
    return read_token(value, wanted.principal_claim, wanted.scope_claim)


def _claims(section: str) -> Mapping[str, Any]:
    try:
        decoded = base64.urlsafe_b64decode(section + "=" * (-len(section) % 4))
        claims = json.loads(decoded)
    except (binascii.Error, ValueError, RecursionError):
        claims = None
    if not isinstance(claims, dict):
        raise AuthenticationFailed("the claims of the access token are not a JSON object")
    return claims


def _check_scope(claims: Mapping[str, Any], name: str) -> None:
    scope = claims.get(name)
    words = scope if isinstance(scope, list) else [] if scope is None else [scope]
    if not all(isinstance(word, str) and word.strip() for word in words) or len(set(words)) < len(words):
        raise AuthenticationFailed(
            f"the claim {name} of the access token is neither a text nor a list of unequal texts"
        )


def _time_ms(claims: Mapping[str, Any], name: str) -> int | None:
    seconds = claims.get(name)
    if seconds is None:
        return None
    if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not 0 <= seconds < math.inf:
        raise AuthenticationFailed(f"the claim {name} of the access token is not a time")
    return int(seconds * 1000)


def _encode(part: Mapping[str, Any]) -> str:
    text = json.dumps(part, separators=(",", ":"))
    return base64.urlsafe_b64encode(text.encode()).rstrip(b"=").decode()
