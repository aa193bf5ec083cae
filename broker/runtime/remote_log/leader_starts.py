"""The search for the log start of an empty log before its replica becomes leader (KIP-405).

The log may continue behind its remote segments: after a topic was recovered from the bucket, or when the last replica
lost its disk and was elected nevertheless. `Partition` keeps such a replica from leading (`awaits_log_start`); the
search lets it become leader:

    wait for remote metadata -> read the end of the remote log from the store -> start the local log there -> lead

The search retries every failure for as long as the replica is to lead: a leader must not append at offsets that
consumers have read already. `tiered/lifecycle/leader_start.py` decides the result. Logs with records, topics without
remote storage and leaders of the first epoch are not searched for.
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
from protocol.ids import LeaderEpoch
from storage.remote_log_start import RemoteLogStart
from storage.tiered.bucket.inventory import IndexReader, LatestHistory
from storage.tiered.errors import RemoteMetadataNotReady, RemoteStorageError
from storage.tiered.format.log_start_object import LogStart
from storage.tiered.lifecycle.leader_start import EmptyStart, LeaderStart, history_of, is_ahead, leader_start
from storage.tiered.remote_metadata import RemoteLogMetadataManager
from storage.tiered.segment_metadata import RemoteSegment, TopicIdPartition
from storage.tiered.stores.backoff import Failures

ReadLogStart = Callable[[TopicIdPartition], LogStart | None]
"""Reads the log start offset stored beside a partition's segments. Blocks, and may raise anything."""

_log = EventLog("broker.remote")


class LeaderStarts:
    """A LogStartFinder. The owner runs `run` as a task; blocking work runs on `pool`.

    The remote log manager assigns the partitions to `metadata`.
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
        self._lookups: dict[Partition, LogStartLookup] = {}

    async def run(self) -> None:
        """Run the look-ups until cancelled."""
        await self._scheduler.run()

    def find_log_start(self, partition: Partition) -> None:
        """See LogStartFinder."""
        lookup = self._lookups.get(partition)
        if lookup is None:
            lookup = self._lookups[partition] = LogStartLookup(partition, self)
        self._scheduler.schedule(lookup)

    def reschedule(self, lookup: "LogStartLookup") -> None:
        """Run a look-up now: the metadata that it waited for are ready."""
        self._scheduler.schedule(lookup)

    def end(self, partition: Partition) -> None:
        """End a look-up: the partition has become leader, or no longer needs a log start."""
        self._lookups.pop(partition, None)

    async def find(self, partition: TopicIdPartition) -> LeaderStart:
        """Return where the log continues. Raises RemoteStorageError and its kinds, RemoteMetadataNotReady, PoolFull."""
        while True:
            newest = self.metadata.known(partition).newest()
            latest, log_start = await self._pool.submit(partial(self._read, partition, newest))
            known = self.metadata.known(partition)
            if known.newest() == newest:  # otherwise a former leader has copied meanwhile
                return leader_start(known, latest, log_start)

    def _read(
        self, partition: TopicIdPartition, newest: Sequence[RemoteSegment]
    ) -> tuple[LatestHistory, LogStart | None]:
        """Read from the store; runs on the pool. Turns any error of a plug-in into a RemoteStorageError."""
        try:
            return history_of(partition, newest, self._indexes), self._read_log_start(partition)
        except RemoteStorageError:
            raise
        except Exception as error:
            raise RemoteStorageError(f"the end of the remote log of {partition} cannot be read: {error!r}") from error


class LogStartLookup:
    """The look-up for one partition, from its election until it leads or another broker does."""

    def __init__(self, partition: Partition, starts: LeaderStarts) -> None:
        self._partition = partition
        self._id = TopicIdPartition(partition.topic_id, partition.topic, partition.index)
        self._starts = starts
        self._failures = Failures()
        self._ready: asyncio.Future[None] | None = None

    async def run_once(self) -> float | None:
        """See RecurringTask: look the log start up and become leader."""
        partition, settings = self._partition, self._starts.settings()
        try:
            if partition.awaits_log_start:
                await self._begin(partition.leader_epoch)
        except RemoteMetadataNotReady:
            self._call_when_ready()
            return float(settings.task_interval_ms)
        except PASSING_ERRORS as error:
            _log.warning("leader waits: the end of its remote log is not known", partition=self, reason=error)
            return self._failures.next_delay_ms(settings.backoff, self._starts.random)
        except KafkaError as error:  # the log directory failed, and the partition with it
            _log.warning("the log could not be started", partition=self, reason=error)
        if partition.awaits_log_start:  # the leader epoch has changed meanwhile
            return float(settings.backoff.initial_ms)
        self._starts.end(partition)
        return None

    def __str__(self) -> str:
        return str(self._id)

    def _call_when_ready(self) -> None:
        if self._ready is None or self._ready.done():
            self._ready = asyncio.ensure_future(self._starts.metadata.wait_until_ready(self._id))
            self._ready.add_done_callback(lambda _: self._starts.reschedule(self))

    async def _begin(self, leader_epoch: LeaderEpoch) -> None:
        """Start the log and become leader. Raises PASSING_ERRORS, KafkaError."""
        partition, log = self._partition, self._partition.log
        if log.is_tiered:  # otherwise the remote log was given up
            start = await self._starts.find(self._id)
            if partition.leader_epoch != leader_epoch or not partition.awaits_log_start:
                return
            if start is not None and is_ahead(start, log.log_end_offset, log.epochs.latest_epoch):
                if not await self._start_log(leader_epoch, start):
                    return
                _log.info(
                    "the log continues where remote storage ends",
                    partition=self,
                    log_start=log.log_start_offset,
                    end=log.log_end_offset,
                    leader_epoch=leader_epoch,
                )
        partition.become_leader(leader_epoch)

    async def _start_log(self, leader_epoch: LeaderEpoch, start: RemoteLogStart | EmptyStart) -> bool:
        """Start the log at `start`; return whether the replica is still to lead in this epoch."""
        partition = self._partition
        if isinstance(start, EmptyStart):
            return await partition.follower.truncate_fully_and_start_at(leader_epoch, start.offset)
        known_start = max(start.log_start_offset, partition.log.log_start_offset)
        return await partition.follower.start_behind_remote_log(
            leader_epoch, replace(start, log_start_offset=known_start)
        )
