"""How far long work is, on a terminal; nothing where nobody looks."""

import sys
from collections.abc import Iterable, Iterator
from typing import TypeVar

import click

T = TypeVar("T")

_CLEAR = "\r\x1b[K"


def shown(work: Iterable[T], what: str) -> Iterator[T]:
    """The same, with a line on stderr that counts; gone before anything else is printed, and at the end."""
    if not sys.stderr.isatty():
        yield from work
        return
    count = 0
    _write(f"{what}: …")
    try:
        for each in work:
            count += 1
            _write("")
            yield each
            _write(f"{what}: {count}")
    finally:
        _write("")


def _write(text: str) -> None:
    click.echo(_CLEAR + text, nl=False, err=True)
