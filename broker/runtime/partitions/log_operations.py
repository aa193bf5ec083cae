"""The blocking operations on the logs of hosted partitions: flushes by the flusher, truncations by the log store."""

import asyncio

from broker.runtime.loop.waiters import Loop
from broker.runtime.partitions.log_flusher import LogFlusher
from broker.runtime.partitions.log_store import LogStore
from broker.runtime.partitions.partition import Partition
from storage.errors import LogDirFailure
from storage.log import Log
from storage.remote_log_start import RemoteLogStart


class StoredLogOperations:
    """Implements LogOperations."""

    def __init__(self, store: LogStore, flusher: LogFlusher, loop: Loop) -> None:
        self._store = store
        self._flusher = flusher
        self._loop = loop

    def create_future(self) -> "asyncio.Future[bool]":
        return self._loop.create_future()

    def flush(self, partition: Partition) -> None:
        self._flusher.flush(partition)

    def flush_within(self, partition: Partition, delay_ms: int) -> None:
        self._flusher.flush_within(partition, delay_ms)

    def truncate(self, log: Log, offset: int) -> "asyncio.Future[bool]":
        return self._store.truncate(log, offset)

    def truncate_fully_and_start_at(self, log: Log, offset: int) -> "asyncio.Future[bool]":
        return self._store.truncate_fully_and_start_at(log, offset)

    def start_behind_remote_log(self, log: Log, start: RemoteLogStart) -> "asyncio.Future[bool]":
        return self._store.start_behind_remote_log(log, start)

    def on_log_dir_failure(self, failure: LogDirFailure) -> None:
        self._store.fail(failure)
