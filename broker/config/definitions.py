"""The tables of configuration keys, joined by kind of resource.

Maps names to keys (a listener's own spelling, an alias, a plug-in's prefix) and topic keys to their broker keys. Holds
no values.
"""

import re
from collections.abc import Iterable, Mapping

from broker.config.key import ConfigKey, Scope, by_name
from broker.config.tables.client_metrics import CLIENT_METRICS_CONFIG_KEYS
from broker.config.tables.coordinators import COORDINATORS_KEYS
from broker.config.tables.group import GROUP_CONFIG_KEYS
from broker.config.tables.log import LOG_KEYS
from broker.config.tables.node import NODE_KEYS
from broker.config.tables.ottla import OTTLA_KEYS
from broker.config.tables.quorum import QUORUM_KEYS
from broker.config.tables.remote_storage import REMOTE_STORAGE_KEYS
from broker.config.tables.replication import REPLICATION_KEYS
from broker.config.tables.security import SECURITY_KEYS
from broker.config.tables.topic import TOPIC_CONFIG_KEYS

BROKER_KEYS: Mapping[str, ConfigKey] = by_name(
    NODE_KEYS,
    QUORUM_KEYS,
    LOG_KEYS,
    REPLICATION_KEYS,
    COORDINATORS_KEYS,
    REMOTE_STORAGE_KEYS,
    SECURITY_KEYS,
    OTTLA_KEYS,
)
TOPIC_KEYS: Mapping[str, ConfigKey] = by_name(TOPIC_CONFIG_KEYS)
GROUP_KEYS: Mapping[str, ConfigKey] = by_name(GROUP_CONFIG_KEYS)
CLIENT_METRICS_KEYS: Mapping[str, ConfigKey] = by_name(CLIENT_METRICS_CONFIG_KEYS)

DYNAMIC_ONLY: frozenset[str] = frozenset(
    {
        "leader.replication.throttled.rate",
        "follower.replication.throttled.rate",
        "replica.alter.log.dirs.io.max.bytes.per.second",
    }
)
"""Broker keys that only AlterConfigs can set: a properties file does not affect them, and they are not described."""

ALIASES: Mapping[str, str] = {
    # KIP-630's name; Kafka shipped the setting under another.
    "metadata.snapshot.min.new_records.size": "metadata.log.max.record.bytes.between.snapshots",
    # KIP-405's names: Kafka renamed the first and omitted the second.
    "remote.log.manager.task.retry.interval.ms": "remote.log.manager.task.retry.backoff.ms",
    "remote.partition.remover.task.interval.ms": "ottla.remote.partition.remover.task.interval.ms",
    "remote.log.index.file.cache.total.size.mb": "remote.log.index.file.cache.total.size.bytes",
}

ALIAS_UNITS: Mapping[str, int] = {"remote.log.index.file.cache.total.size.mb": 1024 * 1024}
"""Units of aliases that differ from the unit of their key, in the key's unit."""

REPLACED: Mapping[str, str] = {
    "remote.log.manager.thread.pool.size": "remote.log.manager.follower.thread.pool.size",
}
"""Deprecated keys, with the keys that take precedence over them."""

AUTHORIZER_SETTINGS: frozenset[str] = frozenset({"super.users", "allow.everyone.if.no.acl.found"})
"""Settings of Kafka's standard authorizer, which reads and checks them itself. As in Kafka they are not described."""

OWN_PREFIX = "ottla."

PREFIX_KEYS: tuple[str, ...] = ("remote.log.storage.manager.impl.prefix", "remote.log.metadata.manager.impl.prefix")
"""Keys whose value is the prefix of a plug-in's settings."""
"""Prefixes of settings that belong to a plug-in, which validates them itself."""

TOPIC_SYNONYMS: Mapping[str, tuple[str, ...]] = {
    "cleanup.policy": ("log.cleanup.policy",),
    "compression.gzip.level": ("compression.gzip.level",),
    "compression.lz4.level": ("compression.lz4.level",),
    "compression.type": ("compression.type",),
    "compression.zstd.level": ("compression.zstd.level",),
    "delete.retention.ms": ("log.cleaner.delete.retention.ms",),
    "file.delete.delay.ms": ("log.segment.delete.delay.ms",),
    "flush.messages": ("log.flush.interval.messages",),
    "flush.ms": ("log.flush.interval.ms", "log.flush.scheduler.interval.ms"),
    "index.interval.bytes": ("log.index.interval.bytes",),
    "local.retention.bytes": ("log.local.retention.bytes",),
    "local.retention.ms": ("log.local.retention.ms",),
    "max.compaction.lag.ms": ("log.cleaner.max.compaction.lag.ms",),
    "max.message.bytes": ("message.max.bytes",),
    "message.timestamp.after.max.ms": ("log.message.timestamp.after.max.ms",),
    "message.timestamp.before.max.ms": ("log.message.timestamp.before.max.ms",),
    "message.timestamp.type": ("log.message.timestamp.type",),
    "min.cleanable.dirty.ratio": ("log.cleaner.min.cleanable.ratio",),
    "min.compaction.lag.ms": ("log.cleaner.min.compaction.lag.ms",),
    "min.insync.replicas": ("min.insync.replicas",),
    "preallocate": ("log.preallocate",),
    "remote.copy.lag.bytes": ("log.remote.copy.lag.bytes",),
    "remote.copy.lag.ms": ("log.remote.copy.lag.ms",),
    "remote.storage.enable": ("ottla.log.remote.storage.enable",),
    "retention.bytes": ("log.retention.bytes",),
    "retention.ms": ("log.retention.ms", "log.retention.minutes", "log.retention.hours"),
    "segment.bytes": ("log.segment.bytes",),
    "segment.index.bytes": ("log.index.size.max.bytes",),
    "segment.jitter.ms": ("log.roll.jitter.ms", "log.roll.jitter.hours"),
    "segment.ms": ("log.roll.ms", "log.roll.hours"),
    "unclean.leader.election.enable": ("unclean.leader.election.enable",),
}
"""Broker keys that supply a topic key's default, in order of precedence. A topic key without an entry has none."""

