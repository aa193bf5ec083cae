"""The limits on connections that change while the broker runs: dynamic configs, and quotas of addresses (KIP-612)."""

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from ipaddress import ip_address
from typing import Any, Final

from broker.config.broker_config import BrokerConfig
from broker.logs import EventLog
from broker.metadata.image.config_image import ResourceType
from broker.metadata.image.delta import MetadataDelta
from broker.metadata.image.metadata_image import MetadataImage
from broker.metadata.image.quota_image import IP
from broker.net.listening import ListenError, addresses_of, by_address
from broker.net.server import Server
from broker.node.listeners import net_limits
from broker.rates.connection_rates import UNLIMITED

CONNECTION_CREATION_RATE: Final = "connection_creation_rate"

_log: Final = EventLog("broker.net")


class ConnectionQuotas:
    """A metadata publisher that changes the limits of `server`. Install after the dynamic configuration.

    `spawn` runs background tasks: host names are resolved on a thread. `resolve` returns the addresses of a host, and
    raises ListenError.
    """

    def __init__(
        self,
        server: Server,
        config: Callable[[], BrokerConfig],
        spawn: Callable[[Coroutine[Any, Any, None]], object],
        resolve: Callable[[str], set[str]] = addresses_of,
    ) -> None:
        self._server = server
        self._config = config
        self._spawn = spawn
        self._resolve = resolve
        self._host_limits: dict[str, float] = {}
        self._addresses: dict[str, set[str]] = {}
        """Resolved addresses of the host names with a quota."""

    def on_metadata(self, delta: MetadataDelta, _image: MetadataImage) -> None:
        """Apply changed configs and quotas."""
        if delta.configs is not None and any(
            resource.type == ResourceType.BROKER for resource in delta.configs.changed_resources
        ):
            self._spawn(self._change_limits(self._config()))
        if delta.client_quotas is None:
            return
        for entity, changes in delta.client_quotas.changes.items():
            if len(entity) == 1 and entity[0][0] == IP and CONNECTION_CREATION_RATE in changes:
                self._set(entity[0][1], changes[CONNECTION_CREATION_RATE])

    def _set(self, name: str | None, limit: float | None) -> None:
        rates = self._server.rates
        if name is None:
            rates.default_host_limit = UNLIMITED if limit is None else limit
            return
        try:
            rates.set_host_limit(str(ip_address(name)), limit)
        except ValueError:
            self._set_host(name, limit)

    def _set_host(self, host: str, limit: float | None) -> None:
        if limit is not None:
            self._host_limits[host] = limit
            self._spawn(self._limit_host(host))
            return
        self._host_limits.pop(host, None)
        for address in self._addresses.pop(host, ()):
            self._server.rates.set_host_limit(address, None)

    async def _limit_host(self, host: str) -> None:
        """Limit the addresses of a host to its present quota, which may have changed while they were resolved."""
        try:
            addresses = await asyncio.to_thread(self._resolve, host)
        except ListenError as error:
            _log.warning("The quota of a host is not enforced", host=host, reason=error)
            return
        limit = self._host_limits.get(host)
        if limit is not None:
            self._addresses[host] = addresses
            for address in addresses:
                self._server.rates.set_host_limit(address, limit)

    async def _change_limits(self, config: BrokerConfig) -> None:
        overrides = config.max_connections_per_ip_overrides
        try:
            resolved = await asyncio.to_thread(by_address, overrides) if _has_names(overrides) else dict(overrides)
        except ListenError as error:
            _log.warning("Changed limits on connections are not applied", reason=error)
            return
        if config is self._config():  # a later change has a task of its own
            self._server.set_limits(net_limits(config, config.client_listeners), resolved)


def _has_names(overrides: Mapping[str, int]) -> bool:
    for host in overrides:
        try:
            ip_address(host)
        except ValueError:
            return True
    return False
