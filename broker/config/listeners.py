"""Listeners of a node: parsing, and the rules between the five listener keys.

The rules follow Kafka's ``KafkaConfig.validateValues`` and ``CoreUtils.listenerListToEndPoints``. Port 0 stays 0 here;
the code that binds the socket fills in the real port.
"""

import ipaddress
import re
from collections import defaultdict
from collections.abc import Iterable, Mapping

from broker.config.errors import ConfigError
from protocol.lazy_dataclass import lazy_dataclass

LISTENERS = "listeners"
ADVERTISED_LISTENERS = "advertised.listeners"
PROTOCOL_MAP = "listener.security.protocol.map"
CONTROLLER_LISTENER_NAMES = "controller.listener.names"
INTER_BROKER_LISTENER_NAME = "inter.broker.listener.name"
SECURITY_INTER_BROKER_PROTOCOL = "security.inter.broker.protocol"

SECURITY_PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
_ENTRY = re.compile(r"(?P<name>[^:/]+)://(?:\[(?P<v6>[0-9A-Fa-f:.%]+)\]|(?P<host>[^:/\[\]]*)):(?P<port>[0-9]{1,5})")


@lazy_dataclass(frozen=True, slots=True)
class ConfiguredListener:
    """An address. An empty ``host`` means every interface; ``port`` 0 means a port that the system picks."""

    name: str
    protocol: str
    host: str
    port: int

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.name}://{host}:{self.port}"


@lazy_dataclass(frozen=True, slots=True)
class ListenerSettings:
    """The listener keys as given: lists are parsed, values are not compared yet."""

    is_broker: bool
    is_controller: bool
    listeners: tuple[str, ...]
    advertised: tuple[str, ...] | None
    protocol_map: str
    protocol_map_is_set: bool
    controller_names: tuple[str, ...]
    inter_broker_name: str | None
    inter_broker_protocol: str
    inter_broker_protocol_is_set: bool


@lazy_dataclass(frozen=True, slots=True)
class ListenerPlan:
    """The combined meaning of the listener keys.

    ``clients`` are the bound listeners for clients and brokers, ``controllers`` the bound listeners for the quorum. A
    broker registers ``advertised`` (never a controller listener). A controller registers ``advertised_controllers``, in
    the order of ``controller_names``. On a node that is only a controller, ``clients`` and ``advertised`` are empty and
    ``inter_broker_name`` is the configured name.
    """

    clients: tuple[ConfiguredListener, ...]
    controllers: tuple[ConfiguredListener, ...]
    advertised: tuple[ConfiguredListener, ...]
    advertised_controllers: tuple[ConfiguredListener, ...]
    protocols: Mapping[str, str]
    controller_names: tuple[str, ...]
    inter_broker_name: str


def plan_listeners(settings: ListenerSettings) -> ListenerPlan:
    """Resolve and cross-check the listener keys. Raise ConfigError with the key at fault."""
    protocols = _protocols(settings)
    bound = _parse_entries(LISTENERS, settings.listeners, protocols)
    _check_ports(bound)
    controller_names = tuple(name.upper() for name in settings.controller_names)
    plan = ListenerPlan(
        clients=tuple(listener for listener in bound if listener.name not in controller_names),
        controllers=tuple(listener for listener in bound if listener.name in controller_names),
        advertised=_advertised(settings, bound, controller_names, protocols),
        advertised_controllers=_advertised_controllers(settings, bound, controller_names, protocols),
        protocols=protocols,
        controller_names=controller_names,
        inter_broker_name=_inter_broker_name(settings, protocols),
    )
    _check_roles(settings, plan)
    return plan


def parse_protocol_map(text: str) -> dict[str, str]:
    """Parse ``NAME:PROTOCOL`` pairs; the last pair of a name wins, as in Kafka."""
    pairs = (entry.strip().rpartition(":") for entry in text.split(",") if entry.strip())
    return {_listener_name(name): _protocol(protocol) for name, _, protocol in pairs}


def _listener_name(name: str) -> str:
    if not name.strip():
        raise ConfigError(PROTOCOL_MAP, f"{PROTOCOL_MAP} must be a list of NAME:PROTOCOL pairs.")
    return name.strip().upper()


def _protocol(protocol: str) -> str:
    protocol = protocol.strip().upper()
    if protocol not in SECURITY_PROTOCOLS:
        allowed = ", ".join(SECURITY_PROTOCOLS)
        raise ConfigError(PROTOCOL_MAP, f"{PROTOCOL_MAP} has the protocol {protocol!r} but must use {allowed}.")
    return protocol


def _protocols(settings: ListenerSettings) -> dict[str, str]:
    """Return the protocol map. Controller listeners are PLAINTEXT when the map is not set (KIP-903's default)."""
    protocols = parse_protocol_map(settings.protocol_map)
    if not settings.protocol_map_is_set:
        for name in settings.controller_names:
            protocols.setdefault(name.upper(), "PLAINTEXT")
    return protocols


def _parse_entries(key: str, entries: Iterable[str], protocols: Mapping[str, str]) -> tuple[ConfiguredListener, ...]:
    listeners = tuple(_parse_entry(key, entry, protocols) for entry in entries)
    names = [listener.name for listener in listeners]
    for name in names:
        if names.count(name) > 1:
            raise ConfigError(key, f"{key} has more than one entry named {name}.")
    return listeners


