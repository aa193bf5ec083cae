"""DescribeConfigs entries: value, source, synonyms, type and documentation.

Follows Kafka's ``ConfigHelper`` in detail (listed synonyms, sensitive keys), because tools compare brokers by this
response. Returns plain data; the API handler builds the message and omits fields that were not requested.
"""

from collections.abc import Iterable, Mapping
from enum import IntEnum
from itertools import dropwhile

from broker.config.broker_config import BrokerConfig
from broker.config.definitions import (
    BROKER_KEYS,
    CLIENT_METRICS_KEYS,
    DYNAMIC_ONLY,
    GROUP_KEYS,
    OWN_PREFIX,
    TOPIC_KEYS,
    TOPIC_SYNONYMS,
    broker_key,
    broker_synonyms,
)
from broker.config.group_config import group_values
from broker.config.key import ConfigKey, Scope
from broker.config.tables.topic import LATER_THAN_4_2
from broker.config.topic_config import topic_values
from broker.config.values import ConfigType, render_value
from protocol.lazy_dataclass import lazy_dataclass


class ConfigSource(IntEnum):
    """Sources of values, as DescribeConfigs numbers them (version 1 and later)."""

    TOPIC = 1
    DYNAMIC_BROKER = 2
    DYNAMIC_DEFAULT_BROKER = 3
    STATIC_BROKER = 4
    DEFAULT = 5
    DYNAMIC_BROKER_LOGGER = 6
    CLIENT_METRICS = 7
    GROUP = 8


@lazy_dataclass(frozen=True, slots=True)
class Synonym:
    name: str
    value: str | None
    source: ConfigSource


@lazy_dataclass(frozen=True, slots=True)
class ConfigEntry:
    """A described setting; ``value`` is None when it is unset or sensitive."""

    name: str
    value: str | None
    source: ConfigSource
    synonyms: tuple[Synonym, ...]
    kind: ConfigType
    read_only: bool
    sensitive: bool
    documentation: str | None


def describe_topic(overrides: Mapping[str, str], broker: BrokerConfig) -> list[ConfigEntry]:
    """Describe every topic config. Keys that Kafka 4.2 does not know appear only when the topic overrides them."""
    values = topic_values(overrides, broker)
    return [
        _entry(key, render_value(values[name]), _topic_synonyms(name, overrides, broker))
        for name, key in TOPIC_KEYS.items()
        if not key.internal and (name not in LATER_THAN_4_2 or name in overrides)
    ]


def describe_metadata_topic() -> list[ConfigEntry]:
    """Describe `__cluster_metadata` (KIP-630): snapshots clean it up, and this cannot be changed."""
    documentation = "Records below a snapshot are deleted once the snapshot contains their state."
    return [
        ConfigEntry("cleanup.policy", "snapshot", ConfigSource.DEFAULT, (), ConfigType.LIST, True, False, documentation)
    ]


def _topic_synonyms(name: str, overrides: Mapping[str, str], broker: BrokerConfig) -> tuple[Synonym, ...]:
    own = (Synonym(name, overrides[name], ConfigSource.TOPIC),) if name in overrides else ()
    broker_names = TOPIC_SYNONYMS.get(name)
    if broker_names is None:
        return own
    found = _broker_value_synonyms(broker_names[0], broker, sensitive=False)
    return own + tuple(each for each in found if not _is_our_default(each))


def describe_broker(broker: BrokerConfig) -> list[ConfigEntry]:
    """Describe every config of this broker: all known keys, and every other key that is set."""
    layers = broker.layers
    described = [name for name, key in BROKER_KEYS.items() if not key.internal and name not in DYNAMIC_ONLY]
    extra = {**layers.static, **layers.cluster, **layers.broker}.keys() - set(described)
    return [_broker_entry(name, broker.raw(name), broker) for name in [*described, *sorted(extra)]]


def _broker_entry(name: str, value: str | None, broker: BrokerConfig) -> ConfigEntry:
    key = broker_key(name)
    sensitive = _is_sensitive(key)
    synonyms = _broker_value_synonyms(name, broker, sensitive=sensitive)
    return ConfigEntry(
        name=name,
        value=None if sensitive else value,
        source=_first_source(synonyms),
        synonyms=synonyms,
        kind=ConfigType.UNKNOWN if key is None else key.kind,
        read_only=not _is_dynamic(name),
        sensitive=sensitive,
        documentation=None if key is None else key.documentation,
    )


