"""The wire and log formats as data: one JSON file per message in Kafka's schema dialect, and the table of errors.

The files are the only source of every byte Ottla writes. This package holds no code but the two functions that read
them, and only `protocol` calls those.
"""

import json
import pkgutil
from collections.abc import Iterator

DIRECTORIES = (
    "rpc",
    "common",
    "metadata",
    "coordinators/group",
    "coordinators/share",
    "coordinators/transaction",
    "storage",
)


def read_json(path: str) -> object:
    """Return the parsed content of `path`, relative to this package ("rpc/FetchRequest.json")."""
    content = pkgutil.get_data(__name__, path)
    if content is None:
        raise FileNotFoundError(f"schemas/{path}")
    return json.loads(content)


def message_paths() -> Iterator[str]:
    """Yield the paths of all message schemas by directory and name, for tools; a broker reads schemas by name."""
    from importlib import resources  # 8 ms that a starting broker need not spend

    for directory in DIRECTORIES:
        names = sorted(entry.name for entry in resources.files(__name__).joinpath(directory).iterdir())
        yield from (f"{directory}/{name}" for name in names if name.endswith(".json"))
