"""Logins from Kafka's `sasl.*` keys: the mechanism, and the credentials in a JAAS entry.

Values are texts, as in a properties file. Errors name the key as it was given and never its value.
"""

from collections.abc import Callable
from typing import Final

from broker.config.errors import ConfigError
from broker.sasl.client.access_tokens import UnsecuredClaims, make_unsecured_token
from broker.sasl.client.oauth_settings import OAUTH_KEYS, FindSetting, OAuthSettings, parse_oauth_settings
from broker.sasl.client.oauthbearer import OAUTHBEARER, OAuthBearerClient, refusal_sentence
from broker.sasl.client.plain import PlainClient
from broker.sasl.client.sasl_login import SaslLogin, TokenSupply
from broker.sasl.client.scram import SCRAM_DIGESTS, ScramClient
from broker.sasl.jaas import parse_jaas
from broker.sasl.mechanism import ClientExchange
from protocol.lazy_dataclass import lazy_dataclass

JAAS_KEY: Final = "sasl.jaas.config"
MECHANISM_KEY: Final = "sasl.mechanism"
LOGIN_KEYS: Final = (MECHANISM_KEY, JAAS_KEY, *OAUTH_KEYS)
"""The keys of clients that a login is built from."""
PLAIN: Final = "PLAIN"
LOGIN_MODULES: Final = {
    PLAIN: "PlainLoginModule",
    **dict.fromkeys(SCRAM_DIGESTS, "ScramLoginModule"),
    OAUTHBEARER: "OAuthBearerLoginModule",
}
"""Kafka's login modules by mechanism."""

SASL_PROTOCOLS: Final = frozenset({"SASL_PLAINTEXT", "SASL_SSL"})
TLS_PROTOCOLS: Final = frozenset({"SSL", "SASL_SSL"})


@lazy_dataclass(frozen=True, slots=True)
class LoginSurroundings:
    """Other settings of the client, the wall clock in ms, and where fetched tokens are from."""

    find: FindSetting
    now_ms: Callable[[], int]
    supply: Callable[[OAuthSettings], TokenSupply]


def build_login(
    mechanism: str, mechanism_key: str, jaas: str | None, jaas_key: str, surroundings: LoginSurroundings
) -> SaslLogin:
    """Return the login for a mechanism with the credentials of a JAAS entry. Raise ConfigError."""
    module = LOGIN_MODULES.get(mechanism)
    if module is None:
        known = ", ".join(LOGIN_MODULES)
        raise ConfigError(mechanism_key, f"{mechanism_key}={mechanism} is not implemented; use {known}.")
    if jaas is None:
        raise ConfigError(jaas_key, f"{jaas_key} is not set; {mechanism} needs its {module}.")
    options = _options(jaas, jaas_key, module)
    if mechanism == OAUTHBEARER:
        return _bearer_login(parse_oauth_settings(options, jaas_key, surroundings.find), surroundings)
    username, password = options.get("username", ""), options.get("password", "")
    if not username or not password:
        missing = "password" if username else "username"
        raise ConfigError(jaas_key, f"{jaas_key} has no {missing}, which {mechanism} needs.")
    is_token = options.get("tokenauth", "").lower() == "true"
    return SaslLogin(mechanism, _exchanges(mechanism, username, password, is_token))


def _bearer_login(settings: OAuthSettings, surroundings: LoginSurroundings) -> SaslLogin:
    """Return a login with tokens: a new unsecured one each time, Kafka's default, or the newest that was fetched."""
    source, extensions = settings.source, dict(settings.extensions)
    if isinstance(source, UnsecuredClaims):
        claims = source
        return SaslLogin(
            OAUTHBEARER,
            lambda: OAuthBearerClient(make_unsecured_token(claims, surroundings.now_ms()), extensions),
            refusal_sentence,
        )
    supply = surroundings.supply(settings)
    return SaslLogin(OAUTHBEARER, lambda: OAuthBearerClient(supply.token(), extensions), refusal_sentence, supply)


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
