"""Directories that somebody else works in: what goes while one looks is no error, and not there."""

import contextlib
import os
from collections.abc import Iterable, Iterator
from pathlib import Path


def files_below(directory: Path) -> Iterator[Path]:
    """However deep. `Path.rglob` fails where a directory goes between its name and its content."""
    for found, _, names in os.walk(directory):
        yield from (Path(found, name) for name in names)


def total_bytes(paths: Iterable[Path]) -> int:
    size = 0
    for path in paths:
        with contextlib.suppress(FileNotFoundError):
            size += path.stat().st_size
    return size


def texts(paths: Iterable[Path]) -> Iterator[str]:
    """Of those files that are there when their turn comes."""
    for path in paths:
        with contextlib.suppress(FileNotFoundError):
            yield path.read_text()
