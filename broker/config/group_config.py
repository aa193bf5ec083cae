"""Configs of groups (KIP-848, KIP-932, KIP-1071): validation against the broker's bounds, and effective values."""

from collections.abc import Mapping

from broker.config.broker_config import BrokerConfig
from broker.config.definitions import GROUP_KEYS
from broker.config.errors import ConfigError
from broker.config.values import Value

_BROKER_DEFAULTS: Mapping[str, str] = {
    name: f"group.{name}" for name in GROUP_KEYS if name not in ("share.auto.offset.reset", "share.isolation.level")
}


def validate_group_configs(configs: Mapping[str, str], broker: BrokerConfig) -> dict[str, Value]:
    """Check a group's complete configs and return every group setting. Raise ConfigError (INVALID_CONFIG)."""
    for name in configs:
        if name not in GROUP_KEYS:
            raise ConfigError(name, f"{name} is not a group config; known are {', '.join(sorted(GROUP_KEYS))}.")
    values = group_values(configs, broker)
    for name in configs:
        _check_bounds(name, values[name], broker)
    for group_type in ("consumer", "share", "streams"):
        _check_heartbeat(group_type, values)
    return values


def group_values(configs: Mapping[str, str], broker: BrokerConfig) -> dict[str, Value]:
    """Return every group setting: the group's own value, else the broker's ``group.*`` key, else the default."""
    return {
        name: key.parse(configs[name]) if name in configs else _default(name, broker)
        for name, key in GROUP_KEYS.items()
    }


def _default(name: str, broker: BrokerConfig) -> Value:
    broker_name = _BROKER_DEFAULTS.get(name)
    return GROUP_KEYS[name].default_value() if broker_name is None else broker.value(broker_name)


def _check_bounds(name: str, value: Value, broker: BrokerConfig) -> None:
    group_type, _, setting = name.partition(".")
    setting = setting.removeprefix("num.")
    for word in ("min", "max"):
        bound_name = f"group.{group_type}.{word}.{setting}"
        bound = _bound(bound_name, broker)
        if not isinstance(value, int) or bound is None:
            continue
        if (value < bound) if word == "min" else (value > bound):
            side = "at least" if word == "min" else "at most"
            raise ConfigError(name, f"{name} is {value} but must be {side} {bound_name}, {bound}.")


def _bound(name: str, broker: BrokerConfig) -> int | None:
    try:
        value = broker.value(name)
    except KeyError:
        return None
    assert isinstance(value, int)
    return value


def _check_heartbeat(group_type: str, values: Mapping[str, Value]) -> None:
    name, limit_name = f"{group_type}.heartbeat.interval.ms", f"{group_type}.session.timeout.ms"
    heartbeat_ms, session_ms = values[name], values[limit_name]
    assert isinstance(heartbeat_ms, int)
    assert isinstance(session_ms, int)
    if heartbeat_ms >= session_ms:
        raise ConfigError(name, f"{name} is {heartbeat_ms} but must be below {limit_name}, {session_ms}.")