LISTENER_PREFIX = "listener.name."
_LISTENER_KEY = re.compile(r"listener\.name\.[^.]*\.(.+)")
_MECHANISM_KEYS = (
    "sasl.jaas.config",
    "sasl.login.callback.handler.class",
    "sasl.login.class",
    "sasl.server.callback.handler.class",
    "connections.max.reauth.ms",
)
_SASL_LISTENER_KEYS = frozenset(
    {
        "sasl.enabled.mechanisms",
        "sasl.jaas.config",
        "sasl.server.callback.handler.class",
        "connections.max.reauth.ms",
    }
)
_CLUSTER_LISTENER_KEYS = frozenset({"max.connections", "max.connection.creation.rate", "num.network.threads"})


def is_honoured_per_listener(name: str) -> bool:
    """Whether a listener may have a value of its own for an honoured broker key."""
    is_of_a_family = name.startswith(("ssl.", "sasl.oauthbearer.", "sasl.login."))
    return is_of_a_family or name in _CLUSTER_LISTENER_KEYS | _SASL_LISTENER_KEYS


def broker_key(name: str) -> ConfigKey | None:
    """Return the broker key behind ``name``, without its ``listener.name.X.`` (and ``X.mechanism.``) prefix."""
    key = BROKER_KEYS.get(name)
    if key is not None:
        return key
    match = _LISTENER_KEY.fullmatch(name)
    return None if match is None else _key_behind_prefix(match.group(1))


def _key_behind_prefix(rest: str) -> ConfigKey | None:
    for mechanism_key in _MECHANISM_KEYS:
        if rest.endswith(mechanism_key):
            return BROKER_KEYS[mechanism_key]
    return BROKER_KEYS.get(rest.removeprefix("oauthbearer."))


def plugin_prefixes(settings: Mapping[str, str]) -> tuple[str, ...]:
    """Return the prefixes below which plug-ins find their settings."""
    defaults = {key: BROKER_KEYS[key].default or "" for key in PREFIX_KEYS}
    return ("config.providers.", *((settings.get(key) or default) for key, default in defaults.items()))


def broker_synonyms(name: str) -> tuple[str, ...]:
    """Return the broker keys that can supply ``name``, itself included, in order of precedence."""
    for family in _SYNONYM_FAMILIES:
        if name in family:
            return family
    if name == "log.flush.interval.ms":
        return ("log.flush.interval.ms", "log.flush.scheduler.interval.ms")
    match = _LISTENER_KEY.fullmatch(name)
    if match is None:
        return (name,)
    key = _key_behind_prefix(match.group(1))
    return (name, key.name if key is not None else match.group(1))


_SYNONYM_FAMILIES: tuple[tuple[str, ...], ...] = tuple(
    TOPIC_SYNONYMS[topic_key] for topic_key in ("segment.ms", "segment.jitter.ms", "retention.ms")
)


def scope_of(name: str) -> Scope | None:
    """Return when the broker key ``name`` may change; None for an unknown name.

    A key behind a listener prefix is per broker, except for a few connection limits.
    """
    if name.startswith(LISTENER_PREFIX):
        match = _LISTENER_KEY.fullmatch(name)
        cluster_wide = match is not None and match.group(1) in _CLUSTER_LISTENER_KEYS
        return Scope.CLUSTER if cluster_wide else Scope.BROKER
    key = BROKER_KEYS.get(name)
    return None if key is None else key.scope


def nearest(name: str, candidates: Iterable[str]) -> str | None:
    """Return the candidate most similar to ``name``, for "Did you mean"; None when none is similar."""
    import difflib  # local import: only a misspelled key needs it

    matches = difflib.get_close_matches(name, candidates, n=1, cutoff=0.7)
    return matches[0] if matches else None
