"""Files that only their owner may read, and texts of properties files."""

import os
from collections.abc import Mapping
from pathlib import Path

PRIVATE_FILE = 0o600
PRIVATE_DIRECTORY = 0o700


def write_private(path: Path, text: str) -> None:
    """Replace a file durably by one that only its owner may read. At no time may others read it. Raise OSError."""
    aside = path.with_name(f"{path.name}.new")
    aside.unlink(missing_ok=True)
    descriptor = os.open(aside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, PRIVATE_FILE)
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    aside.replace(path)
    directory = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)


def make_private_directory(path: Path) -> None:
    """Create a directory that only its owner may enter, or take these rights from others. Raise OSError."""
    path.mkdir(parents=True, exist_ok=True)
    path.chmod(PRIVATE_DIRECTORY)


def properties_text(settings: Mapping[str, str]) -> str:
    """Return settings in the format of Java's properties files, in ASCII."""
    import javaproperties  # local import: see `broker.config.load.read_properties`

    return "".join(f"{javaproperties.join_key_value(name, value)}\n" for name, value in settings.items())
