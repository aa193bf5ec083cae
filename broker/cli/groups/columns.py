"""Columns of the tables about groups, with the widths of Kafka's tools."""

from collections.abc import Sequence
from typing import Final

import click

from broker.cli.shared.output import print_columns, width_of

MISSING: Final = "-"
_NARROW: Final = 15


def dash(value: object) -> str:
    """Return the text of a value, and a dash for None."""
    return MISSING if value is None else str(value)


def column(rows: Sequence[Sequence[str]], index: int, least: int = _NARROW) -> str:
    """Return the format of a left-aligned column that is as wide as its widest cell, and at least `least`."""
    return f"{{:<{width_of((row[index] for row in rows), least)}}}"


def print_group_list(rows: Sequence[tuple[str, str]], *, with_state: bool) -> None:
    """Print group ids, with their states if asked to."""
    if with_state:
        cells = list(map(list, rows))
        print_columns(["GROUP", "STATE"], cells, [column(cells, 0), "{}"])
        return
    for group_id, _ in rows:
        click.echo(group_id)
