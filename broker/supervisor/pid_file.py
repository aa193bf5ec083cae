"""The file with a node's process id, for other programs."""

import os
from pathlib import Path


def write_pid(path: Path, pid: int) -> None:
    """Write the file by renaming, so that readers never see a part of it. Raise OSError."""
    aside = path.with_suffix(".tmp")
    aside.write_text(f"{pid}\n")
    os.replace(aside, path)


def remove_pid(path: Path) -> None:
    path.unlink(missing_ok=True)
