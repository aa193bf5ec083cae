"""Configs of client metrics subscriptions (KIP-714)."""

import re
from collections.abc import Mapping

from broker.config.definitions import CLIENT_METRICS_KEYS
from broker.config.errors import ConfigError
from broker.config.values import Value

_ATTRIBUTES = frozenset(
    {
        "client_instance_id",
        "client_id",
        "client_software_name",
        "client_software_version",
        "client_source_address",
        "client_source_port",
    }
)


class UnknownSubscriptionSetting(ConfigError):
    """A name or interval that Kafka answers with INVALID_REQUEST; other errors are INVALID_CONFIG."""


def validate_client_metrics_configs(configs: Mapping[str, str]) -> dict[str, Value]:
    """Check a subscription and return every setting.

    Raise UnknownSubscriptionSetting (INVALID_REQUEST) or ConfigError (INVALID_CONFIG).
    """
    for name in configs:
        if name not in CLIENT_METRICS_KEYS:
            raise UnknownSubscriptionSetting(name, f"{name} is not a client metrics config.")
    values = {
        name: key.parse(configs[name]) if name in configs else key.default_value()
        for name, key in CLIENT_METRICS_KEYS.items()
    }
    matching_patterns(values["match"])
    return values


def matching_patterns(match: Value) -> dict[str, re.Pattern[str]]:
    """Return patterns by client attribute. Raise ConfigError for an entry that is not ``attribute=pattern``."""
    assert isinstance(match, tuple)
    return dict(_pattern(entry) for entry in match)


def _pattern(entry: str) -> tuple[str, re.Pattern[str]]:
    attribute, equals, pattern = (part.strip() for part in entry.partition("="))
    try:
        if equals and attribute in _ATTRIBUTES:
            return attribute, re.compile(pattern)
    except re.error:
        pass  # The message below covers an invalid pattern as well.
    known = ", ".join(sorted(_ATTRIBUTES))
    raise ConfigError(
        "match", f"match has {entry!r} but every entry must be attribute=pattern, attribute one of {known}."
    )
