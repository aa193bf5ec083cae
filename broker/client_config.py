"""The configuration of the blocking client, and the opening of its connections."""

import socket
from collections.abc import Callable, Mapping
from dataclasses import field
from typing import NamedTuple

from broker.clock import SystemClock
from broker.config.errors import ConfigError
from broker.net.token_source import shared_source
from broker.sasl.client.login_settings import (
    JAAS_KEY,
    LOGIN_KEYS,
    MECHANISM_KEY,
    SASL_PROTOCOLS,
    TLS_PROTOCOLS,
    LoginSurroundings,
    build_login,
)
from broker.sasl.client.oauth_settings import GivenSetting
from broker.sasl.client.sasl_login import SaslLogin
from broker.tls.keys import TLS_KEYS
from protocol.lazy_dataclass import lazy_dataclass

SOFTWARE_NAME = "ottla-client"
DEFAULT_PORT = 9092
DEFAULT_MECHANISM = "GSSAPI"
SECURITY_PROTOCOLS = frozenset({"PLAINTEXT", "SSL"}) | SASL_PROTOCOLS

CLIENT_PROPERTIES: frozenset[str] = frozenset(
    {
        "client.id",
        "security.protocol",
        "socket.connection.setup.timeout.ms",
        "request.timeout.ms",
        "default.api.timeout.ms",
        "retry.backoff.ms",
        "retry.backoff.max.ms",
        *LOGIN_KEYS,
        *TLS_KEYS,
    }
)
"""Properties that `ClientConfig.parse` uses."""


class ClientError(Exception):
    """A failure that its message explains to the user."""


class Endpoint(NamedTuple):
    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    @classmethod
    def parse(cls, text: str) -> "Endpoint":
        """Parse "host:port", "[v6]:port" or "host" (port 9092). Raises ClientError."""
        host, colon, port = text.strip().rpartition(":")
        if not colon or (host.count(":") and not host.startswith("[")):
            host, port = text.strip(), str(DEFAULT_PORT)
        host = host.strip("[]")
        if not host or not port.isdigit() or not 0 < int(port) < 65536:
            raise ClientError(f"{text.strip()!r} is not an address; use HOST:PORT.")
        return cls(host, int(port))


@lazy_dataclass(frozen=True, slots=True)
class ClientConfig:
    """Client settings, in ms. `api_timeout_ms` limits an operation with retries, `request_timeout_ms` one request."""

    bootstrap: tuple[Endpoint, ...]
    client_id: str = SOFTWARE_NAME
    security_protocol: str = "PLAINTEXT"
    connect_timeout_ms: int = 10_000
    request_timeout_ms: int = 30_000
    api_timeout_ms: int = 60_000
    retry_backoff_ms: int = 100
    retry_backoff_max_ms: int = 1_000
    tls: tuple[tuple[str, str], ...] = field(default=(), repr=False)
    """The `ssl.*` properties; some are secrets."""
    sasl: tuple[tuple[str, str], ...] = field(default=(), repr=False)
    """The `sasl.*` properties; some are secrets."""

    @classmethod
    def parse(cls, bootstrap: str, properties: Mapping[str, str] | None = None) -> "ClientConfig":
        """Build a configuration from "h:p,h:p" and the properties in CLIENT_PROPERTIES; ignore other properties.

        Raises ClientError for an invalid address, number, protocol or login.
        """
        given = properties or {}
        endpoints = tuple(Endpoint.parse(part) for part in bootstrap.split(",") if part.strip())
        if not endpoints:
            raise ClientError("no bootstrap server is given; use --bootstrap-server HOST:PORT.")
        config = cls(
            bootstrap=endpoints,
            client_id=given.get("client.id", SOFTWARE_NAME),
            security_protocol=given.get("security.protocol", "PLAINTEXT").strip().upper(),
            connect_timeout_ms=_positive(given, "socket.connection.setup.timeout.ms", 10_000),
            request_timeout_ms=_positive(given, "request.timeout.ms", 30_000),
            api_timeout_ms=_positive(given, "default.api.timeout.ms", 60_000),
            retry_backoff_ms=_positive(given, "retry.backoff.ms", 100),
            retry_backoff_max_ms=_positive(given, "retry.backoff.max.ms", 1_000),
            tls=tuple((name, value) for name in TLS_KEYS if (value := given.get(name)) is not None),
            sasl=tuple((name, value) for name in LOGIN_KEYS if (value := given.get(name)) is not None),
        )
        if config.security_protocol not in SECURITY_PROTOCOLS:
            known = ", ".join(sorted(SECURITY_PROTOCOLS))
            raise ClientError(f"security.protocol={config.security_protocol} is unknown; use one of {known}.")
        config.login()
        return config

    def login(self) -> SaslLogin | None:
        """Return the login of new connections; None without SASL. Raises ClientError for properties that lack one."""
        if self.security_protocol not in SASL_PROTOCOLS:
            return None
        given = {name: value.strip() for name, value in self.sasl}
        mechanism = given.get(MECHANISM_KEY) or DEFAULT_MECHANISM
        try:
            return build_login(mechanism, MECHANISM_KEY, given.get(JAAS_KEY) or None, JAAS_KEY, _surroundings(given))
        except ConfigError as error:
            raise ClientError(error.sentence) from error


def _surroundings(given: Mapping[str, str]) -> LoginSurroundings:
    def find(key: str) -> GivenSetting | None:
        return GivenSetting(key, value) if (value := given.get(key)) is not None else None

    return LoginSurroundings(find, SystemClock().now_ms, shared_source)


def _positive(properties: Mapping[str, str], key: str, default: int) -> int:
    text = properties.get(key, str(default)).strip()
    if not text.isdigit() or int(text) == 0:
        raise ClientError(f"{key}={text} is not a positive number.")
    return int(text)


OpenSocket = Callable[[Endpoint, ClientConfig], socket.socket]
"""Function that opens a connection ready for Kafka frames. Raises OSError or ClientError."""


def open_socket(endpoint: Endpoint, config: ClientConfig) -> socket.socket:
    """Open a TCP connection, with TLS if the protocol has it. Raises ClientError for properties that cannot be used."""
    opened = socket.create_connection(endpoint, config.connect_timeout_ms / 1000)
    opened.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    if config.security_protocol not in TLS_PROTOCOLS:
        return opened
    from broker.tls.blocking_socket import secure  # local import: clients without TLS do not load cryptography

    try:
        return secure(opened, endpoint.host, config.tls)
    except ConfigError as error:
        raise ClientError(error.sentence) from error
