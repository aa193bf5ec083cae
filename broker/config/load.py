"""The static configuration: overrides over environment over file over default.

Owns the sources of settings and the warnings about settings without the expected effect. Reads one file; arguments
supply everything else.
"""

import re
from collections.abc import Iterable, Mapping
from pathlib import Path

from broker.config.broker_config import BrokerConfig
from broker.config.cross_checks import check_together
from broker.config.definitions import (
    ALIAS_UNITS,
    ALIASES,
    AUTHORIZER_SETTINGS,
    BROKER_KEYS,
    DYNAMIC_ONLY,
    REPLACED,
    broker_key,
    is_honoured_per_listener,
    nearest,
    plugin_prefixes,
)
from broker.config.environment import CLUSTER_ID, settings_from_environment
from broker.config.errors import ConfigError

_CLIENT_LISTENER = "PLAINTEXT://127.0.0.1:9092"
_CONTROLLER_LISTENER = "CONTROLLER://127.0.0.1:9093"
_FREE_CONTROLLER_LISTENER = "CONTROLLER://127.0.0.1:0"
_METADATA_TOPIC = re.compile(r"remote\.log\.metadata\.(topic|common|producer|consumer|admin|consume|initialization)\.")
"""Settings that KIP-405 lists without their required prefix."""
_PLACE_IN_A_CLUSTER = (
    "process.roles",
    "node.id",
    "broker.id",
    "controller.listener.names",
    "controller.quorum.voters",
    "controller.quorum.bootstrap.servers",
)


def load_config(
    path: str | None, overrides: Iterable[str], environ: Mapping[str, str]
) -> tuple[BrokerConfig, list[str]]:
    """Load a node's configuration. Return it with warnings, each one sentence.

    ``path`` is a Java properties file or None. ``overrides`` are ``KEY=VALUE`` texts; the last one for a key wins.
    Raise ConfigError.
    """
    warnings: list[str] = []
    given = {} if path is None else read_properties(path)
    given |= settings_from_environment(environ)
    given |= dict(parse_override(override) for override in overrides)
    static = _known_names(given, warnings)
    lone = path is None and not any(name in static for name in _PLACE_IN_A_CLUSTER)
    settings, cluster_id = _as_lone_node(static) if lone else static, environ.get(CLUSTER_ID) or None
    try:
        return parse_config(settings, cluster_id=cluster_id, lone=lone), warnings
    except ConfigError as error:
        raise _under_alias(error, given) from error


def _under_alias(error: ConfigError, given: Mapping[str, str]) -> ConfigError:
    """Return the error with the alias under which the key was given, if any, in place of the key."""
    alias = next((name for name in given if ALIASES.get(name) == error.key and error.key not in given), None)
    return error if alias is None else ConfigError(alias, error.sentence.replace(error.key, alias))


def parse_config(static: Mapping[str, str], *, cluster_id: str | None = None, lone: bool = False) -> BrokerConfig:
    """Return a checked configuration from settings by key. Raise ConfigError."""
    config = BrokerConfig(_with_replaced_keys(_with_both_ids(static)), cluster_id=cluster_id, lone=lone)
    check_together(config)
    return config


def read_properties(path: str) -> dict[str, str]:
    """Read a Java properties file. Raise ConfigError when it cannot be read or is not of that format."""
    import javaproperties  # Local import: it takes 28 ms, which a start without a file does not need to spend.

    try:
        with Path(path).open("rb") as file:
            return dict(javaproperties.load(file))
    except OSError as error:
        raise ConfigError(path, f"The configuration file {path} cannot be read: {error.strerror}.") from error
    except ValueError as error:
        raise ConfigError(path, f"The configuration file {path} is not a properties file: {error}.") from error


def parse_override(override: str) -> tuple[str, str]:
    """Split ``KEY=VALUE``; the value may contain equal signs. Raise ConfigError."""
    name, equals, value = override.partition("=")
    if not equals or not name.strip():
        raise ConfigError(override, f"The override {override!r} must be of the form KEY=VALUE.")
    return name.strip(), value.strip()


