"""How keys of objects are written as paths, and read back: one directory per `/`, in the order of the keys.

File systems take names of 255 bytes, and the name of a topic with its id may have 272. A longer name is cut: its
beginning becomes a directory that no name can be confused with, because it is longer than names may be otherwise.
"""

import re
from collections.abc import Iterator

from storage.tiered.errors import ObjectStoreError

MAX_NAME_BYTES = 200
"""Leaves room for the suffix of what is written aside."""

_CONTINUED = "~continued"
"""At the end of a directory's name: the name goes on inside. As long as four UTF-8 bytes at least, which is what a cut
between two characters may leave unused.
"""

_ASIDE = re.compile(r"\.[0-9a-f]{32}\.tmp")
_ASIDE_LENGTH = len(".") + 32 + len(".tmp")


def path_of(key: str) -> str:
    """Relative to the root. Raises ObjectStoreError for a key that cannot be a path, or would be another's."""
    names = key.split("/")
    if any(name in ("", ".", "..") for name in names) or "\0" in key or is_aside(key):
        raise ObjectStoreError(f"an object in a directory cannot be named {key!r}")
    return "/".join(part for name in names for part in _cut(name))


def _cut(name: str) -> Iterator[str]:
    while len(name.encode()) > MAX_NAME_BYTES:
        head = name.encode()[:MAX_NAME_BYTES].decode(errors="ignore")
        yield head + _CONTINUED
        name = name[len(head) :]
    yield name


def key_of_directory(parent_key: str, name: str) -> str:
    """What the keys of everything in a directory begin with, given the same for its parent."""
    if len(name.encode()) > MAX_NAME_BYTES:
        return parent_key + name.removesuffix(_CONTINUED)
    return f"{parent_key}{name}/"


def aside_of(path: str, unique: str) -> str:
    """Where to write what shall take the place of `path`; `unique` is 32 hexadecimal digits."""
    return f"{path}.{unique}.tmp"


def is_aside(path: str) -> bool:
    return _ASIDE.fullmatch(path[-_ASIDE_LENGTH:]) is not None
