"""Reads from remote storage on real threads and a real loop (`broker.fetch.remote_reads.reads`, `.remote_offsets`).

The rules are tested through the handlers of Fetch and ListOffsets.
"""

import asyncio
import threading
from collections.abc import Iterator

import pytest

from broker.clock import SystemClock
from broker.fetch.remote_reads.read import RemoteRead
from broker.fetch.remote_reads.reads import RemoteReads, RemoteReadSettings
from broker.runtime.loop.thread_pool import ThreadPool
from broker.runtime.loop.waiters import Deadlines, Watch
from broker.runtime.partitions.offset_lookup import OffsetQuery
from broker.runtime.partitions.partition_reads import FetchParams
from broker.runtime.partitions.reads import FetchIsolation, FetchTarget
from broker.runtime.remote_log.locations import NEVER, Holes
from broker.runtime.remote_log.offsets import RemoteOffsets
from protocol.errors import ErrorCode, KafkaError
from protocol.ids import LeaderEpoch
from protocol.primitives import ZERO_UUID
from protocol.records.batch import iter_headers
from storage.tiered.cache.index_cache import IndexCache
from storage.tiered.segment_metadata import RemoteSegment
from storage.tiered.segments.reading import SegmentReader
from tests.support.fakes.remote_files import RemoteFiles
from tests.support.harnesses.tiered_plane import TieredPlane

CONSUMER = FetchParams(FetchIsolation.HIGH_WATERMARK, needs_leader=True)


class GatedFiles(RemoteFiles):
    """Remote files whose reads wait for a gate and record their threads."""

    def __init__(self, files: RemoteFiles) -> None:
        super().__init__(files.logs, files.indexes)
        self.gate = threading.Event()
        self.threads: set[str] = set()
        self.both = asyncio.Event()
        self._loop = asyncio.get_running_loop()

    def read_segment(self, segment: RemoteSegment, first: int, last: int | None = None) -> Iterator[memoryview]:
        self.threads.add(threading.current_thread().name)
        if len(self.threads) == 2:
            self._loop.call_soon_threadsafe(self.both.set)
        assert self.gate.wait(20)
        return super().read_segment(segment, first, last)


class RemoteReadsHarness:
    """A tiered partition whose remote segments two threads read for the running loop."""

    def __init__(self) -> None:
        self.plane = TieredPlane()
        self.plane.create_tiered_topic()
        self.plane.make_remote(*[3] * 20)
        self.files = GatedFiles(self.plane.storage)
        loop = asyncio.get_running_loop()
        self.deadlines = Deadlines(loop)
        self.pool = ThreadPool(2, 10, "remote-log-reader")
        cache = IndexCache(self.plane.fs, "/other-cache", self.files, 1_000_000)
        reader, metadata = SegmentReader(self.files, cache), self.plane.remote_metadata
        self.reads = RemoteReads(
            reader, metadata, self.pool, loop, self.deadlines, SystemClock(), lambda: RemoteReadSettings(reads_max=12)
        )
        holes = Holes(SystemClock(), lambda: NEVER)
        self.offsets = RemoteOffsets(reader, metadata, self.pool, loop, self.deadlines, lambda: 20_000, holes)

    def begin(self, offset: int) -> RemoteRead:
        target = FetchTarget("t", ZERO_UUID, 0, offset, 1000)
        read = self.reads.find_or_begin(self.plane.partition(), target, CONSUMER)
        assert read is not None
        return read

    async def done(self, read: RemoteRead) -> list[int]:
        """Return the base offsets of the records of a finished read."""
        if not read.is_done:
            fired = asyncio.Event()
            Watch(read.bounds, fired.set).arm()
            await asyncio.wait_for(fired.wait(), 20)
        return [header.base_offset for _, header in iter_headers(read.records(1000, min_one=True))]

    async def close(self) -> None:
        self.files.gate.set()
        self.reads.close()
        await self.pool.stop()
        self.deadlines.close()


async def test_reads_run_in_parallel_without_blocking_the_loop() -> None:
    harness = RemoteReadsHarness()
    reads = [harness.begin(offset) for offset in (0, 3, 30)]
    await asyncio.wait_for(harness.files.both.wait(), 20)
    assert not any(read.is_done for read in reads)
    harness.files.gate.set()
    assert [await harness.done(read) for read in reads] == [[0, 1, 2], [3, 4, 5], [30, 31, 32]]
    await harness.close()


async def test_timestamp_lookups_use_the_reader_threads() -> None:
    harness = RemoteReadsHarness()
    harness.files.gate.set()
    query = OffsetQuery(31_500, LeaderEpoch(-1), FetchIsolation.HIGH_WATERMARK)
    answer = harness.offsets.list_offset(harness.plane.partition(), query, 0)
    assert isinstance(answer, asyncio.Future)
    assert tuple(await answer) == (32_000, 32, 0)
    assert all(name.startswith("remote-log-reader") for name in harness.files.threads)
    await harness.close()


async def test_timestamp_lookup_times_out() -> None:
    harness = RemoteReadsHarness()
    query = OffsetQuery(31_500, LeaderEpoch(-1), FetchIsolation.HIGH_WATERMARK)
    answer = harness.offsets.list_offset(harness.plane.partition(), query, 1)
    assert isinstance(answer, asyncio.Future)
    with pytest.raises(KafkaError) as raised:
        await answer
    assert raised.value.code is ErrorCode.REQUEST_TIMED_OUT
    await harness.close()
