"""The commit that this program is built from: recorded in wheels, archives and images, asked of git in a checkout.

`setup.py` runs this file by its path, before the package can be imported: it imports the standard library alone.
"""

import subprocess
from pathlib import Path
from typing import Final

RECORD: Final = Path(__file__).with_name("COMMIT")
"""The file that `setup.py` writes into what it builds. A checkout has none."""
UNKNOWN: Final = "unknown"
_GIT_TIMEOUT_S: Final = 5


def build_commit(record: Path = RECORD) -> str:
    """Return the commit's abbreviated hash, ending in ``-dirty`` where tracked files differ from it; or "unknown"."""
    if record.is_file():
        return record.read_text().strip()
    root = record.parents[1]
    if not (root / ".git").exists():
        return UNKNOWN
    command = ["git", "-C", str(root), "describe", "--always", "--dirty", "--abbrev=12", "--exclude=*"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=_GIT_TIMEOUT_S)
    except (OSError, subprocess.SubprocessError):
        return UNKNOWN
    return done.stdout.strip()
