"""OAUTHBEARER, the server's side: first messages, signed and unsecured tokens."""

import base64
import hashlib
import hmac
import json
from collections.abc import Mapping
from functools import cache
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from jwt.algorithms import ECAlgorithm, RSAAlgorithm

from broker.sasl.mechanism import Accepted, AuthenticationFailed, Challenge
from broker.sasl.server.access_tokens import (
    TokenRules,
    UnsecuredRules,
    check_signed,
    check_unsecured,
    parse_keys,
    signed_header,
    suitable,
)
from broker.sasl.server.oauthbearer import CheckedToken, OAuthBearerServer, TokenRefused, parse_first

NOW_S = 1_700_000_000
RULES = TokenRules(audiences=frozenset({"ottla"}), issuer="https://issuer", clock_skew_ms=30_000)
CLAIMS: Mapping[str, Any] = {
    "sub": "alice",
    "aud": ["other", "ottla"],
    "iss": "https://issuer",
    "iat": NOW_S - 10,
    "exp": NOW_S + 60,
    "scope": "read write",
}


@cache
def rsa_key() -> rsa.RSAPrivateKey:
    return rsa.generate_private_key(65537, 2048)


@cache
def curve_key() -> ec.EllipticCurvePrivateKey:
    return ec.generate_private_key(ec.SECP256R1())


@cache
def key_set() -> bytes:
    """Return a key set with an RSA key, a key of an elliptic curve, and entries that must not be used."""
    first = {**json.loads(RSAAlgorithm.to_jwk(rsa_key().public_key())), "kid": "rsa", "use": "sig", "alg": "RS256"}
    second = {**json.loads(ECAlgorithm.to_jwk(curve_key().public_key())), "kid": "curve"}
    useless = [
        {**second, "use": "enc", "kid": "encryption"},
        {"kty": "oct", "k": "c2VjcmV0", "kid": "symmetric", "alg": "HS256"},
        {"kty": "new", "kid": "unknown type"},
        {"kty": "RSA", "n": "!", "e": "AQAB", "kid": "broken"},
        7,
    ]
    return json.dumps({"keys": [first, second, *useless]}).encode()


def signed(key: Any = None, algorithm: str = "RS256", kid: str | None = "rsa", **changes: Any) -> str:
    claims = {name: value for name, value in {**CLAIMS, **changes}.items() if value is not None}
    return jwt.encode(claims, key or rsa_key(), algorithm=algorithm, headers={} if kid is None else {"kid": kid})


def judged(token: str, rules: TokenRules = RULES) -> CheckedToken:
    header = signed_header(token)
    return check_signed(token, header, suitable(header, parse_keys(key_set())), rules, NOW_S * 1000)


def unsigned(header: Any, claims: Any) -> str:
    parts = (base64.urlsafe_b64encode(json.dumps(part).encode()).rstrip(b"=").decode() for part in (header, claims))
    return ".".join(parts) + "."


@pytest.mark.parametrize(
    "token",
    [
        pytest.param(lambda: signed(), id="RSA key"),
        pytest.param(lambda: signed(kid=None), id="no key id"),
        pytest.param(lambda: signed(curve_key(), "ES256", "curve"), id="elliptic curve"),
        pytest.param(lambda: signed(aud="ottla"), id="single audience"),
        pytest.param(lambda: signed(scope=["read"]), id="list of scopes"),
        pytest.param(lambda: signed(iat=NOW_S + 29, nbf=NOW_S + 29), id="clock behind by less than the skew"),
    ],
)
def test_signed_token_is_accepted(token: Any) -> None:
    assert judged(token()) == CheckedToken("alice", (NOW_S + 60) * 1000)


def test_token_is_accepted_until_the_skew_after_its_expiry() -> None:
    assert judged(signed(exp=NOW_S - 29)).expiry_ms == (NOW_S - 29) * 1000
    with pytest.raises(TokenRefused, match="expired"):
        judged(signed(exp=NOW_S - 30))


def test_claims_have_configured_names() -> None:
    rules = TokenRules(scope_claim="scp", subject_claim="client_id")
    assert judged(signed(client_id="app", scp=["x"], scope=7), rules).subject == "app"


def as_hmac_of_the_public_key() -> str:
    """Return a token signed with the public key as an HMAC secret; PyJWT itself refuses to make one."""
    secret = rsa_key().public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    text = unsigned({"alg": "HS256", "kid": "rsa"}, dict(CLAIMS)).rstrip(".")
    signature = hmac.digest(secret, text.encode(), hashlib.sha256)
    return f"{text}.{base64.urlsafe_b64encode(signature).rstrip(b'=').decode()}"


