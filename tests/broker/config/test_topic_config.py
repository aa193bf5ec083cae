"""Topic configs, with the decisions of Apache Kafka 4.2."""

from collections.abc import Mapping

import pytest

from broker.config.broker_config import BrokerConfig
from broker.config.errors import ConfigError
from broker.config.load import parse_config
from broker.config.topic_config import log_config, validate_topic_configs
from storage.config import CleanupPolicy, CompressionType, LogConfig
from tests.broker.config.refusals import refused_key
from tests.broker.config.test_listeners import COMBINED

REMOTE = {"remote.storage.enable": "true"}
SYSTEM_ON = {"remote_log_storage_system_enable": "true", "remote_log_storage_manager_class_name": "local"}


def broker(**changes: str) -> BrokerConfig:
    return parse_config(COMBINED | {name.replace("_", "."): value for name, value in changes.items()})


def test_broker_defaults_equal_log_defaults() -> None:
    assert log_config({}, broker()) == LogConfig(verify_transactions=True)


def test_verification_of_transactions_is_a_setting_of_the_broker() -> None:
    assert not log_config({}, broker(transaction_partition_verification_enable="false")).verify_transactions


def test_topic_overrides_take_precedence_over_broker_settings() -> None:
    config = log_config(
        {"cleanup.policy": "compact,delete", "retention.ms": "5", "compression.type": "zstd"},
        broker(log_cleanup_policy="delete", log_retention_ms="9", log_segment_bytes="2000000"),
    )
    assert config.cleanup_policy == {CleanupPolicy.COMPACT, CleanupPolicy.DELETE}
    assert config.retention_ms == 5
    assert config.compression_type is CompressionType.ZSTD
    assert config.segment_bytes == 2_000_000


@pytest.mark.parametrize(
    ("settings", "retention_ms"),
    [
        ({"log.retention.hours": "2"}, 7_200_000),
        ({"log.retention.hours": "2", "log.retention.minutes": "3"}, 180_000),
        ({"log.retention.minutes": "3", "log.retention.ms": "4"}, 4),
        ({"log.retention.hours": "-1"}, -1),
        ({"log.retention.ms": "-7"}, -1),
    ],
)
def test_first_synonym_takes_precedence(settings: dict[str, str], retention_ms: int) -> None:
    assert log_config({}, parse_config(COMBINED | settings)).retention_ms == retention_ms


def test_dynamic_settings_of_the_broker_reach_its_logs() -> None:
    changed, _ = broker().with_dynamic(cluster={"log.flush.interval.ms": "10"}, broker={"log.roll.ms": "20"})
    config = log_config({}, changed)
    assert (config.flush_ms, config.segment_ms) == (10, 20)


def test_internal_segment_bytes_has_no_lower_bound() -> None:
    assert log_config({"internal.segment.bytes": "100"}, broker()).segment_bytes == 100


@pytest.mark.parametrize(
    "configs",
    [
        {"retention.bytes": "-5"},
        {"cleanup.policy": ""},
        {"compression.gzip.level": "-1"},
        {"leader.replication.throttled.replicas": "*"},
        {"leader.replication.throttled.replicas": "0:1,1:2"},
        {"leader.replication.throttled.replicas": ""},
        {"flush.ms": " 10 "},
        {"local.retention.ms": "5", "retention.ms": "1"},
    ],
)
def test_valid_topic_configs_are_accepted(configs: dict[str, str]) -> None:
    assert refused_key(lambda: validate_topic_configs(configs, broker())) is None


@pytest.mark.parametrize(
    "configs",
    [
        {"foo": "1"},
        {"min.compaction.lag.ms": "10", "max.compaction.lag.ms": "5"},
        {"retention.ms": "-2"},
        {"cleanup.policy": "delete,foo"},
        {"cleanup.policy": "snapshot"},  # only for the metadata log (KIP-630)
        {"cleanup.policy": "compact,,delete"},
        {"remote.storage.enable": "true"},
        {"leader.replication.throttled.replicas": "x"},
        {"leader.replication.throttled.replicas": "none"},
        {"segment.bytes": "100"},
        {"segment.bytes": "99999999999"},
        {"compression.type": "none"},
        {"message.timestamp.type": "createtime"},
        {"max.message.bytes": "-1"},
        {"preallocate": "1"},
        {"min.cleanable.dirty.ratio": "1.5"},
        {"min.insync.replicas": "0"},
    ],
)
def test_invalid_topic_configs_are_refused(configs: dict[str, str]) -> None:
    with pytest.raises(ConfigError) as caught:
        validate_topic_configs(configs, broker())
    assert caught.value.key in configs


