"""Logins from Kafka's `sasl.*` keys: the mechanism, and the credentials in a JAAS entry.

Values are texts, as in a properties file. Errors name the key as it was given and never its value.
"""

import time
from collections.abc import Callable, Mapping
from typing import Final

from broker.config.errors import ConfigError
from broker.sasl.client.access_tokens import make_unsecured_token
from broker.sasl.client.oauthbearer import OAUTHBEARER, OAuthBearerClient, refusal_sentence
from broker.sasl.client.plain import PlainClient
from broker.sasl.client.sasl_login import SaslLogin
from broker.sasl.client.scram import SCRAM_DIGESTS, ScramClient
from broker.sasl.client.unsecured_options import parse_extensions, parse_unsecured_claims
from broker.sasl.jaas import parse_jaas
from broker.sasl.mechanism import ClientExchange

JAAS_KEY: Final = "sasl.jaas.config"
MECHANISM_KEY: Final = "sasl.mechanism"
PLAIN: Final = "PLAIN"
LOGIN_MODULES: Final = {
    PLAIN: "PlainLoginModule",
    **dict.fromkeys(SCRAM_DIGESTS, "ScramLoginModule"),
    OAUTHBEARER: "OAuthBearerLoginModule",
}
"""Kafka's login modules by mechanism."""

SASL_PROTOCOLS: Final = frozenset({"SASL_PLAINTEXT", "SASL_SSL"})
TLS_PROTOCOLS: Final = frozenset({"SSL", "SASL_SSL"})


def build_login(mechanism: str, mechanism_key: str, jaas: str | None, jaas_key: str) -> SaslLogin:
    """Return the login for a mechanism with the credentials of a JAAS entry. Raise ConfigError."""
    module = LOGIN_MODULES.get(mechanism)
    if module is None:
        known = ", ".join(LOGIN_MODULES)
        raise ConfigError(mechanism_key, f"{mechanism_key}={mechanism} is not implemented; use {known}.")
    if jaas is None:
        raise ConfigError(jaas_key, f"{jaas_key} is not set; {mechanism} needs its {module}.")
    options = _options(jaas, jaas_key, module)
    if mechanism == OAUTHBEARER:
        return _unsecured_login(options, jaas_key)
    username, password = options.get("username", ""), options.get("password", "")
    if not username or not password:
        missing = "password" if username else "username"
        raise ConfigError(jaas_key, f"{jaas_key} has no {missing}, which {mechanism} needs.")
    is_token = options.get("tokenauth", "").lower() == "true"
    return SaslLogin(mechanism, _exchanges(mechanism, username, password, is_token))


def _unsecured_login(options: Mapping[str, str], jaas_key: str) -> SaslLogin:
    """Return a login with unsecured tokens, Kafka's default; each login has a new token."""
    claims, extensions = parse_unsecured_claims(options, jaas_key), dict(parse_extensions(options, jaas_key))

    def begin() -> ClientExchange:
        return OAuthBearerClient(make_unsecured_token(claims, time.time_ns() // 1_000_000), extensions)

    return SaslLogin(OAUTHBEARER, begin, refusal_sentence)


def _options(jaas: str, key: str, module: str) -> dict[str, str]:
    try:
        entry = parse_jaas(jaas)
    except ValueError as error:
        raise ConfigError(key, f"{key} is not a JAAS entry: {error}.") from None
    given = entry.name.rpartition(".")[2]
    if given != module:
        raise ConfigError(key, f"{key} names the login module {given} but the mechanism needs {module}.")
    return dict(entry.options)


def _exchanges(mechanism: str, username: str, password: str, is_token: bool) -> Callable[[], ClientExchange]:
    if mechanism == PLAIN:
        return lambda: PlainClient(username, password)
    return lambda: ScramClient(mechanism, username, password, is_token=is_token)