def describe_cluster_default(broker: BrokerConfig) -> list[ConfigEntry]:
    """Describe the cluster's dynamic defaults: the broker resource without a name."""
    entries = []
    for name, text in sorted(broker.layers.cluster.items()):
        sensitive = _is_sensitive(broker_key(name))
        shown = None if sensitive else text
        synonym = Synonym(name, shown, ConfigSource.DYNAMIC_DEFAULT_BROKER)
        entry = _broker_entry(name, text, broker)
        entries.append(
            ConfigEntry(
                name, shown, synonym.source, (synonym,), entry.kind, entry.read_only, sensitive, entry.documentation
            )
        )
    return entries


def describe_group(overrides: Mapping[str, str], broker: BrokerConfig) -> list[ConfigEntry]:
    values = group_values(overrides, broker)
    return [
        _entry(
            key, render_value(values[name]), _own_or_default(key, overrides, ConfigSource.GROUP, values[name] is None)
        )
        for name, key in GROUP_KEYS.items()
    ]


def describe_client_metrics(overrides: Mapping[str, str]) -> list[ConfigEntry]:
    entries = []
    for name, key in CLIENT_METRICS_KEYS.items():
        value = key.default_value() if name not in overrides else key.parse(overrides[name])
        synonyms = _own_or_default(key, overrides, ConfigSource.CLIENT_METRICS, not value)
        entries.append(_entry(key, render_value(value), synonyms))
    return entries


def _own_or_default(
    key: ConfigKey, overrides: Mapping[str, str], source: ConfigSource, nothing_by_default: bool
) -> tuple[Synonym, ...]:
    if key.name in overrides:
        return (Synonym(key.name, overrides[key.name], source),)
    return () if nothing_by_default else (Synonym(key.name, key.default, ConfigSource.DEFAULT),)


def describe_loggers(levels: Mapping[str, str]) -> list[ConfigEntry]:
    """Describe logger levels by logger name."""
    source = ConfigSource.DYNAMIC_BROKER_LOGGER
    return [
        ConfigEntry(name, level, source, (Synonym(name, level, source),), ConfigType.STRING, False, False, None)
        for name, level in sorted(levels.items())
    ]


def _entry(key: ConfigKey, value: str | None, synonyms: tuple[Synonym, ...]) -> ConfigEntry:
    return ConfigEntry(
        name=key.name,
        value=value,
        source=_first_source(synonyms),
        synonyms=synonyms,
        kind=key.kind,
        read_only=False,
        sensitive=False,
        documentation=key.documentation,
    )


def _is_our_default(synonym: Synonym) -> bool:
    """Whether the synonym is the default of a key that only Ottla has; DescribeConfigs omits it."""
    return synonym.name.startswith(OWN_PREFIX) and synonym.source is ConfigSource.DEFAULT


def _first_source(synonyms: tuple[Synonym, ...]) -> ConfigSource:
    return synonyms[0].source if synonyms else ConfigSource.DEFAULT


def is_sensitive_name(name: str) -> bool:
    """Whether the value of a broker config is hidden."""
    return _is_sensitive(broker_key(name))


def _is_sensitive(key: ConfigKey | None) -> bool:
    """Whether the value is hidden. An unknown key could hold a secret."""
    return key is None or key.sensitive


def _is_dynamic(name: str) -> bool:
    """Whether the key is shown as dynamic. Like Kafka, show keys behind a listener prefix as read-only, though they can
    be altered.
    """
    key = BROKER_KEYS.get(name)
    return key is not None and key.scope is not Scope.RESTART


def _broker_value_synonyms(name: str, broker: BrokerConfig, *, sensitive: bool) -> tuple[Synonym, ...]:
    """Return every source with a value for ``name`` or a synonym of it, in order of precedence.

    Entries before the first one named ``name`` are dropped: they decided another key.
    """
    found = list(_synonyms_by_source(broker_synonyms(name), broker, sensitive=sensitive))
    return tuple(dropwhile(lambda synonym: synonym.name != name, found))


def _synonyms_by_source(names: Iterable[str], broker: BrokerConfig, *, sensitive: bool) -> Iterable[Synonym]:
    layers = broker.layers
    defaults = {key.name: key.default for key in map(BROKER_KEYS.get, names) if key and key.default is not None}
    sources: tuple[tuple[ConfigSource, Mapping[str, str]], ...] = (
        (ConfigSource.DYNAMIC_BROKER, layers.broker),
        (ConfigSource.DYNAMIC_DEFAULT_BROKER, layers.cluster),
        (ConfigSource.STATIC_BROKER, layers.static),
        (ConfigSource.DEFAULT, defaults),
    )
    for source, settings in sources:
        for name in names:
            if name in settings:
                yield Synonym(name, None if sensitive else settings[name], source)
