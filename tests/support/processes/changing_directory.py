"""Directories that other processes change: files that disappear during a scan count as absent."""

import contextlib
import os
from collections.abc import Iterable, Iterator
from pathlib import Path


def files_below(directory: Path) -> Iterator[Path]:
    """Return all files below a directory. `Path.rglob` fails if a directory disappears during the scan."""
    for found, _, names in os.walk(directory):
        yield from (Path(found, name) for name in names)


def total_bytes(paths: Iterable[Path]) -> int:
    size = 0
    for path in paths:
        with contextlib.suppress(FileNotFoundError):
            size += path.stat().st_size
    return size


def texts(paths: Iterable[Path]) -> Iterator[str]:
    """Return the texts of the files that still exist when read."""
    for path in paths:
        with contextlib.suppress(FileNotFoundError):
            yield path.read_text()
