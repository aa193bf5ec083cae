"""Topic configs: validation of changes, and the effective configuration of a log.

The rules are those of Kafka's ``LogConfig.validate``. Every ConfigError raised here becomes INVALID_CONFIG.
"""

from collections.abc import Mapping
from typing import cast

from broker.config.broker_config import BrokerConfig
from broker.config.definitions import TOPIC_KEYS, TOPIC_SYNONYMS
from broker.config.errors import ConfigError
from broker.config.values import Value
from storage.config import CleanupPolicy, CompressionType, LogConfig, MessageTimestampType

_MS_PER_MINUTE = 60 * 1000
_MS_PER_HOUR = 60 * _MS_PER_MINUTE
_INHERIT = -2
REMOTE = "remote.storage.enable"


def validate_topic_configs(
    configs: Mapping[str, str], broker: BrokerConfig, *, existing: Mapping[str, str] | None = None
) -> LogConfig:
    """Check a topic's complete overrides and return the effective configuration.

    ``existing`` are the overrides before a change of configs, None for a new topic. Raise ConfigError.
    """
    for name in configs:
        if name not in TOPIC_KEYS:
            raise ConfigError(name, f"{name} is not a topic config.")
    config = log_config(configs, broker)
    _check_compaction_lag(config)
    if config.remote_storage_enable:
        _check_remote_storage(config, broker)
    elif existing is not None and _was_remote(existing, broker):
        _check_disabling(config)
    return config


def log_config(overrides: Mapping[str, str], broker: BrokerConfig) -> LogConfig:
    """Return the LogConfig of a topic: its overrides, else the broker's dynamic and static settings, else defaults.

    Raise ConfigError for an override that does not parse.
    """
    values = topic_values(overrides, broker)

    def whole(name: str) -> int:
        return cast(int, values[name])

    def flag(name: str) -> bool:
        return cast(bool, values[name])

    def listed(name: str) -> tuple[str, ...]:
        return cast(tuple[str, ...], values[name])

    policy = frozenset(CleanupPolicy(policy) for policy in listed("cleanup.policy"))
    may_default_to_remote = CleanupPolicy.COMPACT not in policy or broker.ottla_remote_storage_compacted_enable
    return LogConfig(
        verify_transactions=broker.transaction_partition_verification_enable,
        segment_bytes=_segment_bytes(values),
        segment_ms=whole("segment.ms"),
        segment_jitter_ms=whole("segment.jitter.ms"),
        segment_index_bytes=whole("segment.index.bytes"),
        index_interval_bytes=whole("index.interval.bytes"),
        preallocate=flag("preallocate"),
        flush_messages=whole("flush.messages"),
        flush_ms=whole("flush.ms"),
        cleanup_policy=policy,
        retention_bytes=whole("retention.bytes"),
        retention_ms=whole("retention.ms"),
        local_retention_bytes=whole("local.retention.bytes"),
        local_retention_ms=whole("local.retention.ms"),
        remote_storage_enable=flag(REMOTE) and (REMOTE in overrides or may_default_to_remote),
        remote_copy_lag_ms=whole("remote.copy.lag.ms"),
        remote_copy_lag_bytes=whole("remote.copy.lag.bytes"),
        remote_log_copy_disable=flag("remote.log.copy.disable"),
        remote_log_delete_on_disable=flag("remote.log.delete.on.disable"),
        file_delete_delay_ms=whole("file.delete.delay.ms"),
        delete_retention_ms=whole("delete.retention.ms"),
        min_compaction_lag_ms=whole("min.compaction.lag.ms"),
        max_compaction_lag_ms=whole("max.compaction.lag.ms"),
        min_cleanable_dirty_ratio=cast(float, values["min.cleanable.dirty.ratio"]),
        max_message_bytes=whole("max.message.bytes"),
        compression_type=CompressionType(str(values["compression.type"])),
        compression_gzip_level=whole("compression.gzip.level"),
        compression_lz4_level=whole("compression.lz4.level"),
        compression_zstd_level=whole("compression.zstd.level"),
        message_timestamp_type=MessageTimestampType(str(values["message.timestamp.type"])),
        message_timestamp_before_max_ms=whole("message.timestamp.before.max.ms"),
        message_timestamp_after_max_ms=whole("message.timestamp.after.max.ms"),
        min_insync_replicas=whole("min.insync.replicas"),
        unclean_leader_election_enable=flag("unclean.leader.election.enable"),
        follower_replication_throttled_replicas=listed("follower.replication.throttled.replicas"),
        leader_replication_throttled_replicas=listed("leader.replication.throttled.replicas"),
    )


