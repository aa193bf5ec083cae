"""OAUTHBEARER logins from Kafka's keys and the options of a JAAS entry (KIP-255, KIP-768, KIP-1139).

Values are texts, as in a properties file. Errors name the key as it was given and never its value.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import field
from typing import Final, NamedTuple

from broker.config.errors import ConfigError
from broker.sasl.client.access_tokens import UnsecuredClaims
from broker.sasl.client.assertions import AssertionRules
from broker.sasl.client.token_endpoint import ClientCredentials, TokenEndpoint, parse_endpoint
from broker.sasl.client.token_refresh import RefreshSchedule
from broker.sasl.client.unsecured_options import (
    EXTENSION,
    UNSECURED_EXTENSION,
    parse_extensions,
    parse_unsecured_claims,
)
from protocol.lazy_dataclass import lazy_dataclass

HANDLER_KEY: Final = "sasl.login.callback.handler.class"
URL_KEY: Final = "sasl.oauthbearer.token.endpoint.url"
RETRIEVER_KEY: Final = "sasl.oauthbearer.jwt.retriever.class"
CLIENT_ID_KEY: Final = "sasl.oauthbearer.client.credentials.client.id"
CLIENT_SECRET_KEY: Final = "sasl.oauthbearer.client.credentials.client.secret"
SCOPE_KEY: Final = "sasl.oauthbearer.scope"
SCOPE_CLAIM_KEY: Final = "sasl.oauthbearer.scope.claim.name"
SUBJECT_CLAIM_KEY: Final = "sasl.oauthbearer.sub.claim.name"
URL_ENCODE_KEY: Final = "sasl.oauthbearer.header.urlencode"
ASSERTION: Final = "sasl.oauthbearer.assertion."
CONNECT_TIMEOUT_KEY: Final = "sasl.login.connect.timeout.ms"
READ_TIMEOUT_KEY: Final = "sasl.login.read.timeout.ms"
BACKOFF_KEY: Final = "sasl.login.retry.backoff.ms"
BACKOFF_MAX_KEY: Final = "sasl.login.retry.backoff.max.ms"
WINDOW_FACTOR_KEY: Final = "sasl.login.refresh.window.factor"
WINDOW_JITTER_KEY: Final = "sasl.login.refresh.window.jitter"
MIN_PERIOD_KEY: Final = "sasl.login.refresh.min.period.seconds"
BUFFER_KEY: Final = "sasl.login.refresh.buffer.seconds"
OAUTH_KEYS: Final = (
    HANDLER_KEY,
    URL_KEY,
    RETRIEVER_KEY,
    CLIENT_ID_KEY,
    CLIENT_SECRET_KEY,
    SCOPE_KEY,
    SCOPE_CLAIM_KEY,
    SUBJECT_CLAIM_KEY,
    URL_ENCODE_KEY,
    ASSERTION + "algorithm",
    ASSERTION + "claim.aud",
    ASSERTION + "claim.exp.seconds",
    ASSERTION + "claim.iss",
    ASSERTION + "claim.jti.include",
    ASSERTION + "claim.nbf.seconds",
    ASSERTION + "claim.sub",
    ASSERTION + "file",
    ASSERTION + "private.key.file",
    ASSERTION + "private.key.passphrase",
    ASSERTION + "template.file",
    CONNECT_TIMEOUT_KEY,
    READ_TIMEOUT_KEY,
    BACKOFF_KEY,
    BACKOFF_MAX_KEY,
    WINDOW_FACTOR_KEY,
    WINDOW_JITTER_KEY,
    MIN_PERIOD_KEY,
    BUFFER_KEY,
)
"""Keys of logins with OAUTHBEARER, besides mechanism and JAAS entry."""

_PACKAGE: Final = "org.apache.kafka.common.security.oauthbearer."
UNSECURED_HANDLER: Final = _PACKAGE + "internals.unsecured.OAuthBearerUnsecuredLoginCallbackHandler"
HANDLERS: Final = (_PACKAGE + "OAuthBearerLoginCallbackHandler", _PACKAGE + "secured.OAuthBearerLoginCallbackHandler")
RETRIEVERS: Final = (
    _PACKAGE + "DefaultJwtRetriever",
    _PACKAGE + "ClientCredentialsJwtRetriever",
    _PACKAGE + "FileJwtRetriever",
)
ASSERTION_RETRIEVER: Final = _PACKAGE + "JwtBearerJwtRetriever"
_ALGORITHMS: Final = ("RS256", "ES256")
DEFAULT_TIMEOUT_MS: Final = 10_000
"""Time to connect, and to wait for a response, without a setting: Kafka waits without limit."""


class GivenSetting(NamedTuple):
    """A value, and the key under which it was given."""

    key: str
    value: str


FindSetting = Callable[[str], GivenSetting | None]
"""Function that finds the value of a key without prefix."""


@lazy_dataclass(frozen=True, slots=True)
class Retrieval:
    """How to get a token: from a file if there are no credentials. Times are in ms. `tls` are `ssl.*` options, of which
    some are secrets.
    """

    endpoint: TokenEndpoint
    credentials: ClientCredentials | AssertionRules | None
    url_encode: bool
    connect_timeout_ms: int
    read_timeout_ms: int
    backoff_ms: int
    backoff_max_ms: int
    subject_claim: str
    scope_claim: str
    tls: tuple[tuple[str, str], ...] = field(repr=False)


@lazy_dataclass(frozen=True, slots=True)
class OAuthSettings:
    """A login: where tokens are from, when they are refreshed, and (name, value) pairs of SASL extensions."""

    source: Retrieval | UnsecuredClaims
    schedule: RefreshSchedule
    extensions: tuple[tuple[str, str], ...]


def parse_oauth_settings(options: Mapping[str, str], jaas_key: str, find: FindSetting) -> OAuthSettings:
    """Parse the options of a JAAS entry and the settings that `find` finds. Raise ConfigError."""
    reader = _Reader(find)
    handler = reader.text(HANDLER_KEY) or UNSECURED_HANDLER
    schedule = RefreshSchedule(
        reader.decimal(WINDOW_FACTOR_KEY, 0.8, 0.5, 1.0),
        reader.decimal(WINDOW_JITTER_KEY, 0.05, 0.0, 0.25),
        reader.number(MIN_PERIOD_KEY, 60, 0, 900),
        reader.number(BUFFER_KEY, 300, 0, 3600),
    )
    if handler == UNSECURED_HANDLER:
        claims = parse_unsecured_claims(options, jaas_key)
        return OAuthSettings(claims, schedule, parse_extensions(options, UNSECURED_EXTENSION, jaas_key))
    if handler not in HANDLERS:
        known = " or ".join((HANDLERS[0], UNSECURED_HANDLER))
        raise reader.error(HANDLER_KEY, f"is not implemented; use {known}")
    retrieval = _retrieval(options, jaas_key, reader)
    return OAuthSettings(retrieval, schedule, parse_extensions(options, EXTENSION, jaas_key))


def _retrieval(options: Mapping[str, str], jaas_key: str, reader: "_Reader") -> Retrieval:
    url = reader.text(URL_KEY)
    if url is None:
        raise ConfigError(URL_KEY, f"{URL_KEY} is not set; OAuthBearerLoginCallbackHandler needs it.")
    try:
        endpoint = parse_endpoint(url)
    except ValueError as error:
        raise reader.error(URL_KEY, str(error)) from None
    retriever = reader.text(RETRIEVER_KEY) or RETRIEVERS[0]
    if retriever not in (*RETRIEVERS, ASSERTION_RETRIEVER):
        raise reader.error(RETRIEVER_KEY, f"is not implemented; use {RETRIEVERS[0]}")
    is_file = endpoint.scheme == "file"
    if retriever != RETRIEVERS[0] and is_file != (retriever == RETRIEVERS[2]):
        raise reader.error(URL_KEY, f"does not suit {retriever.rpartition('.')[2]}")
    return Retrieval(
        endpoint,
        None if is_file else _proof(retriever, options, jaas_key, reader),
        reader.boolean(URL_ENCODE_KEY),
        reader.number(CONNECT_TIMEOUT_KEY, DEFAULT_TIMEOUT_MS, 1),
        reader.number(READ_TIMEOUT_KEY, DEFAULT_TIMEOUT_MS, 1),
        reader.number(BACKOFF_KEY, 100, 0),
        reader.number(BACKOFF_MAX_KEY, 10_000, 0),
        reader.text(SUBJECT_CLAIM_KEY) or "sub",
        reader.text(SCOPE_CLAIM_KEY) or "scope",
        tuple((name, value) for name, value in sorted(options.items()) if name.startswith("ssl.")),
    )


def _proof(
    retriever: str, options: Mapping[str, str], jaas_key: str, reader: "_Reader"
) -> ClientCredentials | AssertionRules:
    """Return what proves the client's identity to the endpoint."""
    if retriever != ASSERTION_RETRIEVER:
        return _credentials(options, jaas_key, reader)
    file, key_file = reader.text(ASSERTION + "file"), reader.text(ASSERTION + "private.key.file")
    if file is None and key_file is None:
        key = ASSERTION + "private.key.file"
        raise ConfigError(key, f"{key} is not set; JwtBearerJwtRetriever needs it without {ASSERTION}file.")
    algorithm = (reader.text(ASSERTION + "algorithm") or _ALGORITHMS[0]).upper()
    if algorithm not in _ALGORITHMS:
        raise reader.error(ASSERTION + "algorithm", f"must be one of {', '.join(_ALGORITHMS)}")
    claims = ((name, reader.text(f"{ASSERTION}claim.{name}")) for name in ("aud", "iss", "sub"))
    return AssertionRules(
        file,
        key_file,
        reader.text(ASSERTION + "private.key.passphrase"),
        algorithm,
        tuple((name, value) for name, value in claims if value is not None),
        reader.text(ASSERTION + "template.file"),
        reader.number(ASSERTION + "claim.exp.seconds", 300, 0, 86_400),
        reader.number(ASSERTION + "claim.nbf.seconds", 60, 0, 3_600),
        reader.boolean(ASSERTION + "claim.jti.include"),
        reader.text(SCOPE_KEY) or options.get("scope", "").strip() or None,
    )


