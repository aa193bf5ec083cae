"""The HTTP server of a node: address, TLS and credentials from the keys `ottla.http.*`. Reads files at start."""

import ssl
import stat
from pathlib import Path
from typing import Final

from broker.config.broker_config import BrokerConfig
from broker.config.errors import ConfigError
from broker.http.guard import HttpGuard
from broker.http.messages import Routes
from broker.http.server import HttpServer
from broker.logs import EventLog

_CREDENTIALS: Final = "ottla.http.credentials.location"
_log: Final = EventLog("ottla")


def build_http(config: BrokerConfig, routes: Routes) -> HttpServer | None:
    """Build the server; None without `ottla.http.listener`. Blocks for small files. Raise ConfigError."""
    listener = config.http_listener
    if listener is None:
        return None
    return HttpServer(routes, listener.host, listener.port, tls=_tls(config), guard=_guard(config))


def _tls(config: BrokerConfig) -> ssl.SSLContext | None:
    if not config.value("ottla.http.ssl.keystore.location"):
        return None
    # Local imports: a node without TLS does not load cryptography.
    from broker.tls.contexts import server_context
    from broker.tls.listener import warning_about_mode
    from broker.tls.settings import SettingsSource, read_tls_settings

    given = {
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(config.value("ottla.http.ssl.keystore.location")),
        "ssl.key.password": config.layers.find("ottla.http.ssl.key.password"),
    }
    settings = read_tls_settings(SettingsSource(given.get, lambda name: f"ottla.http.{name}"))
    warning = warning_about_mode(settings)
    if warning is not None:
        _log.warning(warning)
    return server_context(settings)


def _guard(config: BrokerConfig) -> HttpGuard | None:
    if not config.value("ottla.http.credentials.location"):
        return None
    path = Path(str(config.value("ottla.http.credentials.location")))
    try:
        lines = path.read_text().splitlines()
        is_open = path.stat().st_mode & stat.S_IROTH
        guard = HttpGuard(lines)
    except OSError as error:
        raise ConfigError(_CREDENTIALS, f"{_CREDENTIALS}: {path} cannot be read: {error.strerror}.") from error
    except UnicodeDecodeError:
        raise ConfigError(_CREDENTIALS, f"{_CREDENTIALS}: {path} is not a text in UTF-8.") from None
    except ValueError as error:
        raise ConfigError(_CREDENTIALS, f"{_CREDENTIALS}: {path} {error}.") from None
    if is_open:
        _log.warning(f"{_CREDENTIALS}: every user of this machine may read {path}; use mode 600.")
    return guard
