"""The table of `docs/commands.md`, by the names of Kafka's commands."""

import re
from typing import NamedTuple

from tests.support.kafka.apache_kafka import REPOSITORY

PAGE = REPOSITORY / "docs" / "commands.md"


class DocumentedCommand(NamedTuple):
    """The cells of a row."""

    ours: str
    differs: str
    left_out: str


def rows() -> dict[str, DocumentedCommand]:
    """Return the rows; a row with several commands counts for each."""
    found: dict[str, DocumentedCommand] = {}
    for line in PAGE.read_text().splitlines():
        if line.startswith("| `"):
            names, *cells = (cell.strip() for cell in line.strip("|").split("|"))
            found |= dict.fromkeys(re.findall("`([^`]+)`", names), DocumentedCommand(*cells))
    return found
