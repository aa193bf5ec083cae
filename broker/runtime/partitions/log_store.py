"""The logs of hosted partitions: found, created, truncated and removed without blocking the loop.

Joins the log directories with the IO thread, the cleaner and the queue of files to be removed.
`storage.directories.log_dirs` is the registry of logs; this module orders its blocking operations and knows nothing
about partitions.
"""

import asyncio
from collections.abc import Callable, Sequence
from functools import partial
from typing import Protocol

from broker.clock import Clock
from broker.logs import EventLog
from broker.metadata.image.partition import UNASSIGNED_DIRECTORY
from broker.runtime.loop.io_thread import BlockingIo
from protocol.primitives import Uuid
from storage.compaction.cleaner import LogCleaner
from storage.config import LogConfig
from storage.directories.checkpoints import TopicPartition
from storage.directories.log_dir import FoundLog, LogDir, NoLogDir
from storage.directories.log_dirs import LogDirs
from storage.directories.removals import PendingRemovals
from storage.errors import LogDirFailure
from storage.log import Log
from storage.remote_log_start import RemoteLogStart

_log = EventLog("broker.logs")

OnDirectoryFailure = Callable[[LogDir, Sequence[Log]], None]


class ThreadSafeLoop(Protocol):
    """A loop that takes callbacks from other threads."""

    def call_soon_threadsafe(self, callback: Callable[[], object], /) -> asyncio.Handle: ...


class DirectoryFailures:
    """Failures of log directories, forwarded from any thread to the listeners on the loop.

    Exists before any listener, since a directory may fail while it is opened; a new listener gets the earlier failures.
    """

    def __init__(self, loop: ThreadSafeLoop) -> None:
        self._loop = loop
        self._listeners: list[OnDirectoryFailure] = []
        self._reported: list[tuple[LogDir, Sequence[Log]]] = []

    def __call__(self, directory: LogDir, lost: Sequence[Log]) -> None:
        """Report a failure. Thread-safe; pass this object to `LogDirs.open`."""
        self._loop.call_soon_threadsafe(partial(self._report, directory, tuple(lost)))

    def listen(self, listener: OnDirectoryFailure) -> None:
        """Call `listener` for every failure, including earlier ones."""
        self._listeners.append(listener)
        for directory, lost in self._reported:
            listener(directory, lost)

    def _report(self, directory: LogDir, lost: Sequence[Log]) -> None:
        _log.error("a log directory failed and is offline", directory.failure, directory=directory.path)
        self._reported.append((directory, lost))
        for listener in self._listeners:
            listener(directory, lost)


