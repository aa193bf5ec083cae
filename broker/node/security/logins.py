"""SASL logins of a node at the listeners of other nodes, from the settings of those listeners.

As in Kafka, credentials are those of `listener.name.NAME.MECHANISM.sasl.jaas.config`, which the listener itself uses,
too; a key without mechanism has no effect on a node. Settings are read once, when a part of the node is built.
"""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Final

from broker.clock import SystemClock
from broker.config.broker_config import BrokerConfig
from broker.config.definitions import LISTENER_PREFIX
from broker.net.peer import Connect, SaslConnect
from broker.net.token_source import shared_source
from broker.runtime.remote_metadata.settings import client_sasl_settings, client_spelling
from broker.sasl.client.login_settings import (
    JAAS_KEY,
    MECHANISM_KEY,
    SASL_PROTOCOLS,
    LoginSurroundings,
    build_login,
)
from broker.sasl.client.oauth_settings import GivenSetting, OAuthSettings
from broker.sasl.client.sasl_login import SaslLogin, TokenSupply

INTER_BROKER_KEY: Final = "sasl.mechanism.inter.broker.protocol"
CONTROLLER_KEY: Final = "sasl.mechanism.controller.protocol"
_SYSTEM_CLOCK: Final = SystemClock()


class NodeLogins:
    """Adds logins to connections where the security protocol of a listener has SASL."""

    def __init__(
        self,
        config: BrokerConfig,
        now_ms: Callable[[], int] = _SYSTEM_CLOCK.now_ms,
        supply: Callable[[OAuthSettings], TokenSupply] = shared_source,
    ) -> None:
        self._config = config
        self._now_ms = now_ms
        self._supply = supply

    def connect(self, listener: str, connect: Connect) -> Connect:
        """Return `connect` with the login at a listener, if it needs one. Raise ConfigError."""
        return self._with_login(listener, connect, {})

    def connect_for_remote_metadata(self, listener: str, connect: Connect) -> Connect:
        """Return `connect` with the login of remote metadata's clients; their own settings take precedence."""
        prefix = self._config.remote_log_metadata_manager_impl_prefix
        return self._with_login(listener, connect, self._config.settings_below(prefix))

    def _with_login(self, listener: str, connect: Connect, given: dict[str, str]) -> Connect:
        if self._config.listener_protocols.get(listener) not in SASL_PROTOCOLS:
            return connect
        return SaslConnect(connect, self._login(listener, given))

    def _login(self, listener: str, given: dict[str, str]) -> SaslLogin:
        """Return the login; `given` are settings of remote metadata's clients."""
        own, prefix = client_sasl_settings(given), self._config.remote_log_metadata_manager_impl_prefix
        if listener in self._config.controller_listener_names:
            mechanism, mechanism_key = self._config.sasl_mechanism_controller_protocol, CONTROLLER_KEY
        else:
            mechanism, mechanism_key = self._config.sasl_mechanism_inter_broker_protocol, INTER_BROKER_KEY
        if MECHANISM_KEY in own:
            mechanism, mechanism_key = own[MECHANISM_KEY].strip(), prefix + client_spelling(given, MECHANISM_KEY)
        jaas_key = _mechanism_key(listener, mechanism, "sasl.jaas.config")
        jaas = self._config.layers.find(jaas_key)
        if JAAS_KEY in own:
            jaas, jaas_key = own[JAAS_KEY], prefix + client_spelling(given, JAAS_KEY)
        find = partial(self._find, listener, mechanism, own, given)
        return build_login(
            mechanism, mechanism_key, jaas, jaas_key, LoginSurroundings(find, self._now_ms, self._supply)
        )

    def _find(
        self, listener: str, mechanism: str, own: Mapping[str, str], given: Mapping[str, str], name: str
    ) -> GivenSetting | None:
        """Find a setting: that of remote metadata's clients, of the listener's mechanism, its listener, or the node."""
        if name in own:
            prefix = self._config.remote_log_metadata_manager_impl_prefix
            return GivenSetting(prefix + client_spelling(given, name), own[name])
        for key in (_mechanism_key(listener, mechanism, name), f"{LISTENER_PREFIX}{listener.lower()}.{name}", name):
            if (value := self._config.layers.find(key)) is not None:
                return GivenSetting(key, value)
        return None


def _mechanism_key(listener: str, mechanism: str, name: str) -> str:
    return f"{LISTENER_PREFIX}{listener.lower()}.{mechanism.lower()}.{name}"
