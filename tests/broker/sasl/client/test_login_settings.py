"""Logins from `sasl.*` keys; errors name keys and no values."""

import pytest

from broker.config.errors import ConfigError
from broker.sasl.client.login_settings import LoginSurroundings, build_login

SECRET = "sesame-4"
SURROUNDINGS = LoginSurroundings(lambda _: None, lambda: 0, lambda _: pytest.fail("a token is fetched"))


def jaas(module: str, options: str) -> str:
    return f"org.apache.kafka.common.security.{module} required {options};"


def test_login_begins_the_exchange_of_its_mechanism() -> None:
    entry = jaas("plain.PlainLoginModule", f'username="alice" password="{SECRET}" user_alice="{SECRET}"')
    login = build_login("PLAIN", "sasl.mechanism", entry, "sasl.jaas.config", SURROUNDINGS)
    assert login.begin().first() == f"\0alice\0{SECRET}".encode()
    assert SECRET not in repr(login)
    assert SECRET not in repr(login.begin())


def test_token_login_says_so() -> None:
    entry = jaas("scram.ScramLoginModule", 'username="id" password="hmac" tokenauth="true"')
    login = build_login("SCRAM-SHA-512", "sasl.mechanism", entry, "sasl.jaas.config", SURROUNDINGS)
    assert login.begin().first().endswith(b",tokenauth=true")


@pytest.mark.parametrize(
    ("mechanism", "entry", "sentence"),
    [
        ("GSSAPI", "", "mech=GSSAPI is not implemented; use PLAIN, "),
        ("PLAIN", None, "key is not set; PLAIN needs its PlainLoginModule"),
        ("PLAIN", SECRET, "key is not a JAAS entry: "),
        ("PLAIN", jaas("scram.ScramLoginModule", "username=a password=b"), "the mechanism needs PlainLoginModule"),
        ("PLAIN", jaas("plain.PlainLoginModule", f"username={SECRET}"), "key has no password"),
        ("SCRAM-SHA-256", jaas("scram.ScramLoginModule", f"password={SECRET}"), "key has no username"),
    ],
)
def test_unusable_settings_are_refused(mechanism: str, entry: str | None, sentence: str) -> None:
    with pytest.raises(ConfigError) as caught:
        build_login(mechanism, "mech", entry, "key", SURROUNDINGS)
    assert sentence in caught.value.sentence
    assert SECRET not in caught.value.sentence
