"""`meta.properties`: the cluster, the node and the id of a directory.

Java properties as Apache Kafka writes them (``MetaProperties``): `version=1` with `cluster.id` and `node.id`, and
`directory.id` since directories have ids; version 0 has `broker.id` instead. Owns the file and the checks between
several directories.
"""

import re
from collections.abc import Mapping
from typing import TypeVar

from protocol.lazy_dataclass import lazy_dataclass
from protocol.primitives import Uuid, uuid_from_text, uuid_to_text
from storage.errors import CorruptCheckpoint, StorageError
from storage.files import FileSystem, join, read_file, replace_file

META_PROPERTIES_FILE = "meta.properties"
VERSION = 1

T = TypeVar("T")

_ESCAPES = {"n": "\n", "r": "\r", "t": "\t", "f": "\f"}
_ESCAPE = re.compile(r"\\(.)", re.DOTALL)
_NAME = re.compile(r"(?:\\.|[^\\=: \t])*")
_SEPARATOR = re.compile(r"\A[ \t]*[=:]?[ \t]*")


class MetaPropertiesMismatch(StorageError):
    """Directories of different clusters or nodes, or of another node than this one."""


@lazy_dataclass(frozen=True, slots=True)
class MetaProperties:
    """The content of the file. Only a version 0 file can lack cluster and node."""

    cluster_id: str | None
    node_id: int | None
    directory_id: Uuid | None = None
    version: int = VERSION


def read_meta_properties(fs: FileSystem, directory: str) -> MetaProperties | None:
    """Read the file; None for an unformatted directory. Raises CorruptCheckpoint."""
    path = join(directory, META_PROPERTIES_FILE)
    if not fs.exists(path):
        return None
    properties = _parse(path, read_file(fs, path))
    version = _version(path, properties)
    node_id = _number(path, properties, "node.id" if version else "broker.id")
    meta = MetaProperties(properties.get("cluster.id"), node_id, _directory_id(path, properties), version)
    if version and (meta.cluster_id is None or meta.node_id is None):
        raise CorruptCheckpoint(path, "cluster.id and node.id are both required")
    return meta


def write_meta_properties(fs: FileSystem, directory: str, meta: MetaProperties) -> None:
    """Write the file durably as version 1; `meta` must have cluster and node."""
    assert meta.cluster_id is not None
    assert meta.node_id is not None
    properties = {"version": str(VERSION), "cluster.id": meta.cluster_id, "node.id": str(meta.node_id)}
    if meta.directory_id is not None:
        properties["directory.id"] = uuid_to_text(meta.directory_id)
    lines = (f"{name}={_escape(value)}\n" for name, value in properties.items())
    replace_file(fs, join(directory, META_PROPERTIES_FILE), ("#\n" + "".join(lines)).encode("latin-1"))


def check_together(
    found: Mapping[str, MetaProperties], *, cluster_id: str | None = None, node_id: int | None = None
) -> None:
    """Check that the formatted directories (by path) belong to one cluster and node: the given ones, or one another's.

    Raises MetaPropertiesMismatch, which names a directory.
    """
    for path, meta in found.items():
        cluster_id = _same(path, "cluster.id", meta.cluster_id, cluster_id)
        node_id = _same(path, "node.id", meta.node_id, node_id)
    owners: dict[Uuid, str] = {}
    for path, meta in found.items():
        if meta.directory_id is None:
            continue
        other = owners.setdefault(meta.directory_id, path)
        if other != path:
            raise MetaPropertiesMismatch(
                f"log directories {other} and {path} have the same directory.id; remove the copy from log.dirs"
            )


def _same(path: str, name: str, found: T | None, expected: T | None) -> T | None:
    if found is not None and expected is not None and found != expected:
        raise MetaPropertiesMismatch(f"log directory {path} belongs to {name} {found}, not {expected}")
    return expected if found is None else found


def _version(path: str, properties: Mapping[str, str]) -> int:
    version = _number(path, properties, "version") or 0
    if version not in (0, VERSION):
        raise CorruptCheckpoint(path, f"unknown version {version}")
    return version


def _number(path: str, properties: Mapping[str, str], name: str) -> int | None:
    text = properties.get(name)
    if text is None:
        return None
    try:
        return int(text)
    except ValueError:
        raise CorruptCheckpoint(path, f"{name} is {text!r}, not a number") from None


def _directory_id(path: str, properties: Mapping[str, str]) -> Uuid | None:
    text = properties.get("directory.id")
    try:
        return None if text is None else uuid_from_text(text)
    except ValueError as error:
        raise CorruptCheckpoint(path, f"directory.id: {error}") from None


# -- Java properties, as far as this file needs them -------------------------------------------------------------------


def _parse(path: str, data: bytes) -> dict[str, str]:
    """Parse lines of name, separator, value; `#` and `!` begin comments; a backslash escapes the next character."""
    text = data.decode("latin-1")
    return dict(
        _entry(path, line.lstrip()) for line in text.splitlines() if line.lstrip() and line.lstrip()[0] not in "#!"
    )


def _entry(path: str, line: str) -> tuple[str, str]:
    end = _NAME.match(line)
    assert end is not None, "the pattern matches an empty name"
    value = _SEPARATOR.sub("", line[end.end() :], count=1)
    return _unescape(path, end[0]), _unescape(path, value)


def _unescape(path: str, text: str) -> str:
    if _ESCAPE.sub("", text).endswith("\\"):
        raise CorruptCheckpoint(path, "a line ends in a backslash")
    return _ESCAPE.sub(lambda escape: _ESCAPES.get(escape[1], escape[1]), text)


def _escape(value: str) -> str:
    return "".join(f"\\{character}" if character in "\\=:#!" else character for character in value)
