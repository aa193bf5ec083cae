"""Proofs over the source: product code reads every typed setting and uses every honoured key."""

import ast
import re
from collections.abc import Iterable
from functools import cache
from pathlib import Path

from broker.config.broker_config import BrokerConfig
from broker.config.definitions import (
    ALIASES,
    BROKER_KEYS,
    CLIENT_METRICS_KEYS,
    GROUP_KEYS,
    REPLACED,
    TOPIC_KEYS,
    TOPIC_SYNONYMS,
)
from broker.config.setting import Setting
from broker.sasl.client.oauth_settings import OAUTH_KEYS

ROOT = Path(__file__).parents[3]
BROKER = ROOT / "broker"
CONFIG = BROKER / "config"
SETTINGS = {name: name.replace("_", ".") for name, value in vars(BrokerConfig).items() if isinstance(value, Setting)}
"""Keys by the attribute of BrokerConfig that reads them."""

TABLES_AND_CHECKS = [CONFIG / "definitions.py", CONFIG / "cross_checks.py", *(CONFIG / "tables").glob("*.py")]
"""Files that define, join and validate keys; a key that only these name has no effect."""

READ_BY_RAW_NAME = {
    "unclean.leader.election.enable": "allows_unclean_election",
    "follower.replication.throttled.replicas": "list_topic",
    "leader.replication.throttled.replicas": "list_topic",
}
"""Topic keys that product code reads from the image instead of LogConfig, with the method that receives the value."""

USES_CONFIGURATION = re.compile(r"broker\.config|DynamicConfig")

RESOLVED_IN_LOG_CONFIG = {"internal.segment.bytes": "segment_bytes"}
"""Topic keys that LogConfig has under the name of another key."""


@cache
def tree_of(path: Path) -> ast.Module:
    return ast.parse(path.read_text())


def attributes_read(paths: Iterable[Path]) -> set[str]:
    return {
        node.attr
        for path in paths
        for node in ast.walk(tree_of(path))
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load)
    }


def texts_looked_up(paths: Iterable[Path]) -> set[str]:
    """Every string literal passed to a call, except to an error: `config.value("listeners")`."""
    return {
        argument.value
        for path in paths
        for node in ast.walk(tree_of(path))
        if isinstance(node, ast.Call) and not (isinstance(node.func, ast.Name) and node.func.id.endswith("Error"))
        for argument in node.args
        if isinstance(argument, ast.Constant) and isinstance(argument.value, str)
    }


def product_files() -> list[Path]:
    return [*BROKER.rglob("*.py"), *(ROOT / "storage").rglob("*.py")]


def readers_of_settings() -> list[Path]:
    """Product files that use the configuration, so that an attribute of the same name elsewhere does not count."""
    return [path for path in product_files() if USES_CONFIGURATION.search(path.read_text())]


def test_product_code_reads_every_typed_setting() -> None:
    assert sorted(SETTINGS.keys() - attributes_read(readers_of_settings())) == []


def test_product_code_uses_every_honoured_broker_key() -> None:
    files = [path for path in readers_of_settings() if path not in TABLES_AND_CHECKS]
    used = {SETTINGS[name] for name in SETTINGS.keys() & attributes_read(files)}
    used |= texts_looked_up(files) | {name for names in TOPIC_SYNONYMS.values() for name in names}
    used |= {old for old, new in REPLACED.items() if new in used}
    used |= set(OAUTH_KEYS)  # tests/broker/sasl/client/test_oauth_settings.py shows that each is read
    assert sorted(name for name, key in BROKER_KEYS.items() if key.honoured and name not in used) == []


def test_topic_keys_are_honoured_exactly_when_product_code_reads_them() -> None:
    read = attributes_read(path for path in product_files() if CONFIG not in path.parents)
    for name, key in TOPIC_KEYS.items():
        attribute = (READ_BY_RAW_NAME | RESOLVED_IN_LOG_CONFIG).get(name, name.replace(".", "_"))
        assert (attribute in read) == key.honoured, name


def test_topic_key_and_its_broker_synonyms_are_honoured_together() -> None:
    for name, synonyms in TOPIC_SYNONYMS.items():
        assert {BROKER_KEYS[synonym].honoured for synonym in synonyms} == {TOPIC_KEYS[name].honoured}, name


def test_keys_of_groups_and_client_metrics_are_honoured() -> None:
    assert all(key.honoured for key in GROUP_KEYS.values())
    assert all(key.honoured for key in CLIENT_METRICS_KEYS.values())


def test_node_is_built_with_honoured_keys_only() -> None:
    files = [BROKER / "app.py", *(BROKER / "node").glob("*.py")]
    read = {SETTINGS[name] for name in SETTINGS.keys() & attributes_read(files)}
    assert len(read) > 40
    assert sorted(name for name in read if not BROKER_KEYS[name].honoured) == []


def test_aliases_stand_for_honoured_keys() -> None:
    assert sorted(name for name in ALIASES.values() if not BROKER_KEYS[name].honoured) == []


def test_key_with_fixed_value_is_not_honoured() -> None:
    fixed = [key for key in BROKER_KEYS.values() if key.fixed is not None]
    assert sorted(key.name for key in fixed) == [
        "group.share.persister.class.name",
        "log.cleaner.threads",
        "share.coordinator.threads",
        "share.fetch.purgatory.purge.interval.requests",
    ]
    assert not any(key.honoured for key in fixed)