def topic_values(overrides: Mapping[str, str], broker: BrokerConfig) -> dict[str, Value]:
    """Return the value of every topic key. Overrides with unknown names are skipped."""
    return {
        name: key.parse(overrides[name]) if name in overrides else _broker_default(name, broker)
        for name, key in TOPIC_KEYS.items()
    }


def _broker_default(name: str, broker: BrokerConfig) -> Value:
    """Return the topic key's default from the broker's keys: the first synonym with a value."""
    for synonym in TOPIC_SYNONYMS.get(name, ()):
        value = broker.value(synonym)
        if value is not None:
            return _unlimited_is_minus_one(name, _in_milliseconds(synonym, value))
    return TOPIC_KEYS[name].default_value()


def _in_milliseconds(synonym: str, value: Value) -> Value:
    if synonym.endswith(".hours"):
        return cast(int, value) * _MS_PER_HOUR
    if synonym.endswith(".minutes"):
        return cast(int, value) * _MS_PER_MINUTE
    return value


def _unlimited_is_minus_one(name: str, value: Value) -> Value:
    """Return -1 for any negative retention time: brokers accept all of them for "unlimited", topics only -1."""
    return max(-1, cast(int, value)) if name == "retention.ms" else value


def _segment_bytes(values: Mapping[str, Value]) -> int:
    for_tests = values["internal.segment.bytes"]
    return cast(int, values["segment.bytes"] if for_tests is None else for_tests)


def _check_compaction_lag(config: LogConfig) -> None:
    low, high = config.min_compaction_lag_ms, config.max_compaction_lag_ms
    if low > high:
        raise ConfigError(
            "min.compaction.lag.ms",
            f"min.compaction.lag.ms is {low} but must be at most max.compaction.lag.ms, {high}.",
        )


def _check_remote_storage(config: LogConfig, broker: BrokerConfig) -> None:
    name = REMOTE
    if not broker.remote_log_storage_system_enable:
        raise ConfigError(
            name, f"{name} needs remote.log.storage.system.enable=true on brokers and controllers; it is false here."
        )
    if config.is_compacted and not broker.ottla_remote_storage_compacted_enable:
        raise ConfigError(
            name,
            f"{name} cannot be combined with a cleanup.policy that compacts, "
            "unless ottla.remote.storage.compacted.enable is true.",
        )
    times = (config.local_retention_ms, config.total_retention_ms)
    sizes = (config.local_retention_bytes, config.total_retention_bytes)
    for unit, (local, total) in (("ms", times), ("bytes", sizes)):
        _check_local_retention(unit, local, total)
        lag = config.remote_copy_lag_ms if unit == "ms" else config.remote_copy_lag_bytes
        _check_copy_lag(unit, lag, total if local == _INHERIT else local)
        if config.remote_log_copy_disable:
            _check_read_only(unit, local, total)


def _check_local_retention(unit: str, local: int, total: int) -> None:
    """Check that the local log is not retained longer than the whole log."""
    if local == _INHERIT or total < 0:
        return
    if local < 0 or local > total:
        name = f"local.retention.{unit}"
        raise ConfigError(name, f"{name} is {local} but must be at most retention.{unit}, {total}.")


def _check_copy_lag(unit: str, lag: int, local: int) -> None:
    """Check that segments are copied before they leave the local disk (KIP-1241)."""
    if lag > local >= 0:
        name = f"remote.copy.lag.{unit}"
        raise ConfigError(name, f"{name} is {lag} but must be at most the local retention, {local}.")


def _check_read_only(unit: str, local: int, total: int) -> None:
    if local not in (_INHERIT, total):
        name = f"local.retention.{unit}"
        raise ConfigError(
            name,
            f"{name} is {local} but must equal retention.{unit}, {total}, while remote.log.copy.disable is true: "
            "segments that leave the local disk would not be copied.",
        )


def _was_remote(existing: Mapping[str, str], broker: BrokerConfig) -> bool:
    """Whether the topic was tiered. Only the two keys that decide are parsed: other overrides may no longer parse."""
    of_interest = {name: value for name, value in existing.items() if name in (REMOTE, "cleanup.policy")}
    return log_config(of_interest, broker).remote_storage_enable


def _check_disabling(config: LogConfig) -> None:
    if not config.remote_log_delete_on_disable:
        raise ConfigError(
            REMOTE,
            "remote.storage.enable can be turned off only with remote.log.delete.on.disable=true, which deletes the "
            "remote segments; remote.log.copy.disable=true keeps them and copies no more.",
        )
