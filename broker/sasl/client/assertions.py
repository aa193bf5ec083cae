"""Signed assertions in place of a client secret: the claims, and the request of the grant (RFC 7523, KIP-1139).

Files and signatures are the caller's.
"""

import json
from collections.abc import Mapping
from dataclasses import field
from typing import Any, Final
from urllib.parse import quote_plus

from broker.sasl.mechanism import AuthenticationFailed
from protocol.lazy_dataclass import lazy_dataclass

_GRANT: Final = "urn:ietf:params:oauth:grant-type:jwt-bearer"


@lazy_dataclass(frozen=True, slots=True)
class AssertionRules:
    """How an assertion is made: `file` holds a ready one, else `key_file` the private key that signs.

    `claims` are (name, value) pairs of aud, iss and sub. `template_file` names a JSON object with the objects `header`
    and `payload`, which take precedence over `claims`. Times are in seconds.
    """

    file: str | None
    key_file: str | None
    passphrase: str | None = field(default=None, repr=False)
    algorithm: str = "RS256"
    claims: tuple[tuple[str, str], ...] = ()
    template_file: str | None = None
    lifetime_s: int = 300
    backdating_s: int = 60
    has_id: bool = False
    scope: str | None = None


@lazy_dataclass(frozen=True, slots=True)
class UnsignedAssertion:
    """The header and the payload of an assertion."""

    header: Mapping[str, Any]
    payload: Mapping[str, Any]


def unsigned_assertion(rules: AssertionRules, template: bytes | None, now_s: int, unique_id: str) -> UnsignedAssertion:
    """Return the parts of a new assertion. Raise AuthenticationFailed for a template that is none."""
    given = _template(template)
    payload: dict[str, Any] = {**dict(rules.claims), **given.payload}
    payload |= {"iat": now_s, "exp": now_s + rules.lifetime_s, "nbf": now_s - rules.backdating_s}
    if rules.has_id:
        payload["jti"] = unique_id
    return UnsignedAssertion({**given.header, "alg": rules.algorithm, "typ": "JWT"}, payload)


def assertion_request(assertion: str, scope: str | None) -> tuple[dict[str, str], bytes]:
    """Return the headers and the body of the POST to the token endpoint."""
    body = f"grant_type={quote_plus(_GRANT)}&assertion={quote_plus(assertion)}"
    if scope:
        body += f"&scope={quote_plus(scope)}"
    headers = {
        "Accept": "application/json",
        "Cache-Control": "no-cache",
        "Content-Type": "application/x-www-form-urlencoded",
    }
    return headers, body.encode()


def _template(text: bytes | None) -> UnsignedAssertion:
    try:
        parsed = {} if text is None else json.loads(text)
    except (ValueError, RecursionError):
        parsed = None
    given = parsed if isinstance(parsed, dict) else {"header": None}
    header, payload = given.get("header", {}), given.get("payload", {})
    if not isinstance(header, dict) or not isinstance(payload, dict):
        raise AuthenticationFailed("the template of the assertion is not a JSON object with header and payload")
    return UnsignedAssertion(header, payload)
