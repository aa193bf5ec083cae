"""The tables against the keys that Apache Kafka 4.2.0 printed."""

from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from broker.config.definitions import (
    BROKER_KEYS,
    CLIENT_METRICS_KEYS,
    DYNAMIC_ONLY,
    GROUP_KEYS,
    TOPIC_KEYS,
    TOPIC_SYNONYMS,
    broker_key,
    broker_synonyms,
    nearest,
    scope_of,
)
from broker.config.key import ConfigKey, Scope
from broker.config.tables.ottla import OTTLA_KEYS
from broker.config.tables.topic import LATER_THAN_4_2

TABLES: Mapping[str, Mapping[str, ConfigKey]] = {
    "broker": BROKER_KEYS,
    "topic": TOPIC_KEYS,
    "group": GROUP_KEYS,
    "client_metrics": CLIENT_METRICS_KEYS,
}


def kafka_rows() -> Iterator[list[str]]:
    lines = Path(__file__).with_name("apache_kafka_4_2_keys.tsv").read_text().splitlines()
    return (line.split("\t") for line in lines if not line.startswith("#"))


OURS = {"broker": {key.name for key in OTTLA_KEYS} | DYNAMIC_ONLY, "topic": LATER_THAN_4_2}


def test_tables_contain_exactly_kafkas_keys_and_ottlas_own() -> None:
    for resource, table in TABLES.items():
        theirs = {row[1] for row in kafka_rows() if row[0] == resource}
        ours = OURS.get(resource, set())
        assert set(table) == theirs | ours


def test_types_defaults_and_scopes_are_kafkas() -> None:
    for resource, name, kind, default, scope, internal in kafka_rows():
        key = TABLES[resource][name]
        shown = "(required)" if key.required else "(null)" if key.default is None else key.default
        scope_shown = key.scope.value if resource == "broker" else "-"
        assert (key.kind.name, shown, scope_shown, "internal" if key.internal else "-") == (
            kind,
            default,
            scope,
            internal,
        )


def test_every_default_satisfies_its_rule() -> None:
    for table in TABLES.values():
        for key in table.values():
            if key.default is not None:
                assert key.parse(key.default) == key.default_value()


def test_documentation_is_one_sentence_each() -> None:
    for table in TABLES.values():
        for key in table.values():
            assert key.documentation.endswith("."), key.name
            assert key.documentation[0].isupper() or key.documentation[0] == "0", key.name


def test_synonyms_of_topic_keys_exist() -> None:
    assert set(TOPIC_KEYS) >= set(TOPIC_SYNONYMS)
    assert set(BROKER_KEYS) >= {name for names in TOPIC_SYNONYMS.values() for name in names}


@pytest.mark.parametrize(
    ("name", "behind"),
    [
        ("num.partitions", "num.partitions"),
        ("listener.name.internal.max.connections", "max.connections"),
        ("listener.name.internal.plain.sasl.jaas.config", "sasl.jaas.config"),
        ("listener.name.internal.ssl.key.password", "ssl.key.password"),
    ],
)
def test_listener_prefix_is_resolved_to_its_key(name: str, behind: str) -> None:
    key = broker_key(name)
    assert key is not None
    assert key.name == behind


def test_unknown_names_have_no_key() -> None:
    assert broker_key("num.partition") is None
    assert broker_key("listener.name.x.no.such") is None


@pytest.mark.parametrize(
    ("name", "scope"),
    [
        ("num.io.threads", Scope.CLUSTER),
        ("node.id", Scope.RESTART),
        ("listeners", Scope.BROKER),
        ("listener.name.x.max.connections", Scope.CLUSTER),
        ("listener.name.x.ssl.keystore.location", Scope.BROKER),
        ("no.such.key", None),
    ],
)
def test_scope_applies_to_keys_and_listener_spellings(name: str, scope: Scope | None) -> None:
    assert scope_of(name) is scope


def test_broker_keys_have_kafkas_synonyms() -> None:
    assert broker_synonyms("log.retention.hours") == (
        "log.retention.ms",
        "log.retention.minutes",
        "log.retention.hours",
    )
    assert broker_synonyms("log.flush.scheduler.interval.ms") == ("log.flush.scheduler.interval.ms",)
    assert broker_synonyms("listener.name.x.max.connections") == ("listener.name.x.max.connections", "max.connections")


def test_typo_is_matched_with_the_nearest_key() -> None:
    assert nearest("num.partition", BROKER_KEYS) == "num.partitions"
    assert nearest("zzz", BROKER_KEYS) is None
