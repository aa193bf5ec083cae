"""Output of commands: the plain text of the kafka-*.sh tools, column widths included; tables on a terminal; JSON."""

import json
import sys
from collections.abc import Iterable, Sequence

import click


def print_json(document: object) -> None:
    """Print one JSON document: indented on a terminal, else on one line."""
    click.echo(json.dumps(document, indent=2 if is_terminal() else None, ensure_ascii=False))


def is_terminal() -> bool:
    return sys.stdout.isatty()


def print_columns(headings: Sequence[str], rows: Iterable[Sequence[object]], formats: Sequence[str]) -> None:
    """Print rows below headings; `formats` are `str.format` cells such as "{:<15}", joined by single spaces."""
    if is_terminal():
        _print_table(headings, rows)
        return
    for row in (headings, *rows):
        click.echo(" ".join(cell.format(str(value)) for cell, value in zip(formats, row, strict=True)))


def print_tabbed(headings: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    """Print rows below headings in Kafka's other form: cells padded to the widest of their column, each with a tab."""
    if is_terminal():
        _print_table(headings, rows)
        return
    widths = [width_of((row[index] for row in rows), len(heading)) for index, heading in enumerate(headings)]
    for row in (headings, *rows):
        click.echo("".join(f"{value!s:<{width}}\t" for value, width in zip(row, widths, strict=True)))


def _print_table(headings: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table(box=None, pad_edge=False, header_style="bold")
    for heading in headings:
        table.add_column(heading, overflow="fold")
    for row in rows:
        table.add_row(*(str(value) for value in row))
    Console(highlight=False, markup=False).print(table)


def width_of(values: Iterable[object], least: int) -> int:
    """Return the width of a column of `values`, at least `least`."""
    return max([least, *(len(str(value)) for value in values)])
