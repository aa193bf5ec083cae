"""The offset checkpoints of the log directories: recovery points, log start offsets and high watermarks.

Each directory has one file of each kind. Files are written on a timer and may lag behind the logs; the marker of a
clean shutdown says that they do not.

Threads. A method that blocks may run beside the thread that owns the logs; two such calls for one directory must not
overlap, which one IO thread guarantees.
"""

import threading
from collections.abc import Callable, Container, Mapping, Sequence
from typing import NamedTuple

from storage.config import MAX_LONG
from storage.directories.checkpoints import (
    HIGH_WATERMARK_FILE,
    LOG_START_OFFSET_FILE,
    RECOVERY_POINT_FILE,
    TopicPartition,
    read_offsets,
    write_offsets,
)
from storage.directories.log_dir import FoundLog, LogDir
from storage.directories.log_registry import LogRegistry, partition_of
from storage.errors import CorruptCheckpoint
from storage.files import FileSystem, join
from storage.log import Log


class CheckpointedOffsets(NamedTuple):
    """The content of the three checkpoint files of one directory."""

    recovery_points: Mapping[TopicPartition, int]
    log_starts: Mapping[TopicPartition, int]
    high_watermarks: Mapping[TopicPartition, int]


_CHECKPOINT_FILES = (RECOVERY_POINT_FILE, LOG_START_OFFSET_FILE, HIGH_WATERMARK_FILE)
"""In the order of the fields of CheckpointedOffsets."""

OnDirectory = Callable[[LogDir, Callable[[LogDir], None]], None]
"""Runs an action on a directory; an OSError of the action takes the directory offline."""


class LogCheckpoints:
    """Reads and writes the offset checkpoints of all log directories."""

    def __init__(
        self, fs: FileSystem, directories: Sequence[LogDir], registry: LogRegistry, on_directory: OnDirectory
    ) -> None:
        self._fs = fs
        self._directories = directories
        self._registry = registry
        self._on_directory = on_directory
        self._unopened: dict[str, dict[TopicPartition, int]] = {}
        """Offsets of contested logs by path of the checkpoint file."""
        self._writing = threading.Lock()
        self._on_disk: dict[str, Mapping[TopicPartition, int]] = {}
        """Content of the checkpoint files by path: an unchanged file is not written again."""

    # -- contested and loaded logs ---------------------------------------------------------------------------------

    def read(self, directory: LogDir, contested: Container[TopicPartition]) -> CheckpointedOffsets:
        """Read the checkpoints of a directory; the offsets of contested logs stay in the files until `take`.

        A file that does not parse counts as empty: it costs a longer recovery, not the directory.
        """
        offsets = CheckpointedOffsets(*(self._read_or_empty(directory, name) for name in _CHECKPOINT_FILES))
        for name, values in zip(_CHECKPOINT_FILES, offsets, strict=True):
            kept = {partition: offset for partition, offset in values.items() if partition in contested}
            self._unopened[join(directory.path, name)] = kept
        return offsets

    def _read_or_empty(self, directory: LogDir, name: str) -> Mapping[TopicPartition, int]:
        path = join(directory.path, name)
        try:
            self._on_disk[path] = read_offsets(self._fs, path)
        except CorruptCheckpoint:
            return {}
        return self._on_disk[path]

    def take(self, found: FoundLog) -> CheckpointedOffsets:
        """Return the offsets of a contested log and drop them from the checkpoints."""
        each = (self._unopened[join(found.directory.path, name)] for name in _CHECKPOINT_FILES)
        taken = [(offsets, offsets.pop(found.partition, None)) for offsets in each]
        return CheckpointedOffsets(*({} if offset is None else {found.partition: offset} for _, offset in taken))

    # -- one log ---------------------------------------------------------------------------------------------------

    def make_durable(self, log: Log) -> None:
        """Flush a log and write its recovery point. Blocks. Raises LogDirFailure."""
        log.flush()
        directory = self._registry.directory_of(partition_of(log))
        if directory is not None:
            self._on_directory(directory, self._write_recovery_points)

    def write_log_start(self, log: Log) -> None:
        """Write the log start offset of a log to the checkpoint of its directory. Blocks. Raises OSError."""
        directory = self._registry.directory_of(partition_of(log))
        if directory is not None:
            self._write_log_starts(directory)

    def covers_log_start(self, log: Log) -> bool:
        """Whether a restart would find a log start offset at or below the log's, whatever segments are on disk."""
        directory = self._registry.directory_of(partition_of(log))
        known = {} if directory is None else self._on_disk.get(join(directory.path, LOG_START_OFFSET_FILE), {})
        return known.get(partition_of(log), MAX_LONG) <= log.log_start_offset

    def before_truncation(self, log: Log) -> None:
        """Write the lowered recovery point of a log; see `Log.open`. Raises OSError."""
        directory = self._registry.directory_of(partition_of(log))
        if directory is not None:
            self._write_recovery_points(directory)

    # -- directories -----------------------------------------------------------------------------------------------

    def write_recovery_points(self) -> None:
        """Write recovery-point-offset-checkpoint of every online directory. Blocks."""
        self._on_online(self._write_recovery_points)

    def write_log_starts(self) -> None:
        """Write log-start-offset-checkpoint of every online directory. Blocks."""
        self._on_online(self._write_log_starts)

    def write_high_watermarks(self) -> None:
        """Write replication-offset-checkpoint of every online directory. Blocks."""
        self._on_online(self._write_high_watermarks)

    def write_all(self, directory: LogDir) -> None:
        """Write the three checkpoints of one directory. Blocks. Raises OSError."""
        self._write_recovery_points(directory)
        self._write_log_starts(directory)
        self._write_high_watermarks(directory)

    def _on_online(self, write: Callable[[LogDir], None]) -> None:
        for directory in [directory for directory in self._directories if directory.is_online]:
            self._on_directory(directory, write)

    def _write_recovery_points(self, directory: LogDir) -> None:
        self._write(directory, RECOVERY_POINT_FILE, lambda log: log.recovery_point)

    def _write_log_starts(self, directory: LogDir) -> None:
        self._write(directory, LOG_START_OFFSET_FILE, _checkpointed_log_start)

    def _write_high_watermarks(self, directory: LogDir) -> None:
        self._write(directory, HIGH_WATERMARK_FILE, lambda log: log.high_watermark)

    def _write(self, directory: LogDir, name: str, value_of: Callable[[Log], int | None]) -> None:
        """Write a checkpoint file unless its content is unchanged.

        One writer at a time: every writer uses the same temporary file name.
        """
        path = join(directory.path, name)
        with self._writing:
            values = ((partition_of(log), value_of(log)) for log in self._registry.logs_in(directory))
            known = {partition: value for partition, value in values if value is not None}
            known |= self._unopened.get(path, {})
            if self._on_disk.get(path) != known:
                self._on_disk.pop(path, None)
                write_offsets(self._fs, path, known)
                self._on_disk[path] = known


def _checkpointed_log_start(log: Log) -> int | None:
    """Return the log start offset, None if the first segment implies it.

    A tiered log always has one: its first segments may leave the local disk at any time.
    """
    is_implied = not log.is_tiered and log.log_start_offset <= log.segments.first.base_offset
    return None if is_implied else log.log_start_offset