def _parse_entry(key: str, entry: str, protocols: Mapping[str, str]) -> ConfiguredListener:
    match = _ENTRY.fullmatch(entry)
    if match is None or int(match["port"]) > 65535:
        raise ConfigError(key, f"{key} has the entry {entry!r} but every entry must be of the form NAME://host:port.")
    name = match["name"].upper()
    if name not in protocols:
        raise ConfigError(key, f"{key} has the listener {name}, for which {PROTOCOL_MAP} has no security protocol.")
    return ConfiguredListener(name, protocols[name], match["v6"] or match["host"] or "", int(match["port"]))


def _check_ports(bound: Iterable[ConfiguredListener]) -> None:
    """Check that a port serves one listener, or one on IPv4 and one on IPv6."""
    by_port: dict[int, list[str]] = defaultdict(list)
    for listener in bound:
        if listener.port != 0:
            by_port[listener.port].append(listener.host)
    for port, hosts in by_port.items():
        if len(hosts) > 1 and sorted(_ip_version(host) for host in hosts) != [4, 6]:
            raise ConfigError(LISTENERS, f"{LISTENERS} gives port {port} to more than one listener.")


def _ip_version(host: str) -> int:
    try:
        return ipaddress.ip_address(host).version
    except ValueError:
        return 0


def _advertised(
    settings: ListenerSettings,
    bound: tuple[ConfiguredListener, ...],
    controller_names: tuple[str, ...],
    protocols: Mapping[str, str],
) -> tuple[ConfiguredListener, ...]:
    if not settings.is_broker:
        return ()
    given = bound
    if settings.advertised is not None:
        given = _parse_entries(ADVERTISED_LISTENERS, settings.advertised, protocols)
    return tuple(listener for listener in given if listener.name not in controller_names)


def _advertised_controllers(
    settings: ListenerSettings,
    bound: tuple[ConfiguredListener, ...],
    controller_names: tuple[str, ...],
    protocols: Mapping[str, str],
) -> tuple[ConfiguredListener, ...]:
    """Return each controller listener as in advertised.listeners, else as bound (KIP-853)."""
    if not settings.is_controller:
        return ()
    by_name = {listener.name: listener for listener in bound}
    if settings.advertised is not None:
        given = _parse_entries(ADVERTISED_LISTENERS, settings.advertised, protocols)
        by_name |= {listener.name: listener for listener in given if listener.name in by_name}
    return tuple(by_name[name] for name in controller_names if name in by_name)


def _inter_broker_name(settings: ListenerSettings, protocols: Mapping[str, str]) -> str:
    name = settings.inter_broker_name
    if name is None:
        return settings.inter_broker_protocol
    if settings.inter_broker_protocol_is_set:
        raise ConfigError(
            INTER_BROKER_LISTENER_NAME,
            f"{INTER_BROKER_LISTENER_NAME} and {SECURITY_INTER_BROKER_PROTOCOL} must not both be set.",
        )
    if name.upper() not in protocols:
        raise ConfigError(
            INTER_BROKER_LISTENER_NAME,
            f"{INTER_BROKER_LISTENER_NAME} is {name} but must be a listener of {PROTOCOL_MAP}.",
        )
    return name.upper()


def _check_roles(settings: ListenerSettings, plan: ListenerPlan) -> None:
    if settings.is_controller:
        _check_controller_listeners(settings, plan)
    elif plan.controllers:
        raise ConfigError(
            LISTENERS,
            f"{LISTENERS} must not have {plan.controllers[0].name}: only a controller opens a controller listener.",
        )
    if settings.is_broker:
        _check_broker_listeners(plan)
    elif plan.clients:
        raise ConfigError(
            LISTENERS,
            f"{LISTENERS} has {plan.clients[0].name}, but a controller without the broker role opens none for clients.",
        )


def _check_controller_listeners(settings: ListenerSettings, plan: ListenerPlan) -> None:
    bound = {listener.name for listener in plan.controllers}
    missing = [name for name in plan.controller_names if name not in bound]
    if missing:
        raise ConfigError(
            CONTROLLER_LISTENER_NAMES,
            f"{CONTROLLER_LISTENER_NAMES} has {missing[0]}, but {LISTENERS} of this controller does not have it.",
        )


def _check_broker_listeners(plan: ListenerPlan) -> None:
    if not plan.advertised:
        raise ConfigError(
            ADVERTISED_LISTENERS,
            f"{ADVERTISED_LISTENERS} needs a listener for clients; all are in {CONTROLLER_LISTENER_NAMES}.",
        )
    for listener in plan.advertised:
        _check_advertised(listener, {bound.name for bound in plan.clients})
    if plan.inter_broker_name not in {listener.name for listener in plan.advertised}:
        raise ConfigError(
            INTER_BROKER_LISTENER_NAME,
            f"{INTER_BROKER_LISTENER_NAME} is {plan.inter_broker_name} but must be an advertised listener: "
            f"{', '.join(listener.name for listener in plan.advertised)}.",
        )


def _check_advertised(listener: ConfiguredListener, bound_names: set[str]) -> None:
    if listener.host in ("0.0.0.0", "::"):
        raise ConfigError(
            ADVERTISED_LISTENERS,
            f"{ADVERTISED_LISTENERS} must not advertise {listener.host}, which no client can reach; "
            "set it to an address that clients can use.",
        )
    if listener.name not in bound_names:
        raise ConfigError(
            ADVERTISED_LISTENERS, f"{ADVERTISED_LISTENERS} has {listener.name}, but {LISTENERS} does not have it."
        )
