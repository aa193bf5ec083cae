"""TLS of a node: the contexts of its listeners and of its connections to other nodes, loaded again when they change.

Certificates change in two ways. A file changes: its state is polled on a thread every `ottla.ssl.reload.interval.ms`.
A dynamic config names other files, or other PEM text. Either way, contexts are built on a thread and then replaced;
contexts that cannot be built cost one log line, and the present ones keep serving.
"""

import asyncio
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
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
from broker.tls.principal_rules import DEFAULT_RULES, PrincipalRules, parse_principal_rules
from broker.tls.settings import TLS_KEYS, SettingsSource, TlsSettings, read_tls_settings

if TYPE_CHECKING:
    from broker.tls.listener import ListenerTls, LoadedTls

SSL: Final = "SSL"

_log: Final = EventLog("broker.tls")


@dataclass(frozen=True, slots=True)
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
        """Load the contexts of all listeners with the protocol SSL. Blocks. Raise ConfigError."""
        self._config = config
        self._listeners: dict[str, ListenerTls] = {}
        self._refused: dict[str, object] = {}  # by listener, what could not be loaded last
        self._configs_changed = asyncio.Event()
        for name in sorted(_listener_names(config)):
            if config.listener_protocols.get(name) == SSL:
                self._load_at_start(name)

    def _load_at_start(self, name: str) -> None:
        from broker.tls.listener import ListenerTls  # local import: see `_Wanted.load`

        self._listeners[name] = ListenerTls(_wanted(self._config, name).load())

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
            for name in self._listeners:
                await self._reload(name, current())

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
    remote_metadata = config.remote_log_metadata_manager_listener_name
    others = {config.inter_broker_listener_name, *config.controller_listener_names}
    return bound | others | ({remote_metadata} if remote_metadata else set())


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
    prefix = f"{LISTENER_PREFIX}{listener.lower()}."

    def find(name: str) -> str | None:
        given = config.layers.find(prefix + name)
        return config.layers.find(name) if given is None else given

    def spelling(name: str) -> str:
        return name if config.layers.find(prefix + name) is None else prefix + name

    return SettingsSource(find, spelling)


def _texts(config: BrokerConfig, listener: str) -> tuple[str | None, ...]:
    source = tls_source(config, listener)
    return tuple(source.get(name) for name in (*TLS_KEYS, "ssl.client.auth", "ssl.principal.mapping.rules"))
