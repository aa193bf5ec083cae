"""Periodic tasks of a node's logs: checkpoints, retention, compaction, and expiration of idle producers.

Each task repeats some time after its last run ended and reads its settings anew each time. Blocking work runs on the IO
thread. Work on the loop yields after every slice of a millisecond; work over all partitions takes one at a time and
skips partitions that have left meanwhile.

An unexpected error of one task ends all tasks: a node without log maintenance must not look healthy.
"""

import asyncio
import math
from collections.abc import Awaitable, Callable, Iterator
from functools import partial

from broker.clock import Clock
from broker.logs import EventLog
from broker.runtime.loop.io_thread import BlockingIo
from broker.runtime.loop.throttle import Throttle
from broker.runtime.partitions.log_flusher import LogFlusher
from broker.runtime.partitions.partition import Partition
from broker.runtime.partitions.registry import Partitions
from protocol.lazy_dataclass import lazy_dataclass
from protocol.records.errors import MalformedRecords
from storage.compaction.cleaner import Cleaning, LogCleaner, LogToClean
from storage.compaction.compaction import SegmentSwap
from storage.directories.log_dirs import LogDirs
from storage.directories.removals import PendingRemovals
from storage.errors import CorruptBatch, LogDirFailure
from storage.log import Log
from storage.retention import delete_old_segments

SLICE_MS = 1.0
REMOVAL_INTERVAL_MS = 1_000

_log = EventLog("broker.logs")


@lazy_dataclass(frozen=True, slots=True)
class LogTaskSettings:
    """Kafka's keys and defaults. `initial_delay_ms` delays the first run of the same tasks as in Kafka."""

    initial_delay_ms: int = 30_000  # log.initial.task.delay.ms
    high_watermark_checkpoint_ms: int = 5_000  # replica.high.watermark.checkpoint.interval.ms
    recovery_point_checkpoint_ms: int = 60_000  # log.flush.offset.checkpoint.interval.ms
    log_start_checkpoint_ms: int = 60_000  # log.flush.start.offset.checkpoint.interval.ms
    retention_check_ms: int = 300_000  # log.retention.check.interval.ms
    cleaner_enable: bool = True  # log.cleaner.enable
    cleaner_backoff_ms: int = 15_000  # log.cleaner.backoff.ms
    cleaner_bytes_per_second: float = math.inf  # log.cleaner.io.max.bytes.per.second
    producer_expiration_check_ms: int = 600_000  # producer.id.expiration.check.interval.ms
    producer_expiration_ms: int = 86_400_000  # producer.id.expiration.ms


Job = Callable[[], Awaitable[None]]
Interval = Callable[[LogTaskSettings], int]


