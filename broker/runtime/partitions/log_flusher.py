"""Log flushes off the loop: at most one flush of a log at a time.

A flush covers all appends before its start. A request during a flush causes one more flush after it, shared by all
requests; many small appends thus share one fsync.
"""

import asyncio
from functools import partial

from broker.runtime.loop.io_thread import BlockingIo
from broker.runtime.loop.waiters import Deadlines
from broker.runtime.partitions.partition import Partition
from storage.errors import LogDirFailure


class LogFlusher:
    """Flushes the logs of partitions on the IO thread, and notifies each partition of the end."""

    def __init__(self, io: BlockingIo, deadlines: Deadlines) -> None:
        self._io = io
        self._deadlines = deadlines
        self._running: dict[Partition, asyncio.Future[int]] = {}
        self._asked_again: set[Partition] = set()

    def flush(self, partition: Partition) -> None:
        """Sync all appends so far, soon."""
        if partition in self._running:
            self._asked_again.add(partition)
        else:
            self._start(partition)

    def flush_within(self, partition: Partition, delay_ms: int) -> None:
        """Sync all appends so far after a delay."""
        self._deadlines.after_ms(delay_ms, partial(self.flush, partition))

    async def idle(self, partition: Partition) -> None:
        """Return when no flush of this log is under way."""
        while (flush := self._running.get(partition)) is not None:
            await asyncio.wait([flush])

    def _start(self, partition: Partition) -> None:
        flush = self._running[partition] = self._io.submit(partition.log.flush)
        flush.add_done_callback(partial(self._on_done, partition))

    def _on_done(self, partition: Partition, done: "asyncio.Future[int]") -> None:
        del self._running[partition]
        asked_again = partition in self._asked_again
        self._asked_again.discard(partition)
        error = done.exception()
        if isinstance(error, LogDirFailure):
            partition.offline(error)
            return
        if error is not None:
            raise error
        partition.on_flushed()
        if asked_again:
            self.flush(partition)