def _known_names(given: Mapping[str, str], warnings: list[str]) -> dict[str, str]:
    """Return the settings under the names of the tables; add a warning for each setting without effect."""
    known: dict[str, str] = {}
    prefixes = plugin_prefixes(given)
    for name, value in given.items():
        if name in ALIASES:
            known.setdefault(ALIASES[name], _in_units(name, value))
        elif name in DYNAMIC_ONLY:
            warnings.append(f"{name} has no effect in a static configuration: only AlterConfigs can set it.")
        elif name in AUTHORIZER_SETTINGS:
            known[name] = value
            if not given.get("authorizer.class.name"):
                warnings.append(f"{name} has no effect without authorizer.class.name: everyone may do everything.")
        else:
            known[name] = value
            warnings.extend(_warnings_about(name, value, prefixes))
    return known


def effect_warnings(config: BrokerConfig) -> list[str]:
    """Return one sentence about each setting without the expected effect, those of the dynamic layers included."""
    warnings: list[str] = []
    layers = config.layers
    _known_names(layers.static, warnings)
    prefixes = plugin_prefixes(layers.static)
    for name, value in {**layers.cluster, **layers.broker}.items():
        if name not in DYNAMIC_ONLY:
            warnings.extend(_warnings_about(name, value, prefixes))
    return list(dict.fromkeys(warnings))


def _in_units(alias: str, value: str) -> str:
    """Return the value in the unit of the alias's key. A value that is no number stays, for the key's check."""
    unit = ALIAS_UNITS.get(alias, 1)
    return str(int(value) * unit) if unit > 1 and value.strip().isdecimal() else value


def _warnings_about(name: str, value: str, plugin_prefixes: tuple[str, ...]) -> Iterable[str]:
    key = broker_key(name)
    if key is None and name.startswith(plugin_prefixes):
        return
    if key is None:
        suggestion = f"rlmm.config.{name}" if _METADATA_TOPIC.match(name) else nearest(name, BROKER_KEYS)
        meant = f" Did you mean {suggestion}?" if suggestion else ""
        yield f"{name} is not a configuration key and has no effect.{meant}"
    elif key.fixed is not None and key.name == name:
        if value != key.fixed.value:
            yield f"{name} is {value}, but Ottla acts as if it were {key.fixed.value}: {key.fixed.reason}."
    elif not key.honoured or (key.name != name and not is_honoured_per_listener(key.name)):
        yield f"{name} is a key of Apache Kafka that Ottla does not act upon."


def _with_both_ids(static: Mapping[str, str]) -> dict[str, str]:
    """Fill in node.id from its older name broker.id, or the reverse."""
    node_id = static.get("node.id", static.get("broker.id"))
    if node_id is None:
        return dict(static)
    return {"broker.id": node_id, "node.id": node_id, **static}


def _with_replaced_keys(static: Mapping[str, str]) -> Mapping[str, str]:
    """Fill in keys that are not given from the deprecated keys that they replace, as Kafka does."""
    stand_in = {new: static[old] for old, new in REPLACED.items() if old in static and new not in static}
    return {**static, **stand_in} if stand_in else static


def _as_lone_node(static: Mapping[str, str]) -> dict[str, str]:
    """Add the settings that make a node without a place in a cluster a cluster of its own."""
    listeners = static.get("listeners", f"{_CLIENT_LISTENER},{_CONTROLLER_LISTENER}")
    controller = next((entry.strip() for entry in listeners.split(",") if _is_controller_entry(entry)), None)
    if controller is None:
        controller = _FREE_CONTROLLER_LISTENER
        listeners = f"{listeners},{controller}"
    address = controller.partition("://")[2]
    return {
        "process.roles": "broker,controller",
        "node.id": "1",
        "controller.listener.names": "CONTROLLER",
        "controller.quorum.voters": f"1@{address}",
        "log.dir": "./data",
        **static,
        "listeners": listeners,
    }


def _is_controller_entry(entry: str) -> bool:
    return entry.strip().upper().startswith("CONTROLLER://")