class LogStore:
    """The logs of this node. `delete_delay_ms` is `log.segment.delete.delay.ms`."""

    def __init__(
        self,
        log_dirs: LogDirs,
        cleaner: LogCleaner,
        removals: PendingRemovals,
        io: BlockingIo,
        clock: Clock,
        *,
        delete_delay_ms: int,
    ) -> None:
        self._log_dirs = log_dirs
        self._cleaner = cleaner
        self._removals = removals
        self._io = io
        self._clock = clock
        self._delete_delay_ms = delete_delay_ms
        self._is_stopping = False
        self._being_removed: set[Log] = set()
        """Logs that the IO thread has yet to remove; a replica that returns before that gets a new log."""
        self._is_sync_queued = False
        """Whether a sync of removals is queued on the IO thread."""

    def discard_leftovers(self) -> None:
        """Remove the directories whose removal was pending when the node stopped."""
        for directory in self._log_dirs.online:
            for path in directory.stale:
                self._removals.add_directory(path, self._clock.monotonic_ms())

    def find(self, topic: str, index: int) -> Log | None:
        """Return the log if it exists, with the high watermark of its checkpoint."""
        log = self._log_dirs.get(TopicPartition(topic, index))
        return None if log is None or log in self._being_removed else log

    def choose_log(self, partition: TopicPartition, chosen: FoundLog | None, config: LogConfig) -> None:
        """Open the current log of several, and set the others aside. Blocks; call before any other use of logs."""
        for found in self._log_dirs.contested[partition]:
            if found is not chosen and found.directory.is_online:
                _log.warning(
                    "set aside an outdated log: another directory has the partition's current log", log=found.path
                )
                self._cleaner.forget(found.directory.path, partition)
        self._write_cleaner_checkpoints()
        self._log_dirs.settle(partition, chosen, config, now_ms=self._clock.now_ms())

    def may_create(self, directory_id: Uuid) -> bool:
        """Whether a missing log may be created.

        With a log directory offline, the log may be there, and a new one would lack records that this replica has
        acknowledged.
        """
        online = self._log_dirs.online
        if len(online) == len(self._log_dirs.directories) or directory_id == UNASSIGNED_DIRECTORY:
            return bool(online)
        return any(directory.id == directory_id for directory in online)

    def create(
        self, topic: str, index: int, topic_id: Uuid, config: LogConfig, directory_id: Uuid
    ) -> "asyncio.Future[Log]":
        """Create a log, in the directory with that id or in the best one; fails with LogDirFailure or NoLogDir."""
        return self._io.submit(partial(self._create, TopicPartition(topic, index), topic_id, config, directory_id))

    def stop_creating(self) -> None:
        """Drop pending creations: the node stops, and its next start requests them again."""
        self._is_stopping = True

    def _create(self, partition: TopicPartition, topic_id: Uuid, config: LogConfig, directory_id: Uuid) -> Log:
        """Create a log; runs on the IO thread."""
        if self._is_stopping:
            raise NoLogDir("the node is stopping")
        if partition in self._log_dirs.unsynced_removals:
            self._sync_removals()
        return self._log_dirs.create(
            partition, config, now_ms=self._clock.now_ms(), topic_id=topic_id, directory_id=directory_id
        )

    def delete(self, log: Log) -> None:
        """Take a log out of service; its files are removed after a delay."""
        self._take_out_of_service(log, self._log_dirs.delete).add_done_callback(self._on_deleted)

    def set_aside(self, log: Log) -> None:
        """Take a log out of service that the metadata does not assign to this broker, and keep its files."""
        _log.warning("set aside a log that is not assigned here", log=log.name)
        self._take_out_of_service(log, self._log_dirs.set_aside_as_stray).add_done_callback(_raise_unless_reported)

    def _take_out_of_service(
        self, log: Log, retire: Callable[[TopicPartition], str | None]
    ) -> "asyncio.Future[str | None]":
        self._being_removed.add(log)
        gone = self._io.submit(partial(self._retire, log, retire))
        gone.add_done_callback(partial(self._on_retired, log))
        return gone

    def _on_retired(self, log: Log, _done: "asyncio.Future[str | None]") -> None:
        """Sync the removal, together with all other removals that are queued by now."""
        self._being_removed.discard(log)
        if not self._is_sync_queued:
            self._is_sync_queued = True
            self._io.submit(self._sync_removals).add_done_callback(self._on_removals_synced)

    def _on_removals_synced(self, done: "asyncio.Future[None]") -> None:
        self._is_sync_queued = False
        _raise_unless_reported(done)

    def _sync_removals(self) -> None:
        """Make removals durable; runs on the IO thread. A few fsyncs serve any number of removed logs."""
        self._log_dirs.unsynced_removals.sync()
        self._write_cleaner_checkpoints()

    def _write_cleaner_checkpoints(self) -> None:
        try:
            self._cleaner.write_checkpoints()
        except LogDirFailure as failure:
            self._log_dirs.fail_log(failure)

    def truncate(self, log: Log, offset: int) -> "asyncio.Future[bool]":
        """Truncate a log; the result is whether there was anything to remove.

        The caller keeps all other users from the log until then. Fails with LogDirFailure.
        """
        return self._io.submit(
            partial(self._truncate, log, partial(log.truncate_to, offset, now_ms=self._clock.now_ms()))
        )

    def truncate_fully_and_start_at(self, log: Log, offset: int) -> "asyncio.Future[bool]":
        """Empty a log and restart it at `offset`. As `truncate`."""

        def restart() -> bool:
            log.truncate_fully_and_start_at(offset, now_ms=self._clock.now_ms())
            return True

        return self._io.submit(partial(self._truncate, log, restart))

    def start_behind_remote_log(self, log: Log, start: RemoteLogStart) -> "asyncio.Future[bool]":
        """Empty a log and restart it where remote storage ends. As `truncate`."""

        def begin() -> bool:
            log.start_behind_remote_log(
                start, now_ms=self._clock.now_ms(), checkpoint=self._log_dirs.checkpoints.write_log_start
            )
            return True

        return self._io.submit(partial(self._truncate, log, begin))

    def _truncate(self, log: Log, truncation: Callable[[], bool]) -> bool:
        """Truncate on the IO thread.

        Compaction must not restore removed segments, nor treat their successors as clean.
        """
        self._cleaner.abort(log)
        was_truncated = truncation()
        try:
            self._cleaner.on_truncated(log)
        except OSError as error:
            raise log.fail(error) from error
        return was_truncated

    def fail(self, failure: LogDirFailure) -> None:
        """Take the directory of a failure offline and report it (see DirectoryFailures). Idempotent."""
        self._log_dirs.fail_log(failure)

    def _retire(self, log: Log, retire: Callable[[TopicPartition], str | None]) -> str | None:
        """End the log's compaction, forget the log and rename its directory; runs on the IO thread."""
        try:
            self._cleaner.on_deleted(log)
        except OSError as error:
            raise log.fail(error) from error
        return retire(TopicPartition(log.topic, log.partition))

    def _on_deleted(self, done: "asyncio.Future[str | None]") -> None:
        _raise_unless_reported(done)
        if done.exception() is None and (path := done.result()) is not None:
            self._removals.add_directory(path, self._clock.monotonic_ms() + self._delete_delay_ms)


def _raise_unless_reported(done: "asyncio.Future[str | None] | asyncio.Future[None]") -> None:
    """Raise the error of a removal unless LogDirs has reported it already."""
    error = done.exception()
    if error is not None and not isinstance(error, LogDirFailure | NoLogDir):
        raise error
