"""Formatting of directories for a node (`ottla storage format`): meta.properties and the initial files of the quorum.

The caller provides the content of the quorum's files.
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
"""Ids below this number are reserved for lost, unassigned and migrating directories (KIP-858)."""


class AlreadyFormatted(StorageError):
    def __init__(self, path: str) -> None:
        super().__init__(f"directory {path} is already formatted; use --ignore-formatted to leave it as it is")
        self.path = path


class Formatted(NamedTuple):
    """The newly formatted paths, and those that were formatted before."""

    new: list[str]
    already: list[str]


def random_id() -> Uuid:
    """Return an id for a directory, a topic or a cluster: not a reserved one, and not starting with a dash."""
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
    """Format the directories of node ``node_id`` of the cluster.

    ``initial_files`` (path below the metadata directory -> content) is the initial state of the quorum;
    ``common_files`` go into every directory, like Kafka's `bootstrap.checkpoint`. A directory counts as formatted with
    its meta.properties, which is written last, so that an interrupted format can be repeated.

    Raises AlreadyFormatted, MetaPropertiesMismatch (also under ``ignore_formatted``), CorruptCheckpoint, OSError;
    before the first write where possible.
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
