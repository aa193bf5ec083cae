"""Formatting directories for a node (`ottla storage format`): their meta.properties, and what the quorum starts with.

Knows files, not what is in the quorum's: their bytes are handed in.
"""

import uuid
from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

from protocol.primitives import Uuid, uuid_from_text, uuid_to_text
from storage.directories.meta_properties import (
    META_PROPERTIES_FILE,
    MetaProperties,
    check_together,
    read_meta_properties,
    write_meta_properties,
)
from storage.errors import StorageError
from storage.files import FileSystem, join, parent, replace_file

BOOTSTRAP_CHECKPOINT_FILE = "bootstrap.checkpoint"
_RESERVED_IDS = 100
"""Ids below this number are kept for directories that are lost, unassigned, or on their way (KIP-858)."""


class AlreadyFormatted(StorageError):
    def __init__(self, path: str) -> None:
        super().__init__(f"The directory {path} is formatted already; --ignore-formatted leaves it as it is.")
        self.path = path


class Formatted(NamedTuple):
    """Paths that were formatted now, and those that had been before."""

    new: list[str]
    already: list[str]


def random_id() -> Uuid:
    """An id for a directory, a topic or a cluster: never a reserved one, and its text does not look like an option."""
    while True:
        candidate = Uuid(uuid.uuid4().bytes)
        if int.from_bytes(candidate) >= _RESERVED_IDS and not uuid_to_text(candidate).startswith("-"):
            return candidate


def is_cluster_id(text: str) -> bool:
    """Whether ``text`` is an id as `random-uuid` prints them: 16 bytes in URL-safe base64."""
    try:
        uuid_from_text(text)
    except ValueError:
        return False
    return True


def format_directories(
    fs: FileSystem,
    log_dirs: Iterable[str],
    metadata_dir: str,
    *,
    cluster_id: str,
    node_id: int,
    initial_files: Mapping[str, bytes],
    common_files: Mapping[str, bytes] | None = None,
    ignore_formatted: bool = False,
    new_id: Callable[[], Uuid] = random_id,
) -> Formatted:
    """Makes the directories those of node ``node_id`` of the cluster.

    ``initial_files`` (path below the metadata directory -> content) is what its quorum starts with, ``common_files`` go
    into every directory, as Kafka puts `bootstrap.checkpoint` there. A directory counts as formatted with its
    meta.properties, which is written last, so that a format that was cut short can be repeated.

    Raises AlreadyFormatted, MetaPropertiesMismatch (also under ``ignore_formatted``), CorruptCheckpoint, OSError;
    before anything is written if it can be known then.
    """
    paths = list(dict.fromkeys([metadata_dir, *log_dirs]))
    found = {path: meta for path in paths if (meta := read_meta_properties(fs, path)) is not None}
    if found and not ignore_formatted:
        raise AlreadyFormatted(next(iter(found)))
    check_together(found, cluster_id=cluster_id, node_id=node_id)
    new = [path for path in paths if path not in found]
    for path in new:
        fs.make_directory(path)
        fs.sync_directory(parent(path))
        _write_initial_files(fs, path, common_files or {})
        if path == metadata_dir:
            _write_initial_files(fs, path, initial_files)
        write_meta_properties(fs, path, MetaProperties(cluster_id, node_id, new_id()))
    return Formatted(new, list(found))


def _write_initial_files(fs: FileSystem, directory: str, files: Mapping[str, bytes]) -> None:
    for name, content in files.items():
        path = join(directory, name)
        fs.make_directory(parent(path))
        replace_file(fs, path, content)
        fs.sync_directory(directory)


def is_formatted(fs: FileSystem, directory: str) -> bool:
    return fs.exists(join(directory, META_PROPERTIES_FILE))
