"""Data plane of one broker with remote segments, for tests of remote reads.

Tests create segments (`roll`), copy them (`tier`) and delete them locally (`drop_local`). The threads that read from
remote storage are one queue, `pool`, which a test may hold.
"""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import count
from typing import TypeVar, cast

from broker.api.records.fetch import FetchHandler
from broker.api.records.list_offsets import ListOffsetsHandler
from broker.fetch.remote_reads.reads import RemoteReads, RemoteReadSettings
from broker.runtime.loop.thread_pool import PoolFull
from broker.runtime.remote_log.locations import Holes
from broker.runtime.remote_log.offsets import RemoteOffsets
from protocol.ids import BrokerId, LeaderEpoch
from protocol.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic, PartitionData, ReplicaState
from protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from protocol.primitives import ZERO_UUID, Uuid
from protocol.records.batch import iter_headers, patch
from protocol.records.control import ControlType, end_transaction_marker
from storage.config import LogConfig
from storage.log import Log
from storage.producer_state import Origin
from storage.tiered.cache.index_cache import IndexCache
from storage.tiered.remote_storage import IndexKind
from storage.tiered.segment_metadata import RemoteSegment, SegmentState, SegmentUpdate, TopicIdPartition
from storage.tiered.segments.reading import SegmentReader
from tests.support.fakes.inline_io import InlineIo
from tests.support.fakes.memory_remote_metadata import MakeFuture, MemoryRemoteMetadata
from tests.support.fakes.remote_files import RemoteFiles, announce
from tests.support.fakes.replica_copies import ScriptedReplicaCopies
from tests.support.harnesses.data_plane import Answer, DataPlane, batch

T = TypeVar("T")

TIERED = LogConfig(remote_storage_enable=True, message_timestamp_after_max_ms=2**63 - 1, index_interval_bytes=0)


class Pool(InlineIo):
    """A WorkPool. `room`: maximum number of waiting tasks, if bounded."""

    room: int | None = None

    def submit(self, work: Callable[[], T]) -> "asyncio.Future[T]":
        if self.room is not None and self.waiting >= self.room:
            raise PoolFull
        return super().submit(work)

    def run_one(self) -> None:
        """Run the oldest task."""
        self._jobs.popleft()()


class CountingMetadata(MemoryRemoteMetadata):
    """Records the offsets of segment look-ups."""

    def __init__(self, make_future: MakeFuture) -> None:
        super().__init__(make_future=make_future)
        self.looked_up: list[int] = []

    def segment_for(self, partition: TopicIdPartition, epoch: int, offset: int) -> RemoteSegment | None:
        self.looked_up.append(offset)
        return super().segment_for(partition, LeaderEpoch(epoch), offset)


