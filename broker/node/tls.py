"""TLS of a node: the contexts of its listeners and of its connections to other nodes, loaded again when they change.

Certificates change in two ways. A file changes: its state is polled on a thread every `ottla.ssl.reload.interval.ms`.
A dynamic config names other files, or other PEM text. Either way, contexts are built on a thread and then replaced;
contexts that cannot be built cost one log line, and the present ones keep serving.
"""

import asyncio
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from broker.config.broker_config import BrokerConfig
from broker.config.definitions import LISTENER_PREFIX
from broker.config.errors import ConfigError
from broker.logs import EventLog
from broker.metadata.image.config_image import ResourceType
from broker.metadata.image.delta import MetadataDelta
from broker.metadata.image.metadata_image import MetadataImage
from broker.net.peer import Connect, TcpConnect
from broker.net.tls_connect import TlsConnect
from broker.runtime.remote_metadata.settings import client_spelling, client_tls_settings
from broker.sasl.client.login_settings import TLS_PROTOCOLS
from broker.tls.keys import TLS_KEYS
from broker.tls.principal_rules import DEFAULT_RULES, PrincipalRules, parse_principal_rules
from broker.tls.settings import SettingsSource, TlsSettings, read_tls_settings
from protocol.lazy_dataclass import lazy_dataclass

if TYPE_CHECKING:
    from broker.tls.listener import ListenerTls, LoadedTls

_REMOTE_METADATA: Final = "remote metadata"
"""Stands for a listener where the clients of remote metadata have TLS settings of their own."""

_log: Final = EventLog("broker.tls")


@lazy_dataclass(frozen=True, slots=True)
class _Wanted:
    """The settings of a listener as configured. `serves`: this node binds the listener."""

    listener: str
    settings: TlsSettings
    rules: PrincipalRules
    serves: bool

    def load(self) -> "LoadedTls":
        """Build the contexts. Blocks. Raise ConfigError."""
        from broker.tls.listener import load_tls  # local import: a node without TLS does not load cryptography

        return load_tls(self.listener, self.settings, self.rules, serves=self.serves)


class NodeTls:
    """The TLS side of the listeners that a node binds or connects to.

    A metadata publisher; install it after the dynamic configuration.
    """

    def __init__(self, config: BrokerConfig) -> None:
        """Load the contexts of all listeners with the protocol SSL or SASL_SSL. Blocks. Raise ConfigError."""
        self._config = config
        self._listeners: dict[str, ListenerTls] = {}
        self._warned: set[str] = set()
        self._refused: dict[str, object] = {}  # by listener, what could not be loaded last
        self._configs_changed = asyncio.Event()
        for name in sorted(_listener_names(config)):
            if config.listener_protocols.get(name) in TLS_PROTOCOLS:
                self._load_at_start(name)
        if (
            client_tls_settings(_remote_metadata_settings(config))
            and _remote_metadata_listener(config) in self._listeners
        ):
            self._load_at_start(_REMOTE_METADATA)

    def _load_at_start(self, name: str) -> None:
        from broker.tls.listener import ListenerTls, warning_about_mode  # local import: see `_Wanted.load`

        loaded = _wanted(self._config, name).load()
        self._listeners[name] = ListenerTls(loaded)
        warning = warning_about_mode(loaded.settings)
        if warning is not None and warning not in self._warned:
            self._warned.add(warning)
            _log.warning(warning)

    @property
    def listeners(self) -> "Mapping[str, ListenerTls]":
        """The TLS sides by listener name; listeners without TLS are missing."""
        return self._listeners

    def connect(self, loop: asyncio.AbstractEventLoop, listener: str) -> Connect:
        """Return the function that opens connections to a listener of other nodes."""
        tls = self._listeners.get(listener)
        if tls is None:
            return TcpConnect(loop)
        return TlsConnect(loop, tls, timeout_ms=self._config.ottla_ssl_handshake_timeout_ms)

    def connect_for_remote_metadata(self, loop: asyncio.AbstractEventLoop, listener: str) -> Connect:
        """Return the function that opens connections of the remote metadata's clients to a listener."""
        return self.connect(loop, _REMOTE_METADATA if _REMOTE_METADATA in self._listeners else listener)

    def on_metadata(self, delta: MetadataDelta, _image: MetadataImage) -> None:
        """Check soon whether changed configs concern TLS."""
        if delta.configs is not None and any(
            resource.type == ResourceType.BROKER for resource in delta.configs.changed_resources
        ):
            self._configs_changed.set()

    async def watch(self, current: Callable[[], BrokerConfig]) -> None:
        """Load changed certificates until cancelled. `current` returns the present configuration."""
        interval_s = self._config.ottla_ssl_reload_interval_ms / 1000
        while self._listeners:
            with suppress(TimeoutError):
                async with asyncio.timeout(interval_s):
                    await self._configs_changed.wait()
            self._configs_changed.clear()
            await self.reload(current())

    async def check(self, proposed: BrokerConfig) -> None:
        """Load the listeners' contexts from another configuration, without using them. Raise ConfigError."""
        for name, tls in self._listeners.items():
            wanted = _wanted(proposed, name)
            if wanted.settings != tls.loaded.settings:
                await asyncio.to_thread(wanted.load)

    async def reload(self, config: BrokerConfig) -> None:
        """Load what has changed, on a thread."""
        for name in self._listeners:
            await self._reload(name, config)

    async def _reload(self, name: str, config: BrokerConfig) -> None:
        tls = self._listeners[name]
        try:
            loaded = await asyncio.to_thread(self._load_if_changed, tls.loaded, name, config)
        except ConfigError as error:
            reason = error.sentence
            _log.error("Changed TLS settings cannot be used; the former ones stay", listener=name, reason=reason)
            return
        if loaded is not None:
            tls.replace(loaded)
            _log.info("TLS settings and certificates were loaded again", listener=name)

    def _load_if_changed(self, present: "LoadedTls", name: str, config: BrokerConfig) -> "LoadedTls | None":
        """Return other contexts; None without a change since the last attempt. Blocks. Raise ConfigError."""
        from broker.tls.listener import file_states  # local import: see `_Wanted.load`

        texts = _texts(config, name)
        attempt = (texts, file_states(present.settings.files))
        try:
            wanted = _wanted(config, name)
            attempt = (texts, file_states(wanted.settings.files))
            is_same = (wanted.settings, wanted.rules, attempt[1]) == (present.settings, present.rules, present.files)
            if is_same or attempt == self._refused.get(name):
                return None
            loaded = wanted.load()
        except ConfigError:
            if attempt == self._refused.get(name):
                return None
            self._refused[name] = attempt
            raise
        self._refused.pop(name, None)
        return loaded


