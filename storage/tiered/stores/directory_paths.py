"""Mapping of object keys to paths and back: one directory per `/`, in key order.

File systems allow names of 255 bytes, and the name of a topic with its id may have 272. A longer name is cut: its
beginning becomes a directory whose name is longer than other names may be, so that it is unambiguous.
"""

import re
from collections.abc import Iterator

from storage.tiered.errors import ObjectStoreError

MAX_NAME_BYTES = 200
"""Longest uncut name; leaves room for the suffix of a temporary file."""

_CONTINUED = "~continued"
"""Suffix of a directory that holds the rest of a long name. It has at least four bytes, the number of bytes that a cut
between two UTF-8 characters may leave unused.
"""

_ASIDE = re.compile(r"\.[0-9a-f]{32}\.tmp")
_ASIDE_LENGTH = len(".") + 32 + len(".tmp")


def path_of(key: str) -> str:
    """Return the path relative to the root. Raises ObjectStoreError for a key that cannot be a path of its own."""
    names = key.split("/")
    if any(name in ("", ".", "..") for name in names) or "\0" in key or is_aside(key):
        raise ObjectStoreError(f"a directory store cannot store an object with the key {key!r}")
    return "/".join(part for name in names for part in _cut(name))


def _cut(name: str) -> Iterator[str]:
    while len(name.encode()) > MAX_NAME_BYTES:
        head = name.encode()[:MAX_NAME_BYTES].decode(errors="ignore")
        yield head + _CONTINUED
        name = name[len(head) :]
    yield name


def key_of_directory(parent_key: str, name: str) -> str:
    """Return the common beginning of the keys below a directory, given its parent's."""
    if len(name.encode()) > MAX_NAME_BYTES:
        return parent_key + name.removesuffix(_CONTINUED)
    return f"{parent_key}{name}/"


def aside_of(path: str, unique: str) -> str:
    """Return the temporary path of a write to `path`; `unique` is 32 hexadecimal digits."""
    return f"{path}.{unique}.tmp"


def is_aside(path: str) -> bool:
    return _ASIDE.fullmatch(path[-_ASIDE_LENGTH:]) is not None