@pytest.mark.parametrize(
    ("configs", "existing"),
    [
        (REMOTE, {}),
        (REMOTE | {"cleanup.policy": ""}, {}),
        (REMOTE | {"retention.ms": "9", "local.retention.ms": "9", "remote.log.copy.disable": "true"}, {}),
        ({"remote.log.copy.disable": "true"}, {}),
        (REMOTE | {"local.retention.ms": "9", "remote.copy.lag.ms": "9"}, {}),
        (REMOTE | {"local.retention.bytes": "9", "remote.copy.lag.bytes": "-1"}, {}),
        ({"remote.storage.enable": "false", "remote.log.delete.on.disable": "true"}, REMOTE),
    ],
)
def test_valid_remote_storage_configs_are_accepted(configs: Mapping[str, str], existing: Mapping[str, str]) -> None:
    assert refused_key(lambda: validate_topic_configs(configs, broker(**SYSTEM_ON), existing=existing)) is None


@pytest.mark.parametrize(
    ("configs", "existing"),
    [
        (REMOTE | {"cleanup.policy": "compact"}, {}),
        (REMOTE | {"local.retention.ms": "-1", "retention.ms": "1000"}, {}),
        (REMOTE | {"local.retention.ms": "1001", "retention.ms": "1000"}, {}),
        (REMOTE | {"local.retention.bytes": "1001", "retention.bytes": "1000"}, {}),
        (REMOTE | {"local.retention.ms": "5", "retention.ms": "1000", "remote.log.copy.disable": "true"}, {}),
        (REMOTE | {"local.retention.bytes": "5", "retention.bytes": "9", "remote.log.copy.disable": "true"}, {}),
        (REMOTE | {"local.retention.ms": "9", "remote.copy.lag.ms": "10"}, {}),
        (REMOTE | {"retention.bytes": "9", "remote.copy.lag.bytes": "10"}, {}),
        ({"remote.storage.enable": "false"}, REMOTE),
        ({}, REMOTE),
    ],
)
def test_invalid_remote_storage_configs_are_refused(configs: Mapping[str, str], existing: Mapping[str, str]) -> None:
    with pytest.raises(ConfigError):
        validate_topic_configs(configs, broker(**SYSTEM_ON), existing=existing)


def test_compacted_topics_may_have_remote_storage_where_it_is_allowed() -> None:
    on = broker(**SYSTEM_ON, ottla_remote_storage_compacted_enable="true", ottla_log_remote_storage_enable="true")
    for policy in ("compact", "compact,delete"):
        assert validate_topic_configs({"cleanup.policy": policy}, on).remote_storage_enable
        assert validate_topic_configs(REMOTE | {"cleanup.policy": policy}, on).remote_storage_enable
    local = {"local.retention.ms": "5000", "retention.ms": "1000"}
    assert validate_topic_configs({"cleanup.policy": "compact"} | local, on).effective_local_retention_ms == 5000
    assert validate_topic_configs({"cleanup.policy": "compact"}, on).effective_local_retention_ms == -1
    with pytest.raises(ConfigError):
        validate_topic_configs({"cleanup.policy": "compact,delete"} | local, on)


def test_remote_storage_default_applies_to_topics_without_override() -> None:
    on = broker(**SYSTEM_ON, ottla_log_remote_storage_enable="true")
    assert validate_topic_configs({}, on).remote_storage_enable
    assert not validate_topic_configs({"remote.storage.enable": "false"}, on).remote_storage_enable
    assert not validate_topic_configs({"cleanup.policy": "compact"}, on).remote_storage_enable
    with pytest.raises(ConfigError):
        validate_topic_configs({"retention.ms": "5", "local.retention.ms": "6"}, on)


@pytest.mark.parametrize(
    "configs", [{"remote.storage.enable": "false"}, {"cleanup.policy": "compact"}, {"cleanup.policy": "compact,delete"}]
)
def test_default_remote_storage_is_disabled_under_the_same_rules(configs: dict[str, str]) -> None:
    on = broker(**SYSTEM_ON, ottla_log_remote_storage_enable="true")
    with pytest.raises(ConfigError, match=r"only with remote\.log\.delete\.on\.disable=true"):
        validate_topic_configs(configs, on, existing={"retention.ms": "5"})
    validate_topic_configs(configs | {"remote.log.delete.on.disable": "true"}, on, existing={})
    validate_topic_configs(configs, on, existing=None)
    validate_topic_configs(configs, on, existing=configs)