class Slices:
    """Yields to the loop after every slice of work."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._end_ms = clock.monotonic_ms() + SLICE_MS

    async def pause(self) -> None:
        """Yield if the slice is over."""
        if self._clock.monotonic_ms() >= self._end_ms:
            await asyncio.sleep(0)
            self._end_ms = self._clock.monotonic_ms() + SLICE_MS


class LogTasks:
    """The tasks. `run` runs all of them until it is cancelled."""

    def __init__(
        self,
        partitions: Partitions,
        log_dirs: LogDirs,
        cleaner: LogCleaner,
        removals: PendingRemovals,
        flusher: LogFlusher,
        io: BlockingIo,
        clock: Clock,
        settings: Callable[[], LogTaskSettings],
    ) -> None:
        self._partitions = partitions
        self._log_dirs = log_dirs
        self._cleaner = cleaner
        self._removals = removals
        self._flusher = flusher
        self._io = io
        self._clock = clock
        self._settings = settings
        self._compaction = Throttle(clock, lambda: settings().cleaner_bytes_per_second)

    async def run(self) -> None:
        """Run every task at its interval."""
        initial_ms = self._settings().initial_delay_ms
        async with asyncio.TaskGroup() as jobs:
            for work, first_ms, interval_ms in (
                (self.checkpoint_high_watermarks, None, lambda now: now.high_watermark_checkpoint_ms),
                (self.checkpoint_recovery_points, initial_ms, lambda now: now.recovery_point_checkpoint_ms),
                (self.checkpoint_log_starts, initial_ms, lambda now: now.log_start_checkpoint_ms),
                (self.apply_retention, initial_ms, lambda now: now.retention_check_ms),
                (self.remove_files, initial_ms, lambda _now: REMOVAL_INTERVAL_MS),
                (self.expire_producers, None, lambda now: now.producer_expiration_check_ms),
                *self._compaction_job(),
            ):
                jobs.create_task(self._repeat(work, first_ms, interval_ms))

    def _compaction_job(self) -> list[tuple[Job, int | None, Interval]]:
        return [(self.compact, None, lambda now: now.cleaner_backoff_ms)] if self._settings().cleaner_enable else []

    async def _repeat(self, work: Job, first_ms: int | None, interval_ms: Interval) -> None:
        """Repeat a task; the first run is after `first_ms`, or after one interval if None."""
        pause_ms = interval_ms(self._settings()) if first_ms is None else first_ms
        while True:
            await asyncio.sleep(pause_ms / 1000)
            await work()
            pause_ms = interval_ms(self._settings())

    # ---- checkpoints

    async def checkpoint_high_watermarks(self) -> None:
        await self._io.submit(self._log_dirs.checkpoints.write_high_watermarks)

    async def checkpoint_recovery_points(self) -> None:
        await self._io.submit(self._log_dirs.checkpoints.write_recovery_points)

    async def checkpoint_log_starts(self) -> None:
        await self._io.submit(self._log_dirs.checkpoints.write_log_starts)

    # ---- retention

    async def apply_retention(self) -> None:
        """Remove segments from the logs by retention."""
        slices = Slices(self._clock)
        for partition in self._in_service():
            await self._flusher.idle(partition)  # removing segments would wait for a running flush
            log = partition.log
            if log.is_tiered and not self._log_dirs.checkpoints.covers_log_start(log):
                await self._io.submit(self._log_dirs.checkpoints.write_log_starts)
            if not partition.is_truncating and not self._cleaner.is_in_progress(log):
                self._delete_old_segments(partition)
            await slices.pause()

    def _delete_old_segments(self, partition: Partition) -> None:
        log, now_ms = partition.log, self._clock.now_ms()
        start = log.log_start_offset
        try:
            for expired in delete_old_segments(log, now_ms):
                self._removals.add_segments(
                    expired.segments, self._clock.monotonic_ms() + log.config.file_delete_delay_ms
                )
                bases = ",".join(str(segment.base_offset) for segment in expired.segments)
                _log.info("deleted old segments", log=log.name, reason=expired.reason.value, bases=bases)
        except LogDirFailure as failure:
            partition.offline(failure)
            return
        if log.log_start_offset > start:
            partition.on_log_start_moved()

    async def remove_files(self) -> None:
        """Unlink the removed files whose delay is over."""
        due_ms, now_ms = self._removals.next_due_ms, self._clock.monotonic_ms()
        if due_ms is not None and due_ms <= now_ms:
            try:
                await self._io.submit(partial(self._removals.run_due, now_ms))
            except OSError as error:  # the next start removes it; a failing disk fails elsewhere too
                _log.warning("could not remove a file that is no longer needed", reason=str(error))

    # ---- producers

    async def expire_producers(self) -> None:
        """Expire idle producers."""
        slices, expiration_ms = Slices(self._clock), self._settings().producer_expiration_ms
        for partition in self._in_service():
            if not partition.truncation.is_under_way:
                partition.log.expire_producers(self._clock.now_ms(), expiration_ms)
            await slices.pause()

    def _in_service(self) -> Iterator[Partition]:
        """Iterate over all partitions; skip partitions that are no longer hosted."""
        for partition in list(self._partitions.all()):
            if self._partitions.is_in_service(partition):
                yield partition

    # ---- compaction

    async def compact(self) -> None:
        """Compact the logs that are dirty enough, the dirtiest first, one after another."""
        while (candidate := await self._next_candidate()) is not None:
            if self._may_change(candidate.log):
                await self._compact_log(candidate)

    async def _next_candidate(self) -> LogToClean | None:
        compacted = (partition for partition in self._partitions.all() if partition.log.config.is_compacted)
        logs = [partition.log for partition in compacted if not partition.truncation.is_under_way]
        if not logs:
            return None
        return await self._io.submit(partial(self._cleaner.next_candidate, logs, self._clock.now_ms()))

    def _may_change(self, log: Log) -> bool:
        """Whether compaction may change the log: its partition is still hosted here, and no truncation is under way."""
        topic = self._partitions.by_name.get(log.topic)
        partition = None if topic is None else topic.partitions.get(log.partition)
        return partition is not None and partition.log is log and not partition.truncation.is_under_way

    async def _compact_log(self, candidate: LogToClean) -> None:
        cleaning = self._cleaner.begin(candidate, self._clock.now_ms())
        try:
            await self._run_pass(cleaning)
        except LogDirFailure as failure:
            self._log_dirs.fail_log(failure)
            await self._io.submit(partial(self._cleaner.abort, cleaning.log))
        except OSError as error:
            self._log_dirs.fail_log(cleaning.log.fail(error))
            await self._io.submit(partial(self._cleaner.abort, cleaning.log))
        except (CorruptBatch, MalformedRecords) as error:
            _log.error("cannot compact a log; it is skipped until the broker restarts", error, log=cleaning.log.name)
            await self._io.submit(partial(self._cleaner.fail, cleaning))

    async def _run_pass(self, cleaning: Cleaning) -> None:
        """Clean in steps on the IO thread, with other work in between.

        The loop, which owns the log, exchanges the segments. Deletion or truncation of the log aborts the pass.
        """
        moved_bytes = 0
        while not cleaning.is_done:
            swap = await self._io.submit(cleaning.step)
            if not self._cleaner.is_in_progress(cleaning.log) or not self._may_change(cleaning.log):
                return
            if swap is not None:
                self._install(cleaning.log, swap)
            if pause_ms := self._compaction.pause_ms(cleaning.stats.bytes_moved - moved_bytes):
                await asyncio.sleep(pause_ms / 1000)
            moved_bytes = cleaning.stats.bytes_moved
        await self._io.submit(partial(self._cleaner.finish, cleaning))
        _log.info("compacted a log", log=cleaning.log.name, stats=cleaning.stats)

    def _install(self, log: Log, swap: SegmentSwap) -> None:
        replaced = log.replace_segments(swap.new, swap.old)
        self._removals.add_segments(replaced, self._clock.monotonic_ms() + log.config.file_delete_delay_ms)
