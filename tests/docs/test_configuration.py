"""`docs/configuration.md` and the tables of configuration keys."""

from broker.config.definitions import BROKER_KEYS, CLIENT_METRICS_KEYS, GROUP_KEYS, TOPIC_KEYS
from tests.docs.configuration import PAGE, page


def test_page_is_current() -> None:
    assert PAGE.read_text() == page(), "run: python -m tests.docs.configuration"


def test_every_key_has_a_row() -> None:
    text = PAGE.read_text()
    names = {*BROKER_KEYS, *TOPIC_KEYS, *GROUP_KEYS, *CLIENT_METRICS_KEYS}
    assert len(names) > 300
    assert [name for name in names if f"| `{name}`" not in text] == []
