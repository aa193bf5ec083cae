"""The logs that hosted partitions are made of: found, created and taken away without making the loop wait for a disk.

Joins the log directories with the IO thread, the cleaner and the queue of files to be removed. The registry of logs is
`storage.directories.log_dirs`'; this file knows in which order its blocking parts run, and nothing about partitions.
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
from storage.tier_start import TierStart

_log = EventLog("broker.logs")

OnDirectoryFailure = Callable[[LogDir, Sequence[Log]], None]


class ThreadSafeLoop(Protocol):
    """A loop that other threads may hand work to."""

    def call_soon_threadsafe(self, callback: Callable[[], object], /) -> asyncio.Handle: ...


class DirectoryFailures:
    """What `LogDirs` tells of failed directories, on whatever thread, brought to the loop and to whoever listens.

    Exists before anybody can listen, since a directory may fail while it is opened: what was missed is told later.
    """

    def __init__(self, loop: ThreadSafeLoop) -> None:
        self._loop = loop
        self._listeners: list[OnDirectoryFailure] = []
        self._told: list[tuple[LogDir, Sequence[Log]]] = []

    def __call__(self, directory: LogDir, lost: Sequence[Log]) -> None:
        """Thread-safe; hand it to `LogDirs.open`."""
        self._loop.call_soon_threadsafe(partial(self._tell, directory, tuple(lost)))

    def listen(self, listener: OnDirectoryFailure) -> None:
        """Tell `listener` of every failure, of those in the past too."""
        self._listeners.append(listener)
        for directory, lost in self._told:
            listener(directory, lost)

    def _tell(self, directory: LogDir, lost: Sequence[Log]) -> None:
        _log.error("a log directory failed and is offline", directory.failure, directory=directory.path)
        self._told.append((directory, lost))
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
        self._leaving: set[Log] = set()
        """Logs that the IO thread has yet to take away. A replica that comes back before that begins anew."""

    def discard_leftovers(self) -> None:
        """Have the directories removed that were on their way out when the node stopped."""
        for directory in self._log_dirs.online:
            for path in directory.stale:
                self._removals.add_directory(path, self._clock.now_ms())

    def find(self, topic: str, index: int) -> Log | None:
        """The log, if it is there, with the high watermark of its checkpoint."""
        log = self._log_dirs.get(TopicPartition(topic, index))
        return None if log is None or log in self._leaving else log

    def settle(self, partition: TopicPartition, chosen: FoundLog | None, config: LogConfig) -> None:
        """Open the log that counts of several found, and keep the others aside. Blocks; before anything else is done
        with logs."""
        for found in self._log_dirs.contested[partition]:
            if found is not chosen and found.directory.is_online:
                _log.warning("set aside a log that another one has replaced", log=found.path)
                self._cleaner.forget(found.directory.path, partition)
        self._log_dirs.settle(partition, chosen, config, now_ms=self._clock.now_ms())

    def may_create(self, directory_id: Uuid) -> bool:
        """Whether a log that is not here can be new. With a directory offline it may be there, and then another one
        would forget what this replica has acknowledged."""
        online = self._log_dirs.online
        if len(online) == len(self._log_dirs.directories) or directory_id == UNASSIGNED_DIRECTORY:
            return bool(online)
        return any(directory.id == directory_id for directory in online)

    def create(
        self, topic: str, index: int, topic_id: Uuid, config: LogConfig, directory_id: Uuid
    ) -> "asyncio.Future[Log]":
        """A new log, in the directory with that id or in the best one; fails with LogDirFailure or NoLogDir."""
        return self._io.submit(partial(self._create, TopicPartition(topic, index), topic_id, config, directory_id))

    def stop_creating(self) -> None:
        """Begin no creation that still waits for its turn: the node stops, and its next start asks for them again."""
        self._is_stopping = True

    def _create(self, partition: TopicPartition, topic_id: Uuid, config: LogConfig, directory_id: Uuid) -> Log:
        """On the IO thread."""
        if self._is_stopping:
            raise NoLogDir("The node is stopping.")
        return self._log_dirs.create(
            partition, config, now_ms=self._clock.now_ms(), topic_id=topic_id, directory_id=directory_id
        )

    def delete(self, log: Log) -> None:
        """Take a log out of service; its files go in a while."""
        self._take_away(log, self._log_dirs.delete).add_done_callback(self._on_deleted)

    def set_aside(self, log: Log) -> None:
        """Take a log out of service that the metadata does not know, and keep its files."""
        _log.warning("set aside a log that is not assigned here", log=log.name)
        self._take_away(log, self._log_dirs.set_aside_as_stray).add_done_callback(_raise_unless_told)

    def _take_away(self, log: Log, retire: Callable[[TopicPartition], str | None]) -> "asyncio.Future[str | None]":
        self._leaving.add(log)
        gone = self._io.submit(partial(self._retire, log, retire))
        gone.add_done_callback(lambda _: self._leaving.discard(log))
        return gone

    def truncate(self, log: Log, offset: int) -> "asyncio.Future[bool]":
        """Cut a log; the result says whether there was anything to cut. The caller keeps everybody else from the log
        until then. Fails with LogDirFailure."""
        return self._io.submit(partial(self._cut, log, partial(log.truncate_to, offset, now_ms=self._clock.now_ms())))

    def truncate_fully_and_start_at(self, log: Log, offset: int) -> "asyncio.Future[bool]":
        """Empty a log, which goes on from `offset`. As `truncate`."""

        def restart() -> bool:
            log.truncate_fully_and_start_at(offset, now_ms=self._clock.now_ms())
            return True

        return self._io.submit(partial(self._cut, log, restart))

    def start_from_tier(self, log: Log, start: TierStart) -> "asyncio.Future[bool]":
        """Empty a log, which goes on where remote storage ends. As `truncate`."""

        def begin() -> bool:
            log.start_from_tier(
                start, now_ms=self._clock.now_ms(), checkpoint=self._log_dirs.checkpoints.write_log_start
            )
            return True

        return self._io.submit(partial(self._cut, log, begin))

    def _cut(self, log: Log, cut: Callable[[], bool]) -> bool:
        """On the IO thread. Compaction must not put back what is cut, nor take for clean what comes in its place."""
        self._cleaner.abort(log)
        was_cut = cut()
        try:
            self._cleaner.on_truncated(log)
        except OSError as error:
            raise log.fail(error) from error
        return was_cut

    def fail(self, failure: LogDirFailure) -> None:
        """Take the directory offline in which this happened, and tell (see DirectoryFailures). Once."""
        self._log_dirs.fail_log(failure)

    def _retire(self, log: Log, retire: Callable[[TopicPartition], str | None]) -> str | None:
        """On the IO thread: end its compaction, forget it, rename its directory."""
        try:
            self._cleaner.on_deleted(log)
        except OSError as error:
            raise log.fail(error) from error
        return retire(TopicPartition(log.topic, log.partition))

    def _on_deleted(self, done: "asyncio.Future[str | None]") -> None:
        _raise_unless_told(done)
        if done.exception() is None and (path := done.result()) is not None:
            self._removals.add_directory(path, self._clock.now_ms() + self._delete_delay_ms)


def _raise_unless_told(done: "asyncio.Future[str | None]") -> None:
    """A failed disk has been told by LogDirs already; anything else is a fault of ours."""
    error = done.exception()
    if error is not None and not isinstance(error, LogDirFailure | NoLogDir):
        raise error
