"""The configurations of several brokers on one machine, derived from one configuration.

Broker 0 keeps node id, roles and ports of the configuration; the further ones are brokers only. All have the same rack,
the machine, so that replicas of a partition never share it where the cluster has enough machines (KIP-36). Files never
collide: each broker has a directory of its own in every log directory.
"""

from collections.abc import Iterable, Mapping
from posixpath import join

from broker.config.broker_config import BrokerConfig
from broker.config.errors import ConfigError
from broker.config.listeners import ADVERTISED_LISTENERS, LISTENERS, ConfiguredListener

LAST_PORT = 65535
_HTTP_LISTENER = "ottla.http.listener"
_SCHEDULING_POLICY = "ottla.scheduling.policy"


def co_located_settings(config: BrokerConfig, index: int, *, machine: str) -> dict[str, str]:
    """Return the settings in which broker `index`, from 0, differs from the configuration.

    The rack is `machine` without `broker.rack`. Ports of broker `index` are `ottla.brokers.port.step` times `index`
    higher; its HTTP port is `index` + 1 higher, because all brokers together answer at the configured one. The
    scheduling policy is batch without `ottla.scheduling.policy`. Raise ConfigError.
    """
    shift = config.ottla_brokers_port_step * index
    settings = {
        **_identity(config, index),
        LISTENERS: _texts(_bound(config, index), shift),
        "log.dirs": ",".join(broker_directory(path, index) for path in config.log_dirs),
        "broker.rack": config.broker_rack or machine,
    }
    if config.layers.find(_SCHEDULING_POLICY) is None:
        settings[_SCHEDULING_POLICY] = "batch"
    if config.layers.find(ADVERTISED_LISTENERS) is not None and index > 0:
        settings[ADVERTISED_LISTENERS] = _texts(config.advertised_listeners, shift)
    if config.value("metadata.log.dir") is not None:
        settings["metadata.log.dir"] = broker_directory(config.metadata_log_dir, index)
    if config.ottla_audit_log:
        settings["ottla.audit.log"] = f"{config.ottla_audit_log}.broker-{index}"
    http = config.http_listener
    if http is not None and http.port:
        host = f"[{http.host}]" if ":" in http.host else http.host
        settings[_HTTP_LISTENER] = f"{host}:{_port(http.port, index + 1, _HTTP_LISTENER)}"
    if config.lone:
        settings |= _quorum_of_a_lone_machine(config)
    return settings


def check_derivable(config: BrokerConfig, count: int) -> None:
    """Raise ConfigError without a broker role, for a port that is to be picked, and for ports that collide."""
    if not config.is_broker:
        raise ConfigError("process.roles", "process.roles must contain broker where --brokers is given.")
    bound = [*config.client_listeners, *config.controller_listeners]
    unknown = next((listener.name for listener in bound if not listener.port), None)
    if unknown is not None:
        raise ConfigError(LISTENERS, f"listeners: {unknown} needs a port where --brokers is given, not 0.")
    used: dict[int, str] = {}
    for port, owner in _ports(config, count):
        if port in used:
            raise ConfigError(
                LISTENERS,
                f"listeners: {used[port]} and {owner} would both use port {port}; change ottla.brokers.port.step.",
            )
        used[port] = owner


def broker_directory(path: str, index: int) -> str:
    """Return the directory of broker `index` in a log directory of the configuration."""
    return join(path, f"broker-{index}")


def _identity(config: BrokerConfig, index: int) -> dict[str, str]:
    node_id = str(config.node_id + index)
    roles = "broker,controller" if config.is_controller and index == 0 else "broker"
    return {"node.id": node_id, "broker.id": node_id, "process.roles": roles}


def _bound(config: BrokerConfig, index: int) -> tuple[ConfiguredListener, ...]:
    return config.client_listeners if index else (*config.client_listeners, *config.controller_listeners)


def _texts(listeners: Iterable[ConfiguredListener], shift: int) -> str:
    """Return listeners as the value of a key, with higher ports. Raise ConfigError."""
    return ",".join(
        str(ConfiguredListener(each.name, each.protocol, each.host, _port(each.port, shift, LISTENERS)))
        for each in listeners
    )


def _port(first: int, shift: int, key: str) -> int:
    if first + shift > LAST_PORT:
        raise ConfigError(key, f"{key}: port {first} is too high for so many brokers on this machine.")
    return first + shift


def _quorum_of_a_lone_machine(config: BrokerConfig) -> Mapping[str, str]:
    """Return where all brokers of a machine without a place in a cluster find their controller, which is broker 0."""
    return {
        "controller.listener.names": ",".join(config.controller_listener_names),
        "controller.quorum.voters": ",".join(
            f"{voter.id}@{voter.address.host}:{voter.address.port}" for voter in config.voters
        ),
    }


def _ports(config: BrokerConfig, count: int) -> Iterable[tuple[int, str]]:
    """Yield every port that the machine uses, with its owner as a message names it."""
    http = config.http_listener
    for index in range(count):
        for listener in _bound(config, index):
            yield listener.port + config.ottla_brokers_port_step * index, f"{listener.name} of broker {index}"
        if http is not None and http.port:
            yield http.port + index + 1, f"HTTP of broker {index}"
    if http is not None and http.port:
        yield http.port, "HTTP of the machine"
