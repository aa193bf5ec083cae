"""OAUTHBEARER with unsecured tokens: messages, refusals, and settings that are refused."""

import base64
import json

import pytest

from broker.config.errors import ConfigError
from broker.sasl.client.login_settings import LoginSurroundings, build_login
from broker.sasl.client.oauthbearer import refusal_sentence

NOW_MS = 1_700_000_000_000
MODULE = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required {};"
SURROUNDINGS = LoginSurroundings(lambda _: None, lambda: NOW_MS, lambda _: pytest.fail("a token is fetched"))


def test_first_message_has_token_and_extensions() -> None:
    options = 'unsecuredLoginStringClaim_sub="alice" unsecuredLoginExtension_trace="x"'
    exchange = build_login("OAUTHBEARER", "mech", MODULE.format(options), "key", SURROUNDINGS).begin()
    start, auth, extension, *end = exchange.first().split(b"\x01")
    assert (start, extension, end) == (b"n,,", b"trace=x", [b"", b""])
    header, claims, signature = auth.removeprefix(b"auth=Bearer ").split(b".")
    assert json.loads(base64.urlsafe_b64decode(header + b"==")) == {"alg": "none"}
    found = json.loads(base64.urlsafe_b64decode(claims + b"=" * (-len(claims) % 4)))
    assert found["sub"] == "alice"
    assert (found["iat"], found["exp"]) == (NOW_MS / 1000, NOW_MS / 1000 + 3600)
    assert signature == b""
    assert exchange.respond(b"") is None


def test_refusal_is_answered_and_put_into_words() -> None:
    exchange = build_login(
        "OAUTHBEARER", "mech", MODULE.format("unsecuredLoginStringClaim_sub=a"), "key", SURROUNDINGS
    ).begin()
    assert exchange.respond(b'{"status":"invalid_token"}') == b"\x01"
    assert refusal_sentence('{"status":"invalid_token"}') == "the server refused the token with invalid_token"
    assert refusal_sentence("other") == "other"


@pytest.mark.parametrize("options", ["", "unsecuredLoginStringClaim_exp=1", 'unsecuredLoginExtension_auth="x"'])
def test_unusable_options_are_refused(options: str) -> None:
    with pytest.raises(ConfigError, match="key"):
        build_login("OAUTHBEARER", "mech", MODULE.format(options), "key", SURROUNDINGS)
