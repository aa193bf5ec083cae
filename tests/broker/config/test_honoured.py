"""Holds the list of honoured keys to the code: a key that nothing asks for is not honoured, whatever the list says."""

import ast
import re
from collections.abc import Iterable
from pathlib import Path

from broker.config.broker_config import BrokerConfig, Setting
from broker.config.definitions import BROKER_KEYS, TOPIC_SYNONYMS
from broker.config.honoured import AS_IF, HONOURED

ROOT = Path(__file__).parents[3]
BROKER = ROOT / "broker"
RESOLVED_WITH_OTHERS = {
    "broker.id",
    "controller.listener.names",
    "controller.quorum.bootstrap.servers",
    "controller.quorum.voters",
    "inter.broker.listener.name",
    "listener.security.protocol.map",
    "listeners",
    "log.dir",
    "ottla.http.listener",
    "ottla.remote.storage.compacted.enable",
    "process.roles",
    "remote.log.manager.thread.pool.size",
    "security.inter.broker.protocol",
}
"""Keys that code asks for under another name, which BrokerConfig makes of several of them."""

BY_THEIR_OWN_NAME = {"unclean.leader.election.enable": "allows_unclean_election"}
"""Topic keys that the controller asks for by name instead of through LogConfig, and by what of its."""


def of_topics() -> set[str]:
    """Broker keys that stand behind topic keys."""
    return {name for names in TOPIC_SYNONYMS.values() for name in names}


def words_in(paths: Iterable[Path]) -> set[str]:
    """Every name with an underscore, and every attribute, in these files."""
    text = "\n".join(path.read_text() for path in paths)
    return {*re.findall(r"[a-z0-9]+(?:_[a-z0-9]+)+", text), *re.findall(r"\.([a-z]+)\b", text)}


def test_every_honoured_key_is_asked_for_somewhere() -> None:
    asked_for = words_in(path for path in BROKER.rglob("*.py") if BROKER / "config" not in path.parents)
    alone = HONOURED - RESOLVED_WITH_OTHERS - of_topics()
    assert sorted(name for name in alone if name.replace(".", "_") not in asked_for) == []


def test_every_honoured_key_of_topics_is_asked_for_through_the_topic() -> None:
    code = [
        *(path for path in BROKER.rglob("*.py") if BROKER / "config" not in path.parents),
        *(ROOT / "storage").rglob("*.py"),
    ]
    attributes = {
        node.attr for path in code for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Attribute)
    }
    unused = {
        topic_key
        for topic_key, names in TOPIC_SYNONYMS.items()
        if HONOURED.intersection(names)
        and BY_THEIR_OWN_NAME.get(topic_key, topic_key.replace(".", "_")) not in attributes
    }
    assert unused == set()


def test_every_key_that_a_node_is_built_with_is_honoured() -> None:
    keys = {name: name.replace("_", ".") for name, value in vars(BrokerConfig).items() if isinstance(value, Setting)}
    files = [BROKER / "app.py", *(BROKER / "node").glob("*.py")]
    read = {
        keys[node.attr]
        for path in files
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Attribute) and node.attr in keys
    }
    assert len(read) > 40
    assert sorted(read - HONOURED) == []


def test_a_key_is_either_honoured_or_taken_for_one_value() -> None:
    assert not HONOURED & set(AS_IF)
    assert set(BROKER_KEYS) >= set(AS_IF)
