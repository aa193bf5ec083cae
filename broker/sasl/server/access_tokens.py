"""Checks of OAuth access tokens: signed JSON Web Tokens, and unsecured ones (RFC 7519; KIP-768, KIP-255).

PyJWT verifies signatures; claims are judged here, by the clock that the caller passes. Only asymmetric algorithms are
accepted, and only those that fit the type of the key: a token signed with a public key as an HMAC secret, or with
`alg` none, is refused before any key is used.
"""

import base64
import binascii
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field
from typing import Any, Final

import jwt

from broker.sasl.server.oauthbearer import CheckedToken, TokenRefused
from protocol.lazy_dataclass import lazy_dataclass

_RSA: Final = frozenset({"RS256", "RS384", "RS512", "PS256", "PS384", "PS512"})
_ALGORITHMS: Final[Mapping[tuple[str, str | None], frozenset[str]]] = {
    ("RSA", None): _RSA,
    ("EC", "P-256"): frozenset({"ES256"}),
    ("EC", "P-384"): frozenset({"ES384"}),
    ("EC", "P-521"): frozenset({"ES512"}),
    ("OKP", "Ed25519"): frozenset({"EdDSA"}),
}
"""Algorithms by key type and curve."""

_SIGNED_ALGORITHMS: Final = frozenset().union(*_ALGORITHMS.values())
_KEYS_MAX: Final = 1000


@lazy_dataclass(frozen=True, slots=True)
class VerificationKey:
    """A public key for signatures, with the algorithms that it verifies, and its id if it has one."""

    id: str | None
    algorithms: frozenset[str]
    key: Any = field(repr=False)


@lazy_dataclass(frozen=True, slots=True)
class TokenRules:
    """Requirements of signed tokens. Empty audiences and no issuer accept any."""

    audiences: frozenset[str] = frozenset()
    issuer: str | None = None
    clock_skew_ms: int = 30_000
    scope_claim: str = "scope"
    subject_claim: str = "sub"


@lazy_dataclass(frozen=True, slots=True)
class UnsecuredRules:
    """Requirements of unsecured tokens (KIP-255). A token needs all of the scopes."""

    principal_claim: str = "sub"
    scope_claim: str = "scope"
    required_scopes: tuple[str, ...] = ()
    clock_skew_ms: int = 0


def parse_keys(document: bytes) -> list[VerificationKey]:
    """Return the usable keys of a JSON Web Key Set (RFC 7517). Raise ValueError for another document.

    Symmetric keys, keys for encryption, and keys of unknown types are left out, as RFC 7517, section 5, permits.
    """
    try:
        parsed = json.loads(document)
    except RecursionError:
        raise ValueError("the document is nested too deeply") from None
    entries = parsed.get("keys") if isinstance(parsed, dict) else None
    if not isinstance(entries, list):
        raise ValueError("the document is not a JSON Web Key Set")
    return [key for entry in entries[:_KEYS_MAX] if (key := _verification_key(entry)) is not None]


def _verification_key(entry: Any) -> VerificationKey | None:
    if not isinstance(entry, dict) or entry.get("use", "sig") != "sig":
        return None
    algorithms = _ALGORITHMS.get((str(entry.get("kty")), entry.get("crv")))
    if algorithms is None:
        return None
    if "alg" in entry:
        algorithms &= {entry["alg"]} if isinstance(entry["alg"], str) else set()
    if not algorithms:
        return None
    public = {name: value for name, value in entry.items() if name != "d"}
    try:
        key = jwt.PyJWK(public, algorithm=min(algorithms)).key
    except (jwt.PyJWTError, ValueError, TypeError):
        return None
    kid = entry.get("kid")
    return VerificationKey(kid if isinstance(kid, str) else None, algorithms, key)


@lazy_dataclass(frozen=True, slots=True)
class SignedHeader:
    """The header of a signed token: its algorithm and the id of its key."""

    algorithm: str
    key_id: str | None


def signed_header(token: str) -> SignedHeader:
    """Return the header of a token. Raise TokenRefused unless it names an asymmetric algorithm."""
    try:
        header = jwt.get_unverified_header(token)
    except jwt.PyJWTError:
        raise TokenRefused("The token is not a signed JSON Web Token.") from None
    algorithm = header.get("alg")
    if not isinstance(algorithm, str) or algorithm not in _SIGNED_ALGORITHMS:
        raise TokenRefused("The token is not signed with an asymmetric algorithm.")
    if "crit" in header:
        raise TokenRefused("The token has critical header parameters, which are not supported.")
    key_id = header.get("kid")
    return SignedHeader(algorithm, key_id if isinstance(key_id, str) else None)


def suitable(header: SignedHeader, keys: Iterable[VerificationKey]) -> list[VerificationKey]:
    """Return the keys that may have signed a token: the one that its header names, or all of its algorithm."""
    return [key for key in keys if header.algorithm in key.algorithms and header.key_id in (None, key.id)]


def check_signed(
    token: str, header: SignedHeader, keys: Sequence[VerificationKey], rules: TokenRules, now_ms: int
) -> CheckedToken:
    """Check a signed token. `keys` are the suitable ones. Raise TokenRefused."""
    if not keys:
        raise TokenRefused("The key set has no key for the token.")
    for key in keys:
        claims = _verified(token, header, key)
        if claims is not None:
            return _check_claims(claims, rules, now_ms)
    raise TokenRefused("The signature of the token is wrong.")


def _verified(token: str, header: SignedHeader, key: VerificationKey) -> Mapping[str, Any] | None:
    """Return the claims of a token; None if another key signed it. Raise TokenRefused if it has no claims."""
    try:
        verified = jwt.api_jws.decode(token, key.key, algorithms=[header.algorithm])
    except (jwt.PyJWTError, ValueError, TypeError):
        return None
    return _claims(verified)


def _check_claims(claims: Mapping[str, Any], rules: TokenRules, now_ms: int) -> CheckedToken:
    """Judge the claims as Kafka's DefaultJwtValidator does: expiry, issue time and subject are mandatory."""
    expiry_ms = _time_ms(claims, "exp", is_required=True)
    _time_ms(claims, "iat", is_required=True)
    _check_times(claims, expiry_ms, rules.clock_skew_ms, now_ms)
    if rules.audiences:
        named = claims.get("aud")
        audiences = {named} if isinstance(named, str) else set(_texts(named))
        if rules.audiences.isdisjoint(audiences):
            raise TokenRefused("The token is for another audience.")
    if rules.issuer is not None and claims.get("iss") != rules.issuer:
        raise TokenRefused("The token is of another issuer.")
    _scopes(claims, rules.scope_claim)
    return CheckedToken(_subject(claims, rules.subject_claim), expiry_ms)


def check_unsecured(token: str, rules: UnsecuredRules, now_ms: int) -> CheckedToken:
    """Check a token without signature, which proves nothing about its sender. Raise TokenRefused."""
    parts = token.split(".")
    if len(parts) != 3 or parts[2]:
        raise TokenRefused("The token is not an unsecured JSON Web Token.")
    if _claims(_decoded(parts[0])).get("alg") != "none":
        raise TokenRefused("The token names an algorithm, but unsecured tokens are expected.")
    claims = _claims(_decoded(parts[1]))
    subject, expiry_ms = _subject(claims, rules.principal_claim), _time_ms(claims, "exp", is_required=True)
    _check_times(claims, expiry_ms, rules.clock_skew_ms, now_ms)
    if not set(rules.required_scopes) <= _scopes(claims, rules.scope_claim):
        raise TokenRefused("The token lacks a scope.", "insufficient_scope", " ".join(rules.required_scopes))
    return CheckedToken(subject, expiry_ms)


def _check_times(claims: Mapping[str, Any], expiry_ms: int, skew_ms: int, now_ms: int) -> None:
    if now_ms - skew_ms >= expiry_ms:
        raise TokenRefused("The token has expired.")
    for name in ("nbf", "iat"):
        if _time_ms(claims, name) > now_ms + skew_ms:
            raise TokenRefused(f"The token is not valid yet by its claim {name}.")


def _time_ms(claims: Mapping[str, Any], name: str, *, is_required: bool = False) -> int:
    """Return a time claim in ms; 0 without it. Raise TokenRefused."""
    value = claims.get(name)
    if value is None and not is_required:
        return 0
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < 1 << 43:
        raise TokenRefused(f"The token lacks the claim {name}, or it is not a time.")
    return int(value * 1000)


def _subject(claims: Mapping[str, Any], name: str) -> str:
    subject = claims.get(name)
    if not isinstance(subject, str) or not subject.strip():
        raise TokenRefused(f"The token lacks the claim {name}, or it is not text.")
    return subject.strip()


def _scopes(claims: Mapping[str, Any], name: str) -> set[str]:
    """Return the scopes, given as text with spaces or as a list; none without the claim. Raise TokenRefused."""
    value = claims.get(name)
    if value is None:
        return set()
    return set(value.split()) if isinstance(value, str) else set(_texts(value))


def _texts(value: Any) -> list[str]:
    if not isinstance(value, list) or not all(isinstance(each, str) for each in value):
        raise TokenRefused("The token has a list claim that is neither text nor a list of texts.")
    return value


def _decoded(part: str) -> bytes:
    try:
        return base64.b64decode(part + "=" * (-len(part) % 4), altchars=b"-_", validate=True)
    except binascii.Error:
        raise TokenRefused("The token is not an unsecured JSON Web Token.") from None


def _claims(document: bytes) -> Mapping[str, Any]:
    try:
        claims = json.loads(document)
    except (ValueError, RecursionError):
        claims = None
    if not isinstance(claims, dict):
        raise TokenRefused("The token is not made of JSON objects.")
    return claims