class TieredPlane(DataPlane):
    """A broker that leads the only partition of tiered topic `t`, unless a test adds others."""

    def __init__(self) -> None:
        super().__init__()
        self.pool = Pool(self.loop)
        self.storage = RemoteFiles()
        self.remote_metadata = CountingMetadata(self.loop.create_future)
        self.cache = IndexCache(self.fs, "/cache/remote-log-index-cache", self.storage, 1_000_000)
        self.segment_reader = SegmentReader(self.storage, self.cache)
        self.read_settings = RemoteReadSettings()
        self.replicas = ScriptedReplicaCopies()
        self.reads = RemoteReads(
            self.segment_reader,
            self.remote_metadata,
            self.pool,
            cast(asyncio.AbstractEventLoop, self.loop),
            self.deadlines,
            self.clock,
            lambda: self.read_settings,
        )
        self.reads.use_replicas(self.replicas)
        self.list_offsets_timeout_ms = 30_000
        self.offsets = RemoteOffsets(
            self.segment_reader,
            self.remote_metadata,
            self.pool,
            cast(asyncio.AbstractEventLoop, self.loop),
            self.deadlines,
            lambda: self.list_offsets_timeout_ms,
            Holes(self.clock, lambda: self.read_settings.hole_patience_ms),
        )
        self.offsets.use_replicas(self.replicas)
        self.list_offsets = ListOffsetsHandler(self.partitions, remote=self.offsets)
        self._segment_ids = count(1)
        self.handler = self._handler(self.reads)

    def create_tiered_topic(self, name: str = "t", partitions: int = 1, *, replicas: Sequence[int] = (1,)) -> Uuid:
        identity = self.create_topic(name, partitions, replicas=replicas, config=TIERED)
        self.remote_metadata.assign([TopicIdPartition(identity, name, index) for index in range(partitions)], [])
        return identity

    # ---- the log

    def log(self, index: int = 0, topic: str = "t") -> Log:
        return self.partition(topic, index).log

    def fill(self, *segments: int, index: int = 0, topic: str = "t") -> None:
        """Append closed segments of one-record batches; a record's timestamp is 1000 times its offset."""
        for batches in segments:
            for _ in range(batches):
                offset = self.log(index, topic).log_end_offset
                self.partition(topic, index).append(batch(b"%d" % offset, timestamp=1000 * offset), 1)
            self.roll(index, topic)

    def transact(self, producer_id: int, sequence: int = 0) -> int:
        """Append a batch of an open transaction and return its offset."""
        data = batch(b"t", producer_id=producer_id, producer_epoch=0, sequence=sequence, transactional=True)
        return self.partition().append(data, 1).first_offset

    def end_transaction(self, producer_id: int, *, commits: bool = False) -> None:
        marker = end_transaction_marker(ControlType.COMMIT if commits else ControlType.ABORT, producer_id, 0, 0, 0)
        self.partition().append(bytearray(marker), 1, Origin.COORDINATOR)

    def roll(self, index: int = 0, topic: str = "t") -> None:
        self.log(index, topic).roll(self.clock.now_ms())

    def tier(self, index: int = 0, topic: str = "t", *, below: int | None = None) -> list[RemoteSegment]:
        """Copy the closed segments that begin below an offset; all without one."""
        log, topic_id = self.log(index, topic), self.partition(topic, index).topic_id
        copied = [
            self.storage.upload(self.fs, log, next(self._segment_ids), segment, topic_id)
            for segment in log.segments
            if segment is not log.active_segment and (below is None or segment.base_offset < below)
        ]
        announce(self.remote_metadata.log, *copied)
        return copied

    def drop_local(self, below: int, index: int = 0, topic: str = "t") -> None:
        """Delete local segments that end below an offset."""
        log = self.log(index, topic)
        gone = [s for s in log.segments if s is not log.active_segment and log.segments.end_of(s, 0) <= below]
        for segment in log.detach_segments(gone):
            segment.remove_files()

    def make_remote(self, *segments: int, index: int = 0, topic: str = "t") -> list[RemoteSegment]:
        """Create a log whose closed segments are in remote storage only."""
        self.fill(*segments, index=index, topic=topic)
        copied = self.tier(index, topic)
        self.drop_local(self.log(index, topic).log_end_offset, index, topic)
        return copied

    def foreign_batch(self, offset: int, epoch: int) -> bytearray:
        """Return a batch of another leader."""
        data = batch(b"foreign")
        patch(data, 0, offset, LeaderEpoch(epoch))
        return data

    def announce(self, *segments: RemoteSegment) -> None:
        """Record stored segments in the remote metadata."""
        announce(self.remote_metadata.log, *segments)

    def forget(self, segment: RemoteSegment) -> None:
        """Remove a segment from the remote metadata."""
        cache = self.remote_metadata.log.cache(segment.id.partition)
        for state in (SegmentState.DELETE_STARTED, SegmentState.DELETE_FINISHED):
            cache.update(SegmentUpdate(segment.id, state, 0, BrokerId(1)))

    def replace_remote(self, segment: RemoteSegment, log: bytes) -> None:
        """Replace a segment's bytes, with matching metadata and an empty index, as compaction does."""
        self.forget(segment)
        compacted = replace(segment, size_bytes=len(log))
        self.storage.logs[segment.id.id] = log
        self.storage.indexes[segment.id.id, IndexKind.OFFSET] = b""
        self.announce(compacted)

    def overstate_times(self, segment: RemoteSegment, timestamp: int) -> None:
        """Set a timestamp in the metadata above all timestamps in the segment."""
        self.forget(segment)
        self.announce(replace(segment, max_timestamp_ms=timestamp))

    def forgo_remote_storage(self) -> None:
        """Disable remote storage, as on a broker without it."""
        self.handler = self._handler(None)

    def _handler(self, remote: RemoteReads | None) -> FetchHandler:
        return self.fetch_handler(remote_reads=remote)

    # ---- readers

    def fetch(
        self,
        *positions: FetchPartition,
        topic: str = "t",
        identity: Uuid = ZERO_UUID,
        version: int = 12,
        max_wait_ms: int = 500,
        min_bytes: int = 1,
        max_bytes: int = 1_000_000,
        committed: bool = False,
        session: tuple[int, int] = (0, -1),
        replica: int = -1,
    ) -> Answer[FetchResponse]:
        request = FetchRequest(
            replica_id=replica if version < 15 else -1,
            replica_state=ReplicaState(replica, 1 if replica >= 0 else -1),
            max_wait_ms=max_wait_ms,
            min_bytes=min_bytes,
            max_bytes=max_bytes,
            isolation_level=int(committed),
            session_id=session[0],
            session_epoch=session[1],
            topics=[FetchTopic(topic, identity, list(positions))] if positions else [],
        )
        answer = Answer(self.handler(request, self.context(version)))
        self.loop.run_soon()
        return answer

    def ask_offsets(
        self,
        *asked: ListOffsetsPartition,
        topic: str = "t",
        version: int = 11,
        committed: bool = False,
        replica: int = -1,
        timeout_ms: int = 0,
    ) -> Answer[ListOffsetsResponse]:
        request = ListOffsetsRequest(replica, int(committed), [ListOffsetsTopic(topic, list(asked))], timeout_ms)
        answer = Answer(self.list_offsets(request, self.context(version)))
        self.loop.run_soon()
        return answer

    def settle(self, milliseconds: int = 10) -> None:
        """Run all ready tasks and timers of the loop."""
        self.advance_ms(milliseconds)


def at(offset: int, index: int = 0, *, max_bytes: int = 100_000) -> FetchPartition:
    return FetchPartition(index, -1, offset, -1, 0, max_bytes)


def entries(answer: Answer[FetchResponse]) -> list[PartitionData]:
    return [entry for topic in answer.value.responses for entry in topic.partitions]


def only(answer: Answer[FetchResponse]) -> PartitionData:
    (entry,) = entries(answer)
    return entry


def offsets(entry: PartitionData) -> list[int]:
    """Return the base offsets of the batches."""
    assert entry.error_code == 0, entry.error_code
    return [header.base_offset for _, header in iter_headers(entry.records or b"")]
