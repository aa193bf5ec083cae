"""Descriptions against the responses of Apache Kafka 4.2.0 for the same settings."""

from collections.abc import Iterable
from pathlib import Path

import pytest

from broker.config.broker_config import BrokerConfig
from broker.config.describe import (
    ConfigEntry,
    ConfigSource,
    describe_broker,
    describe_client_metrics,
    describe_cluster_default,
    describe_group,
    describe_loggers,
    describe_topic,
)
from broker.config.load import parse_config
from broker.config.tables.ottla import OTTLA_KEYS
from broker.config.tables.topic import LATER_THAN_4_2
from tests.broker.config.test_listeners import COMBINED

STATIC = COMBINED | {
    "broker.id": "1",
    "log.retention.hours": "24",
    "num.io.threads": "4",
    "custom.key": "v",
    "compression.type": "gzip",
    "listener.name.plaintext.max.connections": "7",
    "log.roll.ms": "5000",
    "log.roll.hours": "3",
    "rsm.config.x": "y",
    "ssl.key.password": "secret",
    "ottla.x": "1",
}
CLUSTER = {"log.segment.bytes": "2000000", "num.io.threads": "6", "listener.name.plaintext.max.connections": "9"}
OWN = {"log.segment.bytes": "3000000", "listener.name.plaintext.ssl.keystore.password": "pw"}


@pytest.fixture(scope="module")
def broker() -> BrokerConfig:
    config, problems = parse_config(STATIC).with_dynamic(cluster=CLUSTER, broker=OWN)
    assert problems == []
    return config


def kafkas_answer(resource: str) -> list[str]:
    text = Path(__file__).with_name("apache_kafka_4_2_described.txt").read_text()
    sections = dict(section.split(" 0 \n", 1) for section in text.split("### ")[1:])
    return sections[resource].splitlines()


def shown(entries: Iterable[ConfigEntry]) -> list[str]:
    """Format entries like the recorded responses of Apache Kafka."""
    return sorted(map(show, entries), key=lambda line: line.partition("=")[0])


def show(entry: ConfigEntry) -> str:
    synonyms = "".join(f"{s.name}={s.value or null(s.value)}@{s.source}; " for s in entry.synonyms)
    return (
        f"{entry.name}={entry.value if entry.value is not None else 'null'} src={entry.source}"
        f" ro={str(entry.read_only).lower()} sens={str(entry.sensitive).lower()} t={entry.kind} syn=[{synonyms}]"
    )


def null(value: str | None) -> str:
    return "null" if value is None else ""


def test_topic_is_described_as_by_kafka(broker: BrokerConfig) -> None:
    overrides = {"retention.ms": "5", "cleanup.policy": "compact,delete"}
    assert shown(describe_topic(overrides, broker)) == kafkas_answer("2 t")


def test_topic_key_newer_than_kafka_4_2_is_described_only_where_set(broker: BrokerConfig) -> None:
    entries = describe_topic({"remote.copy.lag.ms": "5"}, broker)
    assert [entry.value for entry in entries if entry.name in LATER_THAN_4_2] == ["5"]


def test_remote_storage_default_is_a_synonym_only_where_set() -> None:
    system = {"remote.log.storage.system.enable": "true", "remote.log.storage.manager.class.name": "local"}
    broker = parse_config({**STATIC, **system, "ottla.log.remote.storage.enable": "true"})
    entry = next(entry for entry in describe_topic({}, broker) if entry.name == "remote.storage.enable")
    assert (entry.value, entry.source) == ("true", ConfigSource.STATIC_BROKER)


def test_broker_is_described_as_by_kafka(broker: BrokerConfig) -> None:
    ours = {key.name for key in OTTLA_KEYS}
    entries = [entry for entry in describe_broker(broker) if entry.name not in ours]
    assert shown(entries) == kafkas_answer("4 1")


def test_cluster_default_is_described_as_by_kafka(broker: BrokerConfig) -> None:
    assert shown(describe_cluster_default(broker)) == kafkas_answer("4 ")


def test_group_is_described_as_by_kafka(broker: BrokerConfig) -> None:
    assert shown(describe_group({"consumer.session.timeout.ms": "46000"}, broker)) == kafkas_answer("32 g")


def test_subscription_is_described_as_by_kafka() -> None:
    assert shown(describe_client_metrics({"interval.ms": "100"})) == kafkas_answer("16 m")


def test_ottlas_own_keys_are_described(broker: BrokerConfig) -> None:
    by_name = {entry.name: entry for entry in describe_broker(broker)}
    assert by_name["ottla.http.listener"].value == "127.0.0.1:9644"
    assert by_name["ottla.http.listener"].documentation


def test_logger_levels_are_described() -> None:
    (entry,) = describe_loggers({"ottla": "INFO"})
    assert (entry.name, entry.value, entry.source) == ("ottla", "INFO", ConfigSource.DYNAMIC_BROKER_LOGGER)