def _listener_names(config: BrokerConfig) -> set[str]:
    """Return the listeners that this node binds, and those of other nodes that it connects to."""
    bound = {listener.name for listener in (*config.client_listeners, *config.controller_listeners)}
    return bound | {
        config.inter_broker_listener_name,
        _remote_metadata_listener(config),
        *config.controller_listener_names,
    }


def _remote_metadata_listener(config: BrokerConfig) -> str:
    return config.remote_log_metadata_manager_listener_name or config.inter_broker_listener_name


def _remote_metadata_settings(config: BrokerConfig) -> dict[str, str]:
    if not config.remote_log_storage_system_enable:
        return {}
    return config.settings_below(config.remote_log_metadata_manager_impl_prefix)


def _wanted(config: BrokerConfig, listener: str) -> _Wanted:
    """Return the settings of a listener: the keys below its prefix, else those without. Raise ConfigError."""
    source = tls_source(config, listener)
    try:
        rules = parse_principal_rules(source.get("ssl.principal.mapping.rules") or DEFAULT_RULES)
    except ValueError as error:
        raise source.error("ssl.principal.mapping.rules", str(error)) from None
    serves = any(each.name == listener for each in (*config.client_listeners, *config.controller_listeners))
    return _Wanted(listener, read_tls_settings(source), rules, serves)


def tls_source(config: BrokerConfig, listener: str) -> SettingsSource:
    """Return the TLS settings of a listener as texts."""
    if listener == _REMOTE_METADATA:
        return _remote_metadata_source(config)
    prefix = f"{LISTENER_PREFIX}{listener.lower()}."

    def find(name: str) -> str | None:
        given = config.layers.find(prefix + name)
        return config.layers.find(name) if given is None else given

    def spelling(name: str) -> str:
        return name if config.layers.find(prefix + name) is None else prefix + name

    return SettingsSource(find, spelling)


def _remote_metadata_source(config: BrokerConfig) -> SettingsSource:
    """Return the settings of the remote metadata's clients; what they lack is that of their listener."""
    given = _remote_metadata_settings(config)
    own, below = client_tls_settings(given), tls_source(config, _remote_metadata_listener(config))

    def find(name: str) -> str | None:
        return own[name] if name in own else below.find(name)

    def spelling(name: str) -> str:
        prefix = config.remote_log_metadata_manager_impl_prefix
        return prefix + client_spelling(given, name) if name in own else below.spelling(name)

    return SettingsSource(find, spelling)


def _texts(config: BrokerConfig, listener: str) -> tuple[str | None, ...]:
    source = tls_source(config, listener)
    return tuple(source.get(name) for name in (*TLS_KEYS, "ssl.client.auth", "ssl.principal.mapping.rules"))