@pytest.mark.parametrize(
    ("token", "reason"),
    [
        (lambda: signed(exp=None), "lacks the claim exp"),
        (lambda: signed(iat=None), "lacks the claim iat"),
        (lambda: signed(nbf=NOW_S + 31), "not valid yet by its claim nbf"),
        (lambda: signed(iat=NOW_S + 31), "not valid yet by its claim iat"),
        (lambda: signed(aud="other"), "another audience"),
        (lambda: signed(aud=None), "list claim"),
        (lambda: signed(iss="https://other"), "another issuer"),
        (lambda: signed(sub=None), "lacks the claim sub"),
        (lambda: signed(sub=" "), "lacks the claim sub"),
        (lambda: signed(scope={"a": 1}), "list claim"),
        (lambda: signed(kid="unknown"), "no key for the token"),
        (lambda: signed(kid="symmetric"), "no key for the token"),
        (lambda: signed(curve_key(), "ES256", "rsa"), "no key for the token"),
        (lambda: signed(rsa_key(), "PS256"), "no key for the token"),
        (lambda: signed(ec.generate_private_key(ec.SECP256R1()), "ES256", "curve"), "signature"),
        (lambda: signed()[:-4] + "AAAA", "signature"),
        (lambda: unsigned({"alg": "none", "kid": "rsa"}, dict(CLAIMS)), "asymmetric algorithm"),
        (lambda: unsigned({"alg": "NONE"}, dict(CLAIMS)), "asymmetric algorithm"),
        (as_hmac_of_the_public_key, "asymmetric algorithm"),
        (lambda: "a.b.c", "not a signed"),
        (lambda: "", "not a signed"),
    ],
)
def test_signed_token_is_refused(token: Any, reason: str) -> None:
    with pytest.raises(TokenRefused, match=reason):
        judged(token())


@pytest.mark.parametrize("document", [b"", b"[]", b"{}", b'{"keys": {}}', b"[" * 100_000])
def test_document_without_keys_is_refused(document: bytes) -> None:
    with pytest.raises(ValueError):
        parse_keys(document)


def test_unsecured_token_needs_subject_time_and_scopes() -> None:
    token = unsigned({"alg": "none"}, dict(CLAIMS))
    rules = UnsecuredRules(required_scopes=("read",))
    assert check_unsecured(token, rules, NOW_S * 1000) == CheckedToken("alice", (NOW_S + 60) * 1000)
    with pytest.raises(TokenRefused, match="expired"):
        check_unsecured(token, rules, (NOW_S + 60) * 1000)
    with pytest.raises(TokenRefused) as refused:
        check_unsecured(token, UnsecuredRules(required_scopes=("read", "admin")), NOW_S * 1000)
    assert (refused.value.status, refused.value.scope) == ("insufficient_scope", "read admin")
    for other in (signed(), unsigned({"alg": "RS256"}, dict(CLAIMS)), "..", "!.!.", unsigned([], {})):
        with pytest.raises(TokenRefused):
            check_unsecured(other, rules, NOW_S * 1000)


def test_first_message_has_token_authorization_id_and_extensions() -> None:
    first = parse_first(b"n,a=a=2Cb,\x01auth=Bearer abc.def=\x01logicalCluster=lkc 1\x01\x01")
    assert (first.token, first.authorization_id, first.extensions) == ("abc.def=", "a,b", {"logicalCluster": "lkc 1"})
    assert "abc" not in repr(first)


@pytest.mark.parametrize(
    "message",
    [
        b"",
        b"n,,\x01\x01",
        b"n,,\x01auth=Bearer abc\x01",
        b"n,,auth=Bearer abc\x01\x01",
        b"n,,\x01auth=Basic abc\x01\x01",
        b"n,,\x01auth=Bearer a b\x01\x01",
        b"n,,\x01auth=Bearer abc\x01x1=y\x01\x01",
        b"y,,\x01auth=Bearer abc\x01\x01",
        b"n,,\x01auth=Bearer \xff\x01\x01",
        b"n,,\x01auth=Bearer " + b"a" * 70_000 + b"\x01\x01",
    ],
)
def test_malformed_first_message_is_refused(message: bytes) -> None:
    with pytest.raises(AuthenticationFailed, match="invalid credentials with SASL mechanism OAUTHBEARER"):
        parse_first(message)


def refuse(_: str) -> CheckedToken:
    raise TokenRefused("The token has expired.")


def test_refused_token_is_answered_with_json_and_fails_at_the_next_message() -> None:
    reasons: list[str] = []
    server = OAuthBearerServer(refuse, reasons.append)
    challenge = server.respond(b"n,,\x01auth=Bearer abc\x01\x01")
    assert isinstance(challenge, Challenge)
    assert challenge.token == b'{"status":"invalid_token"}'
    assert reasons == ["The token has expired."]
    with pytest.raises(AuthenticationFailed, match="invalid_token"):
        server.respond(b"n,,\x01auth=Bearer right\x01\x01")


def test_authorization_id_must_be_the_subject() -> None:
    server = OAuthBearerServer(lambda _: CheckedToken("alice", 5), print)
    assert server.respond(b"n,a=alice,\x01auth=bearer abc\x01\x01") == Accepted(b"", "User:alice", 5)
    with pytest.raises(AuthenticationFailed, match="authorization id \\(bob\\) that is different"):
        server.respond(b"n,a=bob,\x01auth=Bearer abc\x01\x01")
