"""`docs/commands.md` lists every command of Kafka, with our command."""

import re

from tests.support.kafka.apache_kafka import REPOSITORY
from tests.support.kafka.documented_commands import rows
from tests.support.kafka.kafka_commands import COMMANDS


def test_every_command_of_kafka_has_a_row() -> None:
    assert rows().keys() == COMMANDS.keys()


def test_rows_name_our_command() -> None:
    for name, row in rows().items():
        ours = COMMANDS[name].ours
        first = None if row.ours == "none" else re.findall("`([a-z0-9-]+)", row.ours)[0]
        assert first == ours, name


def test_commands_without_counterpart_have_a_reason() -> None:
    assert [name for name, row in rows().items() if row.ours == "none" and not row.left_out] == []


def test_page_is_listed() -> None:
    assert "commands.md" in (REPOSITORY / "mkdocs.yml").read_text()
