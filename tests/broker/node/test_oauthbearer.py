"""Settings of OAUTHBEARER, and key sets that are read when they are needed."""

import asyncio
import json
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

import pytest

from broker.config.errors import ConfigError
from broker.config.load import parse_config
from broker.node.security.jwks import KeySetSettings, KeySetSource
from broker.node.security.oauthbearer import SignedTokenCheck, SignedTokens, oauthbearer_settings
from broker.node.security.sasl import NodeSasl
from broker.sasl.server.access_tokens import TokenRules, UnsecuredRules
from broker.sasl.server.oauthbearer import CheckedToken, TokenRefused
from tests.broker.sasl.test_oauthbearer import CLAIMS, NOW_S, curve_key, key_set, signed
from tests.support.fakes.clock import ManualClock

PREFIX = "listener.name.client."
SETTINGS = {
    "node.id": "1",
    "process.roles": "broker,controller",
    "controller.listener.names": "CONTROLLER",
    "controller.quorum.voters": "1@127.0.0.1:9093",
    "log.dirs": "/tmp/logs",
    "listeners": "CLIENT://127.0.0.1:9092,CONTROLLER://127.0.0.1:9093",
    "listener.security.protocol.map": "CLIENT:SASL_PLAINTEXT,CONTROLLER:PLAINTEXT",
    "inter.broker.listener.name": "CLIENT",
    f"{PREFIX}sasl.enabled.mechanisms": "OAUTHBEARER",
}
KEYS = KeySetSettings("https://issuer/keys", 60_000, 100, 10_000)
RULES = TokenRules(clock_skew_ms=0)


def settings_of(**more: str) -> Any:
    given = {f"{PREFIX}oauthbearer.{name.replace('_', '.')}": value for name, value in more.items()}
    return oauthbearer_settings(parse_config({**SETTINGS, **given}), "CLIENT")


def test_listener_without_handler_and_keys_takes_unsecured_tokens() -> None:
    module = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule"
    options = 'unsecuredValidatorPrincipalClaimName="name" unsecuredValidatorRequiredScope="a b"'
    assert settings_of() == UnsecuredRules()
    rules = settings_of(sasl_jaas_config=f"{module} required {options};")
    assert rules == UnsecuredRules(principal_claim="name", required_scopes=("a", "b"))


def test_listener_with_keys_checks_signatures(tmp_path: Path) -> None:
    keys = tmp_path / "keys.json"
    keys.write_bytes(key_set())
    found = settings_of(
        sasl_oauthbearer_jwks_endpoint_url=keys.as_uri(),
        sasl_oauthbearer_expected_audience="a, b",
        sasl_oauthbearer_clock_skew_seconds="5",
    )
    assert found == SignedTokens(
        KeySetSettings(keys.as_uri(), 3_600_000, 100, 10_000),
        TokenRules(audiences=frozenset({"a", "b"}), clock_skew_ms=5000),
    )


@pytest.mark.parametrize(
    ("name", "value", "problem"),
    [
        ("sasl_oauthbearer_jwks_endpoint_url", "ftp://issuer/keys", "schemes file, http, https"),
        ("sasl_oauthbearer_jwks_endpoint_url", "file:///nowhere/keys", "does not exist"),
        ("sasl_oauthbearer_jwks_endpoint_url", "https:///keys", "names no host"),
        ("sasl_server_callback_handler_class", "com.example.Handler", "cannot run here"),
        (
            "sasl_server_callback_handler_class",
            "OAuthBearerValidatorCallbackHandler",
            "cannot check tokens without keys",
        ),
        ("sasl_jaas_config", "com.example.Module required;", "must name OAuthBearerLoginModule"),
    ],
)
def test_bad_setting_stops_the_start(name: str, value: str, problem: str) -> None:
    with pytest.raises(ConfigError, match=problem):
        settings_of(**{name: value})


@pytest.mark.parametrize("mechanism", ["GSSAPI", "NEW"])
def test_unknown_mechanism_stops_the_start(mechanism: str) -> None:
    config = parse_config({**SETTINGS, f"{PREFIX}sasl.enabled.mechanisms": mechanism})
    with pytest.raises(ConfigError, match=f"enables {mechanism} for listener CLIENT, but this version serves PLAIN"):
        NodeSasl(config)


def test_handler_of_another_mechanism_stops_the_start() -> None:
    handler = {f"{PREFIX}scram-sha-512.sasl.server.callback.handler.class": "com.example.Handler"}
    mechanism = {f"{PREFIX}sasl.enabled.mechanisms": "SCRAM-SHA-512"}
    with pytest.raises(ConfigError, match="names a class that cannot run here"):
        NodeSasl(parse_config({**SETTINGS, **handler, **mechanism}))


class Provider:
    """A key set that a test replaces, and the number of reads."""

    def __init__(self) -> None:
        self.document = key_set()
        self.reads = 0
        self.is_down = False

    def read(self, _url: str) -> bytes:
        self.reads += 1
        if self.is_down:
            raise OSError("connection refused")
        return self.document


class Checked:
    """A check of tokens with a provider, a clock and a loop of its own."""

    def __init__(self) -> None:
        self.provider, self.clock = Provider(), ManualClock(NOW_S * 1000)
        self.source = KeySetSource(KEYS, self.clock, self.provider.read)
        self.check = SignedTokenCheck(RULES, self.source, self.clock)

    async def subject(self, token: str) -> str:
        found = self.check(token)
        return found.subject if isinstance(found, CheckedToken) else (await found).subject


def play(scene: Coroutine[Any, Any, None]) -> None:
    asyncio.run(scene)


def test_keys_are_read_once_and_again_when_they_are_old() -> None:
    async def scene() -> None:
        checked = Checked()
        first, second = await asyncio.gather(checked.subject(signed()), checked.subject(signed()))
        assert (first, second) == ("alice", "alice")
        assert checked.provider.reads == 1
        checked.clock.advance_ms(59_999)
        assert await checked.subject(signed()) == "alice"
        assert checked.provider.reads == 1
        checked.clock.advance_ms(1)
        assert await checked.subject(signed(exp=NOW_S + 1000)) == "alice"
        assert checked.provider.reads == 2

    play(scene())


def test_unknown_key_is_looked_for_once_within_the_backoff() -> None:
    async def scene() -> None:
        checked = Checked()
        await checked.subject(signed())
        stranger = signed(kid="new")
        for _ in range(3):
            with pytest.raises(TokenRefused, match="no key for the token"):
                await checked.subject(stranger)
        assert checked.provider.reads == 1
        document = json.loads(key_set())
        document["keys"][0]["kid"] = "new"
        checked.provider.document = json.dumps(document).encode()
        checked.clock.advance_ms(10_000)
        assert await checked.subject(stranger) == "alice"
        assert checked.provider.reads == 2

    play(scene())


def test_last_keys_serve_while_the_provider_is_down() -> None:
    async def scene() -> None:
        checked = Checked()
        token = signed(curve_key(), "ES256", "curve", exp=CLAIMS["exp"] + 1000)
        await checked.subject(token)
        checked.provider.is_down = True
        checked.clock.advance_ms(60_000)
        for _ in range(3):
            assert await checked.subject(token) == "alice"
        assert checked.provider.reads == 2, "a failed read is not repeated within the backoff"
        checked.clock.advance_ms(100)
        await checked.subject(token)
        assert checked.provider.reads == 3

    play(scene())
