"""Brings the static configuration together: overrides over environment over file over default.

Owns where settings come from and what is said about those that will not do what their author hopes. It reads one
file; everything else is handed in.
"""

import re
from collections.abc import Iterable, Mapping
from pathlib import Path

from broker.config.broker_config import BrokerConfig
from broker.config.cross_checks import check_together
from broker.config.definitions import (
    ALIAS_UNITS,
    ALIASES,
    BROKER_KEYS,
    DYNAMIC_ONLY,
    REPLACED,
    broker_key,
    is_plugin_setting,
    nearest,
)
from broker.config.environment import CLUSTER_ID, settings_from_environment
from broker.config.errors import ConfigError
from broker.config.honoured import AS_IF, HONOURED

_CLIENT_LISTENER = "PLAINTEXT://127.0.0.1:9092"
_CONTROLLER_LISTENER = "CONTROLLER://127.0.0.1:9093"
_FREE_CONTROLLER_LISTENER = "CONTROLLER://127.0.0.1:0"
_METADATA_TOPIC = re.compile(r"remote\.log\.metadata\.(topic|common|producer|consumer|admin|consume|initialization)\.")
"""Settings that KIP-405 lists without the prefix that they need."""
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
    """Loads a node's configuration; also returns warnings, a sentence each.

    ``path`` is a Java properties file or None; ``overrides`` are ``KEY=VALUE`` texts, the last of a key wins.
    Raises ConfigError.
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
        raise _as_spelled(error, given) from error


def _as_spelled(error: ConfigError, given: Mapping[str, str]) -> ConfigError:
    """The same about the alias under which the key was given, if it was."""
    alias = next((name for name in given if ALIASES.get(name) == error.key and error.key not in given), None)
    return error if alias is None else ConfigError(alias, error.sentence.replace(error.key, alias))


def parse_config(static: Mapping[str, str], *, cluster_id: str | None = None, lone: bool = False) -> BrokerConfig:
    """A checked configuration from settings by key. Raises ConfigError."""
    config = BrokerConfig(_with_older_spellings(_with_both_ids(static)), cluster_id=cluster_id, lone=lone)
    check_together(config)
    return config


def read_properties(path: str) -> dict[str, str]:
    """Raises ConfigError when the file cannot be read or is no Java properties file."""
    import javaproperties  # Here, because it costs a start without a file 28 ms of the time to the first answer.

    try:
        with Path(path).open("rb") as file:
            return dict(javaproperties.load(file))
    except OSError as error:
        raise ConfigError(path, f"The configuration file {path} cannot be read: {error.strerror}.") from error
    except ValueError as error:
        raise ConfigError(path, f"The configuration file {path} is not a properties file: {error}.") from error


def parse_override(override: str) -> tuple[str, str]:
    """``KEY=VALUE``; the value may hold further equal signs. Raises ConfigError."""
    name, equals, value = override.partition("=")
    if not equals or not name.strip():
        raise ConfigError(override, f"The override {override!r} is not of the form KEY=VALUE.")
    return name.strip(), value.strip()


def _known_names(given: Mapping[str, str], warnings: list[str]) -> dict[str, str]:
    """The settings under the names the tables know, with a warning for each that will have no effect."""
    known: dict[str, str] = {}
    for name, value in given.items():
        if name in ALIASES:
            known.setdefault(ALIASES[name], _in_units(name, value))
        elif name in DYNAMIC_ONLY:
            warnings.append(f"{name} has no effect here: it can only be set dynamically, with AlterConfigs.")
        else:
            known[name] = value
            warnings.extend(_doubts(name, value))
    return known


def _in_units(alias: str, value: str) -> str:
    """In those of the key that the alias stands for; what is no number is for its check to refuse."""
    unit = ALIAS_UNITS.get(alias, 1)
    return str(int(value) * unit) if unit > 1 and value.strip().isdecimal() else value


def _doubts(name: str, value: str) -> Iterable[str]:
    if is_plugin_setting(name):
        return
    key = broker_key(name)
    if key is None:
        suggestion = f"rlmm.config.{name}" if _METADATA_TOPIC.match(name) else nearest(name, BROKER_KEYS)
        meant = f" Did you mean {suggestion}?" if suggestion else ""
        yield f"{name} is not a configuration key and has no effect.{meant}"
    elif name in AS_IF:
        only, reason = AS_IF[name]
        if value != only:
            yield f"{name} is {value}, but Ottla acts as if it were {only}: {reason}."
    elif name not in HONOURED:
        yield f"{name} is a key of Apache Kafka that Ottla does not act upon."


def _with_both_ids(static: Mapping[str, str]) -> dict[str, str]:
    """node.id and its older spelling broker.id each stand in for the other."""
    node_id = static.get("node.id", static.get("broker.id"))
    if node_id is None:
        return dict(static)
    return {"broker.id": node_id, "node.id": node_id, **static}


def _with_older_spellings(static: Mapping[str, str]) -> Mapping[str, str]:
    """Keys that Kafka replaced by others and still reads where these are not given."""
    stand_in = {new: static[old] for old, new in REPLACED.items() if old in static and new not in static}
    return {**static, **stand_in} if stand_in else static


def _as_lone_node(static: Mapping[str, str]) -> dict[str, str]:
    """Makes a node that nobody gave a place in a cluster a cluster of its own."""
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
