"""Holds the list of honoured keys to the code: a key that nothing asks for is not honoured, whatever the list says."""

import re
from pathlib import Path

from broker.config.definitions import TOPIC_SYNONYMS
from broker.config.honoured import HONOURED

BROKER = Path(__file__).parents[3] / "broker"
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
    "process.roles",
    "security.inter.broker.protocol",
}
"""Keys that code asks for under another name, which BrokerConfig makes of several of them."""


def test_every_honoured_key_is_asked_for_somewhere() -> None:
    sources = [path.read_text() for path in BROKER.rglob("*.py") if BROKER / "config" not in path.parents]
    asked_for = set(re.findall(r"[a-z0-9]+(?:_[a-z0-9]+)+", "\n".join(sources)))
    of_topics = {name for names in TOPIC_SYNONYMS.values() for name in names}
    alone = HONOURED - RESOLVED_WITH_OTHERS - of_topics
    assert sorted(name for name in alone if name.replace(".", "_") not in asked_for) == []
