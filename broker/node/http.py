"""The HTTP server of a node: address, TLS and credentials from the keys `ottla.http.*`.

The files are read at start, and again when they change. Files that cannot be used cost one log line, and what was read
last keeps serving.
"""

import asyncio
import os
import ssl
import stat
from pathlib import Path
from typing import Final, TypeAlias

from broker.config.broker_config import BrokerConfig
from broker.config.errors import ConfigError
from broker.http.access import HttpAccess
from broker.http.guard import HttpGuard
from broker.http.messages import Routes
from broker.http.server import HttpServer
from broker.logs import EventLog

_KEY_STORE: Final = "ottla.http.ssl.keystore.location"
_CREDENTIALS: Final = "ottla.http.credentials.location"
_log: Final = EventLog("ottla")

_States: TypeAlias = tuple[tuple[int, int, int] | None, ...]
"""Modification time, size and inode of each file; None for a file that cannot be read."""


class NodeHttp:
    """The HTTP server of a node, with the files of its certificate and credentials."""

    def __init__(self, config: BrokerConfig, routes: Routes, host: str, port: int) -> None:
        """Blocks for small files. Raise ConfigError."""
        self._config = config
        self._files = [str(config.value(key)) for key in (_KEY_STORE, _CREDENTIALS) if config.value(key)]
        self._states = self._present_states()
        self._access = HttpAccess(_tls(config), _guard(config))
        self.server = HttpServer(routes, host, port, self._access)

    async def watch(self) -> None:
        """Load changed files until cancelled."""
        while self._files:
            await asyncio.sleep(self._config.ottla_ssl_reload_interval_ms / 1000)
            await asyncio.to_thread(self.reload)

    def reload(self) -> None:
        """Load the files if one of them has changed since the last attempt. Blocks."""
        states = self._present_states()
        if states == self._states:
            return
        self._states = states
        try:
            tls, guard = _tls(self._config), _guard(self._config)
        except ConfigError as error:
            _log.error("Changed files of the HTTP listener cannot be used; the former stay", reason=error.sentence)
            return
        self._access.tls, self._access.guard = tls, guard
        _log.info("The certificate and the credentials of the HTTP listener were loaded again")

    def _present_states(self) -> _States:
        return tuple(map(_state, self._files))


def build_http(config: BrokerConfig, routes: Routes) -> NodeHttp | None:
    """Build the server; None without `ottla.http.listener`. Blocks for small files. Raise ConfigError."""
    listener = config.http_listener
    return None if listener is None else NodeHttp(config, routes, listener.host, listener.port)


def _tls(config: BrokerConfig) -> ssl.SSLContext | None:
    if not config.value(_KEY_STORE):
        return None
    # Local imports: a node without TLS does not load cryptography.
    from broker.tls.contexts import server_context
    from broker.tls.listener import warning_about_mode
    from broker.tls.settings import SettingsSource, read_tls_settings

    given = {
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(config.value(_KEY_STORE)),
        "ssl.key.password": config.layers.find("ottla.http.ssl.key.password"),
    }
    settings = read_tls_settings(SettingsSource(given.get, lambda name: f"ottla.http.{name}"))
    warning = warning_about_mode(settings)
    if warning is not None:
        _log.warning(warning)
    return server_context(settings)


def _guard(config: BrokerConfig) -> HttpGuard | None:
    if not config.value(_CREDENTIALS):
        return None
    path = Path(str(config.value(_CREDENTIALS)))
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


def _state(path: str) -> tuple[int, int, int] | None:
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino
