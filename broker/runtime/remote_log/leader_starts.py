"""Finds out where a log goes on that is empty here, before its replica leads: perhaps behind what is in remote storage.

A topic that was recovered from the bucket begins so, and one whose last replica lost its disk and was elected all the
same. `Partition` holds such a leader back (`awaits_log_start`); this is who lets it go on:

    what is remote is known here -> where the log goes on is read from the store -> the log begins there -> it leads

Whatever fails is tried again, for as long as the replica is to lead: nobody may write at an offset that consumers have
read already. What the answer is, `tiered/lifecycle/leader_start.py` decides. Logs with records, topics without remote
storage and leaders of the first epoch are never looked at.
"""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial

from broker.logs import EventLog
from broker.runtime.loop.round_robin import RoundRobinScheduler
from broker.runtime.loop.thread_pool import WorkPool
from broker.runtime.partitions.partition import Partition
from broker.runtime.remote_log.segments import PASSING_ERRORS
from broker.runtime.remote_log.settings import RemoteLogSettings
from protocol.errors import KafkaError
from storage.tier_start import TierStart
from storage.tiered.bucket.inventory import IndexReader, LatestHistory
from storage.tiered.errors import RemoteMetadataNotReady, RemoteStorageError
from storage.tiered.format.log_start_object import LogStart
from storage.tiered.lifecycle.leader_start import EmptyStart, LeaderStart, history_of, is_ahead, leader_start
from storage.tiered.remote_metadata import RemoteLogMetadataManager
from storage.tiered.segment_metadata import RemoteSegment, TopicIdPartition
from storage.tiered.stores.backoff import Failures

ReadLogStart = Callable[[TopicIdPartition], LogStart | None]
"""What was kept of a log's start beside its segments. Blocks, and may raise anything."""

_log = EventLog("broker.remote")


class LeaderStarts:
    """A LogStartFinder. `run` gives the turns, as a task of whoever owns this; what blocks does so on `pool`.

    It is for others to assign the partitions to `metadata`.
    """

    def __init__(
        self,
        metadata: RemoteLogMetadataManager,
        indexes: IndexReader,
        read_log_start: ReadLogStart,
        pool: WorkPool,
        loop: asyncio.AbstractEventLoop,
        settings: Callable[[], RemoteLogSettings],
        random: Callable[[], float],
    ) -> None:
        self.metadata = metadata
        self.settings = settings
        self.random = random
        self._indexes = indexes
        self._read_log_start = read_log_start
        self._pool = pool
        self._scheduler = RoundRobinScheduler(loop, lambda: settings().expiration_threads)
        self._seeking: dict[Partition, LogStartLookup] = {}

    @property
    def under_way(self) -> int:
        """Partitions that are held back."""
        return len(self._seeking)

    async def run(self) -> None:
        """Until cancelled."""
        await self._scheduler.run()

    def find_log_start(self, partition: Partition) -> None:
        """See LogStartFinder."""
        seeking = self._seeking.get(partition)
        if seeking is None:
            seeking = self._seeking[partition] = LogStartLookup(partition, self)
        self._scheduler.schedule(seeking)

    def call(self, seeking: "LogStartLookup") -> None:
        """What it waited for has come."""
        self._scheduler.schedule(seeking)

    def end(self, partition: Partition) -> None:
        """It leads, or need not any more."""
        self._seeking.pop(partition, None)

    async def find(self, partition: TopicIdPartition) -> LeaderStart:
        """Raises RemoteStorageError and its kinds, RemoteMetadataNotReady, PoolFull."""
        while True:
            newest = self.metadata.known(partition).newest()
            latest, log_start = await self._pool.submit(partial(self._read, partition, newest))
            known = self.metadata.known(partition)
            if known.newest() == newest:  # or else a leader that is none any more has copied until now
                return leader_start(known, latest, log_start)

    def _read(
        self, partition: TopicIdPartition, newest: Sequence[RemoteSegment]
    ) -> tuple[LatestHistory, LogStart | None]:
        """On the pool, where whatever a foreign implementation raises becomes an error of remote storage."""
        try:
            return history_of(partition, newest, self._indexes), self._read_log_start(partition)
        except RemoteStorageError:
            raise
        except Exception as error:
            raise RemoteStorageError(f"it cannot be told where {partition} goes on: {error!r}") from error


class LogStartLookup:
    """The turns of one partition, from when it is held back until it leads, or another broker does."""

    def __init__(self, partition: Partition, starts: LeaderStarts) -> None:
        self._partition = partition
        self._id = TopicIdPartition(partition.topic_id, partition.topic, partition.index)
        self._starts = starts
        self._failures = Failures()
        self._ready: asyncio.Future[None] | None = None

    async def run_once(self) -> float | None:
        """See RecurringTask."""
        partition, settings = self._partition, self._starts.settings()
        try:
            if partition.awaits_log_start:
                await self._begin(partition.leader_epoch)
        except RemoteMetadataNotReady:
            self._call_when_ready()
            return float(settings.task_interval_ms)
        except PASSING_ERRORS as error:
            _log.warning("nobody leads, for it is not known where the log goes on", partition=self, reason=error)
            return self._failures.next_delay_ms(settings.backoff, self._starts.random)
        except KafkaError as error:  # the disk failed, and takes the partition along
            _log.warning("the log could not be begun", partition=self, reason=error)
        if partition.awaits_log_start:  # another epoch has come meanwhile
            return float(settings.backoff.initial_ms)
        self._starts.end(partition)
        return None

    def __str__(self) -> str:
        return str(self._id)

    def _call_when_ready(self) -> None:
        if self._ready is None or self._ready.done():
            self._ready = asyncio.ensure_future(self._starts.metadata.wait_until_ready(self._id))
            self._ready.add_done_callback(lambda _: self._starts.call(self))

    async def _begin(self, leader_epoch: int) -> None:
        """Raises PASSING_ERRORS, KafkaError."""
        partition, log = self._partition, self._partition.log
        if log.is_tiered:  # or else what was remote of it has been given up
            start = await self._starts.find(self._id)
            if partition.leader_epoch != leader_epoch or not partition.awaits_log_start:
                return
            if start is not None and is_ahead(start, log.log_end_offset, log.epochs.latest_epoch):
                if not await self._cut(leader_epoch, start):
                    return
                _log.info(
                    "the log goes on where remote storage ends",
                    partition=self,
                    log_start=log.log_start_offset,
                    end=log.log_end_offset,
                    leader_epoch=leader_epoch,
                )
        partition.become_leader(leader_epoch)

    async def _cut(self, leader_epoch: int, start: TierStart | EmptyStart) -> bool:
        """Whether the log begins there, and this is still what is asked for."""
        partition = self._partition
        if isinstance(start, EmptyStart):
            return await partition.follower.truncate_fully_and_start_at(leader_epoch, start.offset)
        known_start = max(start.log_start_offset, partition.log.log_start_offset)
        return await partition.follower.start_from_tier(leader_epoch, replace(start, log_start_offset=known_start))
