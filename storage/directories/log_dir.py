"""One log directory of a node: its identity, its lock, its failure, and the logs found in it at start."""

from collections.abc import Iterable
from dataclasses import field
from typing import NamedTuple

from protocol.lazy_dataclass import lazy_dataclass
from protocol.primitives import ZERO_UUID, Uuid
from storage.directories.checkpoints import TopicPartition, read_topic_id
from storage.directories.meta_properties import MetaProperties
from storage.errors import CorruptCheckpoint, LogDirFailure, StorageError
from storage.files import FileLock, FileSystem, join, parent

LOCK_FILE = ".lock"


class LogDirLocked(StorageError):
    """Another process has locked the directory."""

    def __init__(self, path: str) -> None:
        super().__init__(
            f"log directory {path} is in use by another process; stop that process or configure another directory"
        )
        self.path = path


class NotALog(StorageError):
    """A directory in a log directory does not have the name of a topic partition; its content is unknown and stays
    unchanged.
    """

    def __init__(self, path: str) -> None:
        super().__init__(
            f"{path} is not the directory of a topic partition; move it out of the log directory before starting."
        )


class DuplicateLog(StorageError):
    """Several log directories hold the same partition, and the metadata decides for none of them."""

    def __init__(self, paths: Iterable[str]) -> None:
        super().__init__(
            f"{' and '.join(paths)} hold the same topic partition, and the cluster metadata assigns none"
            " of them; move all but one away before starting."
        )


class NoLogDir(StorageError):
    """Every log directory is offline."""


@lazy_dataclass(slots=True)
class LogDir:
    """The state of one log directory. `failure` is None while it is online, `meta` while it is unformatted."""

    path: str
    id: Uuid = ZERO_UUID
    failure: LogDirFailure | None = None
    lock: FileLock | None = None
    meta: MetaProperties | None = None
    previous_epoch: int | None = None
    """Broker epoch in the marker of the last clean shutdown; None after an unclean one."""
    stale: list[str] = field(default_factory=list)
    """Paths of `-delete` directories found at start, to be removed."""
    kept_aside: list[str] = field(default_factory=list)
    """Paths of `-stray` and `-future` directories, which are left alone."""
    is_loaded: bool = False
    log_count: int = 0

    @property
    def is_online(self) -> bool:
        return self.failure is None

    @property
    def was_clean(self) -> bool:
        return self.previous_epoch is not None


class FoundLog(NamedTuple):
    """A log to be opened. `topic_id` comes from its files and is only read if the partition has several logs."""

    directory: LogDir
    path: str
    partition: TopicPartition
    topic_id: Uuid | None = None


def topic_id_of_found(fs: FileSystem, path: str) -> Uuid | None:
    """Return the topic id of a log that is not open; None without one. Raises CorruptCheckpoint, OSError.

    A log without records has none if its file is torn: a crash interrupted the log's creation.
    """
    try:
        return read_topic_id(fs, path)
    except CorruptCheckpoint:
        if any(name.endswith(".log") and fs.size(join(path, name)) for name in fs.list(path)):
            raise
        return None


def lock_directory(fs: FileSystem, path: str) -> FileLock:
    """Create the directory if it is absent, and lock it. Raises LogDirLocked, OSError."""
    if not fs.exists(path):
        fs.make_directory(path)
        fs.sync_directory(parent(path))
    try:
        return fs.lock(join(path, LOCK_FILE))
    except BlockingIOError:
        raise LogDirLocked(path) from None