def _credentials(options: Mapping[str, str], jaas_key: str, reader: "_Reader") -> ClientCredentials:
    """Return the credentials; a key takes precedence over a JAAS option (KIP-1139)."""
    client_id = reader.text(CLIENT_ID_KEY) or options.get("clientId", "").strip()
    secret = reader.text(CLIENT_SECRET_KEY) or options.get("clientSecret", "").strip()
    if not client_id or not secret:
        missing = "clientSecret" if client_id else "clientId"
        raise ConfigError(jaas_key, f"{jaas_key} has no {missing}, which the token endpoint needs.")
    return ClientCredentials(client_id, secret, reader.text(SCOPE_KEY) or options.get("scope", "").strip() or None)


class _Reader:
    def __init__(self, find: FindSetting) -> None:
        self._find = find

    def error(self, name: str, problem: str) -> ConfigError:
        given = self._find(name)
        key = name if given is None else given.key
        return ConfigError(key, f"{key} {problem}.")

    def text(self, name: str) -> str | None:
        given = self._find(name)
        return (given.value.strip() or None) if given is not None else None

    def boolean(self, name: str) -> bool:
        text = (self.text(name) or "false").lower()
        if text not in {"true", "false"}:
            raise self.error(name, "must be true or false")
        return text == "true"

    def number(self, name: str, default: int, least: int, most: int = 2**31 - 1) -> int:
        text = self.text(name)
        if text is None:
            return default
        if re.fullmatch("[0-9]{1,18}", text) is None or not least <= int(text) <= most:
            raise self.error(name, f"must be a whole number from {least} to {most}")
        return int(text)

    def decimal(self, name: str, default: float, least: float, most: float) -> float:
        try:
            value = float(self.text(name) or default)
        except ValueError:
            value = -1.0
        if not least <= value <= most:
            raise self.error(name, f"must be a number from {least} to {most}")
        return value
