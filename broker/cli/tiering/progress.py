"""Progress of long operations on a terminal; no output otherwise."""

import sys
from collections.abc import Iterable, Iterator
from typing import TypeVar

import click

T = TypeVar("T")

_CLEAR = "\r\x1b[K"


def with_progress(work: Iterable[T], what: str) -> Iterator[T]:
    """Yield the items of `work`; count them on a line of stderr, cleared before other output and at the end."""
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
