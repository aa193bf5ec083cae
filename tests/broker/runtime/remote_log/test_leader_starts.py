"""Leaders with an empty log: they lead once the end of the remote log is known."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from itertools import count
from typing import Any

import pytest

from broker.runtime.partitions.partition_reads import FetchLimits, FetchParams, read
from broker.runtime.partitions.reads import FetchIsolation, FetchTarget
from broker.runtime.remote_log.leader_starts import LeaderStarts
from broker.runtime.remote_log.settings import RemoteLogSettings
from protocol.errors import ErrorCode, KafkaError
from protocol.ids import BrokerId, LeaderEpoch
from protocol.primitives import Uuid
from storage.config import LogConfig
from storage.tiered.catalog.lineage import encode_epochs
from storage.tiered.errors import RetriableRemoteStorageError, StoreUnavailable
from storage.tiered.format.log_start_object import LogStart
from storage.tiered.remote_storage import IndexKind
from storage.tiered.segment_metadata import RemoteSegment, TopicIdPartition
from tests.support.fakes.fast_forward_loop import run_fast
from tests.support.fakes.manual_loop import ManualLoop
from tests.support.fakes.memory_remote_metadata import MemoryRemoteMetadata
from tests.support.fakes.remote_files import RemoteFiles, announce
from tests.support.fakes.shared_remote_storage import DelayedPool
from tests.support.harnesses.data_plane import DataPlane, batch

TIERED = LogConfig(remote_storage_enable=True, message_timestamp_after_max_ms=2**63 - 1)
CONSUMER = FetchParams(FetchIsolation.HIGH_WATERMARK, needs_leader=False)
OTHER = 2


class AwaitableLoop(ManualLoop):
    """A manual loop whose futures tasks of the running loop may await."""

    def create_future(self) -> asyncio.Future[Any]:
        return asyncio.get_running_loop().create_future()


class Harness(DataPlane):
    """Broker 1 with remote storage that another broker filled before."""

    def __init__(self) -> None:
        super().__init__(loop=AwaitableLoop())
        self.storage = RemoteFiles()
        self.remote = MemoryRemoteMetadata()
        self.kept: LogStart | None = None
        self.kept_failures: list[Exception] = []
        self.starts = LeaderStarts(
            self.remote,
            self.storage,
            self._read_log_start,
            DelayedPool(lambda: 0.01),
            asyncio.get_running_loop(),
            RemoteLogSettings,
            lambda: 0.5,
        )
        self.partitions.roles.use_remote_storage(self.starts)
        self.register_broker(OTHER)

    def _read_log_start(self, _partition: TopicIdPartition) -> LogStart | None:
        if self.kept_failures:
            raise self.kept_failures.pop()
        return self.kept

    async def host(self, *, leader: int, config: LogConfig = TIERED) -> Uuid:
        """Create a topic of two replicas without a former leader."""
        identity = self.create_topic(replicas=(1, OTHER), leader=leader, config=config)
        self.remote.assign([TopicIdPartition(identity, "t", 0)], [])
        await self.settle(0.02)
        return identity

    async def lose(self, *, config: LogConfig = TIERED) -> Uuid:
        """Create a topic that another broker led, with an empty local log."""
        return await self.host(leader=OTHER, config=config)

    def fill(self, identity: Uuid, *segments: int) -> list[RemoteSegment]:
        """Add remote segments of the other broker, with the given numbers of records."""
        writer = DataPlane()
        writer.create_topic(config=TIERED)
        log, ids = writer.partition().log, count(1)
        for size in segments:
            for _ in range(size):
                writer.partition().append(batch(b"v"), 1)
            log.roll(0)
        closed = [segment for segment in log.segments if segment is not log.active_segment]
        copied = [self.storage.upload(writer.fs, log, next(ids), segment, identity) for segment in closed]
        for segment in copied:
            self.storage.indexes[segment.id.id, IndexKind.LEADER_EPOCH] = encode_epochs(log.epochs.entries)
        announce(self.remote.log, *copied)
        return copied

    async def settle(self, seconds: float = 1.0) -> None:
        deadline = asyncio.get_running_loop().time() + seconds
        while asyncio.get_running_loop().time() < deadline:
            await asyncio.sleep(0.01)
            self.loop.run_soon()

    @property
    def bounds(self) -> tuple[int, int, int]:
        log = self.partition().log
        return log.log_start_offset, log.local_log_start_offset, log.log_end_offset


def with_harness(test: Callable[[Harness], Awaitable[None]]) -> None:
    async def run() -> None:
        harness = Harness()
        running = asyncio.ensure_future(harness.starts.run())
        try:
            await test(harness)
        finally:
            running.cancel()

    run_fast(run())


def test_leader_with_a_lost_disk_continues_behind_the_remote_log() -> None:
    async def test(harness: Harness) -> None:
        identity = await harness.lose()
        harness.fill(identity, 3, 2)
        harness.elect(identity, 1)
        partition = harness.partition()
        assert partition.awaits_log_start
        with pytest.raises(KafkaError) as refused:
            harness.produce(b"x")
        assert refused.value.code is ErrorCode.NOT_LEADER_OR_FOLLOWER
        found = read(
            partition, FetchTarget("t", identity, 0, 0, 1000), CONSUMER, FetchLimits(1000, True), is_first_look=True
        )
        assert found.error is ErrorCode.NOT_LEADER_OR_FOLLOWER
        await harness.settle()
        assert partition.is_leader
        assert harness.bounds == (0, 5, 5)
        assert partition.log.epochs.latest_epoch == 1
        assert harness.produce(b"x") == 5

    with_harness(test)


def test_new_topic_is_led_at_once() -> None:
    async def test(harness: Harness) -> None:
        await harness.host(leader=1)
        assert harness.partition().is_leader
        assert harness.produce(b"x") == 0

    with_harness(test)


def test_untiered_topic_is_led_at_once() -> None:
    async def test(harness: Harness) -> None:
        harness.elect(await harness.lose(config=LogConfig()), 1)
        assert harness.partition().is_leader

    with_harness(test)


def test_log_with_records_is_led_at_once() -> None:
    async def test(harness: Harness) -> None:
        identity = await harness.host(leader=1)
        harness.produce(b"x")
        harness.elect(identity, OTHER)
        harness.elect(identity, 1)
        assert harness.partition().is_leader

    with_harness(test)


def test_topic_without_remote_segments_begins_at_zero() -> None:
    async def test(harness: Harness) -> None:
        identity = await harness.lose()
        harness.elect(identity, 1)
        await harness.settle()
        assert harness.partition().is_leader
        assert harness.produce(b"x") == 0

    with_harness(test)


def test_leader_waits_for_remote_metadata() -> None:
    async def test(harness: Harness) -> None:
        identity = await harness.lose()
        harness.fill(identity, 3)
        partition = TopicIdPartition(identity, "t", 0)
        harness.remote.not_ready.add(partition)
        harness.elect(identity, 1)
        await harness.settle(100)
        assert harness.partition().awaits_log_start
        harness.remote.become_ready(partition)
        await harness.settle()
        assert harness.partition().is_leader
        assert harness.bounds == (0, 3, 3)

    with_harness(test)


def test_failed_lookup_is_retried() -> None:
    async def test(harness: Harness) -> None:
        identity = await harness.lose()
        harness.fill(identity, 3)
        harness.kept_failures = [StoreUnavailable("down"), ValueError("?"), RetriableRemoteStorageError("down")]
        harness.elect(identity, 1)
        await harness.settle(0.1)
        assert harness.partition().awaits_log_start
        await harness.settle(10)
        assert harness.partition().is_leader
        assert harness.bounds == (0, 3, 3)

    with_harness(test)


def test_deleted_records_stay_deleted() -> None:
    async def test(harness: Harness) -> None:
        identity = await harness.lose()
        harness.fill(identity, 3, 2)
        harness.kept = LogStart(
            log_start_offset=4, leader_epoch=LeaderEpoch(0), cluster_id="c", broker_id=BrokerId(2), timestamp_ms=0
        )
        harness.elect(identity, 1)
        await harness.settle()
        assert harness.bounds == (4, 5, 5)

    with_harness(test)


def test_log_without_records_continues_at_its_end_offset() -> None:
    async def test(harness: Harness) -> None:
        identity = await harness.lose()
        harness.kept = LogStart(
            log_start_offset=9, leader_epoch=LeaderEpoch(0), cluster_id="c", broker_id=BrokerId(2), timestamp_ms=0
        )
        harness.elect(identity, 1)
        await harness.settle()
        assert harness.partition().is_leader
        assert harness.bounds == (9, 9, 9)
        harness.elect(identity, OTHER)
        harness.elect(identity, 1)
        await harness.settle()
        assert harness.partition().is_leader
        assert harness.produce(b"x") == 9

    with_harness(test)


def test_former_leader_starts_no_log() -> None:
    async def test(harness: Harness) -> None:
        identity = await harness.lose()
        harness.fill(identity, 3)
        harness.io.is_held = True
        harness.elect(identity, 1)
        await harness.settle(0.1)
        assert harness.partition().truncation.is_under_way
        harness.elect(identity, OTHER)
        harness.io.release()
        await harness.settle()
        assert not harness.partition().is_leader
        assert not harness.partition().awaits_log_start

    with_harness(test)


def test_later_leader_epoch_restarts_the_lookup() -> None:
    async def test(harness: Harness) -> None:
        identity = await harness.lose()
        harness.fill(identity, 3)
        partition = TopicIdPartition(identity, "t", 0)
        harness.remote.not_ready.add(partition)
        harness.elect(identity, 1)
        await harness.settle()
        harness.elect(identity, 1)
        harness.remote.become_ready(partition)
        await harness.settle()
        assert harness.partition().is_leader
        assert harness.partition().leader_epoch == 2
        assert harness.bounds == (0, 3, 3)

    with_harness(test)


def test_deletion_of_the_topic_ends_the_lookup() -> None:
    async def test(harness: Harness) -> None:
        identity = await harness.lose()
        partition = TopicIdPartition(identity, "t", 0)
        harness.remote.not_ready.add(partition)
        harness.elect(identity, 1)
        await harness.settle()
        lost = harness.partition()
        harness.delete_topic(identity)
        harness.remote.become_ready(partition)
        await harness.settle(100)
        assert not lost.is_leader
        assert not lost.awaits_log_start

    with_harness(test)


def test_topic_that_is_no_longer_tiered_is_led() -> None:
    async def test(harness: Harness) -> None:
        identity = await harness.lose()
        harness.remote.not_ready.add(TopicIdPartition(identity, "t", 0))
        harness.elect(identity, 1)
        harness.partition().configure(replace(TIERED, remote_storage_enable=False))
        await harness.settle(100)
        assert harness.partition().is_leader

    with_harness(test)
