"""The file that tells other programs the process id of a node."""

import os
from pathlib import Path


def write_pid(path: Path, pid: int) -> None:
    """Renamed into place, so that a reader never finds half a number. Raises OSError."""
    aside = path.with_suffix(".tmp")
    aside.write_text(f"{pid}\n")
    os.replace(aside, path)


def remove_pid(path: Path) -> None:
    path.unlink(missing_ok=True)
