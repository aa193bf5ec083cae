"""The log directories of a node (JBOD) and the logs in them.

Each directory is locked by one process, belongs to one node (`meta.properties`), and fails alone: an IO error takes it
offline with all its logs, and the others continue. Offset checkpoints (`log_checkpoints`) keep the state of the logs
between runs.

Order at start: lock, meta.properties, remove the clean-shutdown marker, read checkpoints, open the logs. Order at
shutdown: flush and close the logs, write checkpoints, then the marker. Unlocking is separate and last: a process that
waits for the lock may assume that the previous process is gone.

A replica may have got a new log while the directory of its old one was offline. When that directory returns, both logs
are found. Neither is opened (`contested`) until the metadata decides between them (`settle`); their checkpointed
offsets are kept until then.

Threads. The registry changes on the thread that owns the logs. A method that blocks may run on another thread; two such
calls for one directory must not overlap, which one IO thread guarantees.
"""

import contextlib
import errno
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from protocol.primitives import Uuid
from storage.config import LogConfig
from storage.directories.checkpoints import TopicPartition
from storage.directories.clean_shutdown import UNKNOWN_BROKER_EPOCH, take_marker, write_marker
from storage.directories.directory_names import (
    DELETE_SUFFIX,
    FUTURE_SUFFIX,
    STRAY_SUFFIX,
    parse_directory_name,
    rename_aside,
)
from storage.directories.log_checkpoints import CheckpointedOffsets, LogCheckpoints
from storage.directories.log_dir import FoundLog, LogDir, NoLogDir, NotALog, lock_directory, topic_id_of_found
from storage.directories.log_registry import LogRegistry
from storage.directories.meta_properties import (
    MetaProperties,
    check_together,
    read_meta_properties,
    write_meta_properties,
)
from storage.directories.removals import UnsyncedRemovals
from storage.errors import CorruptCheckpoint, LogDirFailure, StorageError
from storage.files import FileSystem, base_name, join, parent
from storage.log import Log
from storage.recovery import LostRecords

T = TypeVar("T")
R = TypeVar("R")

NOT_LOGS = frozenset(
    {
        "__cluster_metadata-0",
        "remote-log-index-cache",
        "remote-log-metadata",
        "remote-log-cache",
        "remote-log-compaction",
        "lost+found",
    }
)
"""Directories that are not partition logs: the quorum's log, caches of remote segments, and lost+found."""

ConfigOf = Callable[[str], LogConfig]
"""Returns the LogConfig of a topic by its name."""
OnFailure = Callable[[LogDir, Sequence[Log]], None]
"""Called with a directory that went offline and its logs, on the thread that met the error."""


class LogDirs:
    def __init__(self, fs: FileSystem, directories: Sequence[LogDir], on_failure: OnFailure) -> None:
        self._fs = fs
        self._on_failure = on_failure
        self.directories = tuple(directories)
        self._registry = LogRegistry()
        self.checkpoints = LogCheckpoints(fs, self.directories, self._registry, self._guarded)
        self.unsynced_removals = UnsyncedRemovals(fs, self.checkpoints.write_all, self._guarded)
        self._preferred: dict[TopicPartition, LogDir] = {}
        self._contested: dict[TopicPartition, list[FoundLog]] = {}
        self.losses: list[tuple[TopicPartition, LostRecords]] = []
        """Logs that were found without records that had been flushed, in this run."""

    # -- opening ---------------------------------------------------------------------------------------------------

    @classmethod
    def open(cls, fs: FileSystem, paths: Iterable[str], on_failure: OnFailure) -> "LogDirs":
        """Lock the directories and read meta.properties. A directory that fails is offline from the start.

        Blocks. Raises LogDirLocked, MetaPropertiesMismatch, CorruptCheckpoint (a meta.properties that does not parse),
        and NoLogDir if every directory fails; then all locks are released.
        """
        dirs = cls(fs, [LogDir(path.rstrip("/") or "/") for path in paths], on_failure)
        try:
            for directory in dirs.directories:
                dirs._open_directory(directory)
            dirs._require_one()
            check_together({d.path: d.meta for d in dirs.online if d.meta is not None})
        except StorageError:
            dirs.unlock()
            raise
        return dirs

    def _open_directory(self, directory: LogDir) -> None:
        try:
            directory.lock = lock_directory(self._fs, directory.path)
            directory.meta = read_meta_properties(self._fs, directory.path)
        except OSError as error:
            directory.failure = LogDirFailure(directory.path, error)
            return
        if directory.meta is not None and directory.meta.directory_id is not None:
            directory.id = directory.meta.directory_id

    def _require_one(self) -> None:
        if not self.online:
            reasons = "; ".join(str(directory.failure) for directory in self.directories)
            raise NoLogDir(f"all log directories are offline ({reasons}); repair or replace at least one of log.dirs")

    @property
    def online(self) -> list[LogDir]:
        return [directory for directory in self.directories if directory.is_online]

    @property
    def identity(self) -> MetaProperties | None:
        """Cluster and node of the formatted directories; None if none is formatted."""
        return next((directory.meta for directory in self.online if directory.meta is not None), None)

    def adopt(self, cluster_id: str, node_id: int, new_id: Callable[[], Uuid]) -> None:
        """Ensure that every online directory belongs to this node of this cluster and has an id.

        Directories without meta.properties are formatted, older formats completed. Blocks. Raises
        MetaPropertiesMismatch for a directory of another cluster or node, before anything is written.
        """
        formatted = {d.path: d.meta for d in self.online if d.meta is not None}
        check_together(formatted, cluster_id=cluster_id, node_id=node_id)
        for directory in self.online:
            meta = directory.meta
            if meta is None or meta.directory_id is None or meta.version == 0:
                known_id = None if meta is None else meta.directory_id
                self._guarded(
                    directory, self._write_identity, MetaProperties(cluster_id, node_id, known_id or new_id())
                )

    def _write_identity(self, directory: LogDir, meta: MetaProperties) -> None:
        write_meta_properties(self._fs, directory.path, meta)
        directory.meta = meta
        assert meta.directory_id is not None
        directory.id = meta.directory_id

    # -- loading ---------------------------------------------------------------------------------------------------

    def load(self, config_of: ConfigOf, *, now_ms: int, threads_per_directory: int = 1) -> None:
        """Open every log except contested ones, with recovery where needed, on several threads per directory if
        allowed.

        Blocks. Raises NotALog, NoLogDir.
        """
        found = [entry for directory in self.online for entry in self._find(directory)]
        for entry in _repeated(found):
            self._guarded(entry.directory, self._contest, entry)
        for directory in self.online:
            mine = [entry for entry in found if entry.directory is directory and entry.partition not in self._contested]
            self._guarded(directory, self._load_directory, mine, config_of, now_ms, threads_per_directory)
        self._require_one()

    def _contest(self, _directory: LogDir, entry: FoundLog) -> None:
        found = entry._replace(topic_id=topic_id_of_found(self._fs, entry.path))
        self._contested.setdefault(entry.partition, []).append(found)

    def _find(self, directory: LogDir) -> list[FoundLog]:
        """Return the logs found in a directory and record its stale and stray directories. An IO error takes it
        offline.
        """
        found: list[FoundLog] = []
        self._guarded(directory, self._sort_names, found)
        return found

    def _sort_names(self, directory: LogDir, found: list[FoundLog]) -> None:
        for name in self._fs.list(directory.path):
            path = join(directory.path, name)
            if name in NOT_LOGS or not self._fs.is_directory(path):
                continue
            partition = _partition_of(path)
            if name.endswith(DELETE_SUFFIX):
                directory.stale.append(path)
            elif name.endswith((STRAY_SUFFIX, FUTURE_SUFFIX)):
                directory.kept_aside.append(path)
            else:
                found.append(FoundLog(directory, path, partition))

    def _load_directory(
        self, directory: LogDir, found: Sequence[FoundLog], config_of: ConfigOf, now_ms: int, threads: int
    ) -> None:
        directory.previous_epoch = take_marker(self._fs, directory.path)
        checkpoints = self.checkpoints.read(directory, self._contested)

        def open_one(entry: FoundLog) -> Log:
            return self._open_log(entry, config_of(entry.partition.topic), checkpoints, now_ms)

        for log in _map_in_threads(open_one, found, threads):
            if log.topic_id is None and log.is_blank:
                self._drop_blank(log)
            else:
                self._registry.add(log, directory)
        directory.is_loaded = True
        self.checkpoints.write_all(directory)

    def _drop_blank(self, log: Log) -> None:
        """Remove a log whose creation a crash interrupted: it has neither records nor a topic id. The metadata create
        the log again.
        """
        log.close(clean=False)
        self._fs.remove_tree(log.directory)

    def _open_log(self, entry: FoundLog, config: LogConfig, checkpoints: CheckpointedOffsets, now_ms: int) -> Log:
        log = Log.open(
            self._fs,
            entry.path,
            config,
            now_ms=now_ms,
            clean_shutdown=entry.directory.was_clean,
            recovery_point=checkpoints.recovery_points.get(entry.partition, 0),
            log_start_offset=checkpoints.log_starts.get(entry.partition),
            before_truncation=self.checkpoints.before_truncation,
        )
        log.advance_high_watermark(checkpoints.high_watermarks.get(entry.partition, 0))
        if log.recovery.lost is not None:
            self.losses.append((entry.partition, log.recovery.lost))
        return log

    @property
    def previous_broker_epoch(self) -> int:
        """The broker epoch of the last run if it stopped cleanly in every directory and no log has lost flushed
        records; the next registration reports it.

        Contested logs are opened after the registration, and any of them may have lost records. No other log with
        records is opened later: `create` makes empty logs.
        """
        epochs = {directory.previous_epoch for directory in self.directories if directory.is_online}
        if self.losses or self._contested or len(self.online) < len(self.directories) or len(epochs) != 1:
            return UNKNOWN_BROKER_EPOCH
        epoch = epochs.pop()
        return UNKNOWN_BROKER_EPOCH if epoch is None else epoch

    # -- logs of the same partition in several directories -----------------------------------------------------------

    @property
    def contested(self) -> Mapping[TopicPartition, Sequence[FoundLog]]:
        """Partitions with several logs. None of these logs is open or in the registry before `settle`."""
        return self._contested

    def settle(self, partition: TopicPartition, chosen: FoundLog | None, config: LogConfig, *, now_ms: int) -> None:
        """Open the chosen log of a contested partition and rename the others to `-stray`, or all if `chosen` is None.

        The others are renamed first, so that a crash leaves at most as many logs as before. Blocks. Logs in a directory
        that failed meanwhile stay unchanged.
        """
        for found in self._contested.pop(partition):
            if found is not chosen and found.directory.is_online:
                self._guarded(found.directory, self._set_aside_unopened, found)
        if chosen is not None and chosen.directory.is_online:
            self._guarded(chosen.directory, self._open_chosen, chosen, config, now_ms)

    def _set_aside_unopened(self, directory: LogDir, found: FoundLog) -> None:
        directory.kept_aside.append(rename_aside(self._fs, found.path, found.partition, STRAY_SUFFIX))
        self._fs.sync_directory(directory.path)
        self.checkpoints.take(found)
        self.checkpoints.write_all(directory)

    def _open_chosen(self, directory: LogDir, chosen: FoundLog, config: LogConfig, now_ms: int) -> None:
        self._registry.add(self._open_log(chosen, config, self.checkpoints.take(chosen), now_ms), directory)
        self.checkpoints.write_all(directory)

    # -- logs ------------------------------------------------------------------------------------------------------

    def __iter__(self) -> Iterator[Log]:
        """Iterate over a copy of the registry."""
        return iter(self._registry)

    def __len__(self) -> int:
        return len(self._registry)

    def get(self, partition: TopicPartition) -> Log | None:
        return self._registry.get(partition)

    def directory_of(self, partition: TopicPartition) -> LogDir | None:
        """Return the directory that holds the log of a partition."""
        return self._registry.directory_of(partition)

    def logs_in(self, directory: LogDir) -> list[Log]:
        return self._registry.logs_in(directory)

    def create(
        self,
        partition: TopicPartition,
        config: LogConfig,
        *,
        now_ms: int,
        topic_id: Uuid | None = None,
        directory_id: Uuid | None = None,
    ) -> Log:
        """Create an empty log: in the directory with `directory_id` if it is online, else in the preferred directory,
        else in the one with the fewest partitions.

        Blocks. Syncs nothing, except removals if the partition's former log is among them: its checkpoints must not
        count for the new log. Returns an existing log of the partition unchanged. Raises NoLogDir, LogDirFailure,
        InconsistentTopicId.
        """
        existing = self._registry.get(partition)
        if existing is not None:
            if topic_id is not None:
                existing.set_topic_id(topic_id)
            return existing
        if partition in self.unsynced_removals:
            self.unsynced_removals.sync()
        directory = self._choose_directory(directory_id, self._preferred.pop(partition, None))
        path = join(directory.path, f"{partition.topic}-{partition.partition}")
        try:
            log = Log.open(
                self._fs,
                path,
                config,
                now_ms=now_ms,
                clean_shutdown=False,
                topic_id=topic_id,
                before_truncation=self.checkpoints.before_truncation,
            )
        except LogDirFailure as failure:
            self.fail(directory, failure.cause)
            raise
        self._registry.add(log, directory)
        return log

    def _choose_directory(self, directory_id: Uuid | None = None, preferred: LogDir | None = None) -> LogDir:
        """Return the directory for a new log. Raises NoLogDir."""
        self._require_one()
        wanted = [directory for directory in self.online if directory.id == directory_id]
        if wanted:
            return wanted[0]
        if preferred is not None and preferred.is_online:
            return preferred
        return min(self.online, key=lambda directory: directory.log_count)

    def prefer(self, partition: TopicPartition, directory: LogDir) -> None:
        """Prefer a directory for a log that may be created later without an assigned directory."""
        self._preferred[partition] = directory

    # -- removing logs ---------------------------------------------------------------------------------------------

    def delete(self, partition: TopicPartition) -> str | None:
        """Close a log and rename its directory for deletion; return the new path, None without such a log.

        The caller removes the path after log.segment.delete.delay.ms (`PendingRemovals.add_directory`), and calls
        `unsynced_removals.sync` after the last of several removals. Abort the log's compaction first. Raises
        LogDirFailure.
        """
        return self._retire(partition, DELETE_SUFFIX)

    def set_aside_as_stray(self, partition: TopicPartition) -> str | None:
        """Close and rename the log of a replica that the metadata does not assign to this node; the files are kept.

        Call `unsynced_removals.sync` after the last of several removals.
        """
        path = self._retire(partition, STRAY_SUFFIX)
        if path is not None:
            next(d for d in self.directories if d.path == parent(path)).kept_aside.append(path)
        return path

    def _retire(self, partition: TopicPartition, suffix: str) -> str | None:
        removed = self._registry.remove(partition)
        if removed is None:
            return None
        log, directory = removed
        log.close(clean=False)
        try:
            path = rename_aside(self._fs, log.directory, partition, suffix)
        except OSError as error:
            raise self.fail(directory, error) from error
        self.unsynced_removals.add(directory, partition)
        return path

    # -- failure ---------------------------------------------------------------------------------------------------

    def fail(self, directory: LogDir, error: OSError) -> LogDirFailure:
        """Take a directory offline with all its logs and call `on_failure`. Later calls return the first failure."""
        if directory.failure is not None:
            return directory.failure
        directory.failure = LogDirFailure(directory.path, error)
        lost = self._registry.remove_all(directory)
        for log in lost:
            log.fail(error)
        self._release(directory)
        self._on_failure(directory, lost)
        return directory.failure

    def fail_log(self, failure: LogDirFailure) -> LogDir | None:
        """Take the directory offline that a log's LogDirFailure names; return None for an unknown path."""
        for directory in self.directories:
            if failure.path == directory.path or failure.path.startswith(directory.path + "/"):
                self.fail(directory, failure.cause)
                return directory
        return None

    def _guarded(self, directory: LogDir, action: Callable[..., None], *arguments: object) -> None:
        """Run an action on a directory; an IO error, or a file of a log that does not parse, takes the directory
        offline.
        """
        try:
            action(directory, *arguments)
        except OSError as error:
            self.fail(directory, error)
        except LogDirFailure as failure:
            self.fail(directory, failure.cause)
        except CorruptCheckpoint as error:
            self.fail(directory, OSError(errno.EIO, str(error)))

    # -- closing ---------------------------------------------------------------------------------------------------

    def close(self, *, broker_epoch: int = UNKNOWN_BROKER_EPOCH, threads_per_directory: int = 1) -> None:
        """Flush and close every log, write the checkpoints and the clean-shutdown markers. Blocks."""
        for directory in self.online:
            self._guarded(directory, self._close_directory, broker_epoch, threads_per_directory)

    def unlock(self) -> None:
        """Release the locks: another process may then own the directories."""
        for directory in self.directories:
            self._release(directory)

    def _close_directory(self, directory: LogDir, broker_epoch: int, threads: int) -> None:
        logs = self.logs_in(directory)
        _map_in_threads(lambda log: log.close(clean=True), logs, threads)
        if not directory.is_loaded and not directory.was_clean:
            return  # logs that were never loaded may need recovery
        if directory.is_loaded:
            self.checkpoints.write_all(directory)
        if not directory.was_clean and self._holds_unopened(directory):
            return
        write_marker(self._fs, directory.path, broker_epoch)

    def _holds_unopened(self, directory: LogDir) -> bool:
        return any(found.directory is directory for logs in self._contested.values() for found in logs)

    def _release(self, directory: LogDir) -> None:
        if directory.lock is not None:
            with contextlib.suppress(OSError):  # the process ends soon, which releases the lock too
                directory.lock.release()
            directory.lock = None


def _partition_of(path: str) -> TopicPartition:
    try:
        return parse_directory_name(base_name(path))
    except ValueError:
        raise NotALog(path) from None


def _repeated(found: Sequence[FoundLog]) -> list[FoundLog]:
    """Return the logs of partitions that occur more than once."""
    counts = Counter(entry.partition for entry in found)
    return [entry for entry in found if counts[entry.partition] > 1]


def _map_in_threads(action: Callable[[T], R], items: Sequence[T], threads: int) -> list[R]:
    if threads <= 1 or len(items) <= 1:
        return [action(item) for item in items]
    with ThreadPoolExecutor(threads, thread_name_prefix="log-loading") as pool:
        return list(pool.map(action, items))
