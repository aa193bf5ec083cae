"""A replica that is to lead with an empty log: held back until it is known where remote storage ends."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from itertools import count
from typing import Any

import pytest

from broker.runtime.partitions.partition_reads import FetchParams, ReadLimits, read
from broker.runtime.partitions.reads import FetchIsolation, FetchTarget
from broker.runtime.remote_log.leader_starts import LeaderStarts
from broker.runtime.remote_log.settings import RemoteLogSettings
from protocol.errors import ErrorCode, KafkaError
from protocol.primitives import Uuid
from storage.config import LogConfig
from storage.tiered.catalog.lineage import encode_epochs
from storage.tiered.errors import RetriableRemoteStorageError, StoreUnavailable
from storage.tiered.format.log_start_object import LogStart
from storage.tiered.remote_storage import IndexKind
from storage.tiered.segment_metadata import RemoteSegment, TopicIdPartition
from tests.support.data_plane import DataPlane, batch
from tests.support.fast_forward_loop import run_fast
from tests.support.manual_loop import ManualLoop
from tests.support.memory_remote_metadata import MemoryRemoteMetadata
from tests.support.remote_files import RemoteFiles, announce
from tests.support.shared_remote_storage import DelayedPool

TIERED = LogConfig(remote_storage_enable=True, message_timestamp_after_max_ms=2**63 - 1)
CONSUMER = FetchParams(FetchIsolation.HIGH_WATERMARK, needs_leader=False)
OTHER = 2


class AwaitableLoop(ManualLoop):
    """What is done by hand may be awaited by tasks of the running loop."""

    def create_future(self) -> asyncio.Future[Any]:
        return asyncio.get_running_loop().create_future()


class Stage(DataPlane):
    """Broker 1, which knows of remote storage, and beside it a broker that filled that before."""

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
        """A topic of two replicas, which nobody led before."""
        identity = self.create_topic(replicas=(1, OTHER), leader=leader, config=config)
        self.remote.assign([TopicIdPartition(identity, "t", 0)], [])
        await self.settle(0.02)
        return identity

    async def lose(self, *, config: LogConfig = TIERED) -> Uuid:
        """A topic that another broker led; nothing of it is here."""
        return await self.host(leader=OTHER, config=config)

    def fill(self, identity: Uuid, *segments: int) -> list[RemoteSegment]:
        """What the other broker copied: segments of so many records."""
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


def on_stage(test: Callable[[Stage], Awaitable[None]]) -> None:
    async def run() -> None:
        stage = Stage()
        running = asyncio.ensure_future(stage.starts.run())
        try:
            await test(stage)
        finally:
            running.cancel()

    run_fast(run())


def test_a_leader_that_lost_its_disk_goes_on_behind_what_is_remote() -> None:
    async def test(stage: Stage) -> None:
        identity = await stage.lose()
        stage.fill(identity, 3, 2)
        stage.elect(identity, 1)
        partition = stage.partition()
        assert partition.awaits_log_start
        with pytest.raises(KafkaError) as refused:
            stage.produce(b"x")
        assert refused.value.code is ErrorCode.NOT_LEADER_OR_FOLLOWER
        found = read(
            partition, FetchTarget("t", identity, 0, 0, 1000), CONSUMER, ReadLimits(1000, True), is_first_look=True
        )
        assert found.error is ErrorCode.NOT_LEADER_OR_FOLLOWER
        await stage.settle()
        assert partition.is_leader
        assert stage.bounds == (0, 5, 5)
        assert partition.log.epochs.latest_epoch == 1
        assert stage.produce(b"x") == 5
        assert stage.starts.waiting_count == 0

    on_stage(test)


def test_a_new_topic_is_led_at_once() -> None:
    async def test(stage: Stage) -> None:
        await stage.host(leader=1)
        assert stage.partition().is_leader
        assert stage.produce(b"x") == 0

    on_stage(test)


def test_so_is_one_without_remote_storage() -> None:
    async def test(stage: Stage) -> None:
        stage.elect(await stage.lose(config=LogConfig()), 1)
        assert stage.partition().is_leader

    on_stage(test)


def test_so_is_one_that_has_records() -> None:
    async def test(stage: Stage) -> None:
        identity = await stage.host(leader=1)
        stage.produce(b"x")
        stage.elect(identity, OTHER)
        stage.elect(identity, 1)
        assert stage.partition().is_leader

    on_stage(test)


def test_a_topic_of_which_nothing_is_remote_begins_at_zero() -> None:
    async def test(stage: Stage) -> None:
        identity = await stage.lose()
        stage.elect(identity, 1)
        await stage.settle()
        assert stage.partition().is_leader
        assert stage.produce(b"x") == 0

    on_stage(test)


def test_it_waits_until_the_metadata_are_known() -> None:
    async def test(stage: Stage) -> None:
        identity = await stage.lose()
        stage.fill(identity, 3)
        partition = TopicIdPartition(identity, "t", 0)
        stage.remote.not_ready.add(partition)
        stage.elect(identity, 1)
        await stage.settle(100)
        assert stage.partition().awaits_log_start
        stage.remote.become_ready(partition)
        await stage.settle()
        assert stage.partition().is_leader
        assert stage.bounds == (0, 3, 3)

    on_stage(test)


def test_what_fails_is_tried_again() -> None:
    async def test(stage: Stage) -> None:
        identity = await stage.lose()
        stage.fill(identity, 3)
        stage.kept_failures = [StoreUnavailable("down"), ValueError("?"), RetriableRemoteStorageError("down")]
        stage.elect(identity, 1)
        await stage.settle(0.1)
        assert stage.partition().awaits_log_start
        await stage.settle(10)
        assert stage.partition().is_leader
        assert stage.bounds == (0, 3, 3)

    on_stage(test)


def test_what_was_deleted_stays_deleted() -> None:
    async def test(stage: Stage) -> None:
        identity = await stage.lose()
        stage.fill(identity, 3, 2)
        stage.kept = LogStart(log_start_offset=4, leader_epoch=0, cluster_id="c", broker_id=2, timestamp_ms=0)
        stage.elect(identity, 1)
        await stage.settle()
        assert stage.bounds == (4, 5, 5)

    on_stage(test)


def test_a_log_of_which_all_was_deleted_goes_on_where_it_ended() -> None:
    async def test(stage: Stage) -> None:
        identity = await stage.lose()
        stage.kept = LogStart(log_start_offset=9, leader_epoch=0, cluster_id="c", broker_id=2, timestamp_ms=0)
        stage.elect(identity, 1)
        await stage.settle()
        assert stage.partition().is_leader
        assert stage.bounds == (9, 9, 9)
        stage.elect(identity, OTHER)
        stage.elect(identity, 1)
        await stage.settle()
        assert stage.partition().is_leader
        assert stage.produce(b"x") == 9

    on_stage(test)


def test_who_leads_no_more_begins_nothing() -> None:
    async def test(stage: Stage) -> None:
        identity = await stage.lose()
        stage.fill(identity, 3)
        stage.io.is_held = True
        stage.elect(identity, 1)
        await stage.settle(0.1)
        assert stage.partition().truncation.is_under_way
        stage.elect(identity, OTHER)
        stage.io.release()
        await stage.settle()
        assert not stage.partition().is_leader
        assert not stage.partition().awaits_log_start
        assert stage.starts.waiting_count == 0

    on_stage(test)


def test_a_later_epoch_of_the_same_leader_is_waited_for_anew() -> None:
    async def test(stage: Stage) -> None:
        identity = await stage.lose()
        stage.fill(identity, 3)
        partition = TopicIdPartition(identity, "t", 0)
        stage.remote.not_ready.add(partition)
        stage.elect(identity, 1)
        await stage.settle()
        stage.elect(identity, 1)
        stage.remote.become_ready(partition)
        await stage.settle()
        assert stage.partition().is_leader
        assert stage.partition().leader_epoch == 2
        assert stage.bounds == (0, 3, 3)

    on_stage(test)


def test_nothing_is_sought_for_a_topic_that_is_deleted() -> None:
    async def test(stage: Stage) -> None:
        identity = await stage.lose()
        partition = TopicIdPartition(identity, "t", 0)
        stage.remote.not_ready.add(partition)
        stage.elect(identity, 1)
        await stage.settle()
        stage.delete_topic(identity)
        stage.remote.become_ready(partition)
        await stage.settle(100)
        assert stage.starts.waiting_count == 0

    on_stage(test)


def test_a_topic_that_is_tiered_no_more_is_led() -> None:
    async def test(stage: Stage) -> None:
        identity = await stage.lose()
        stage.remote.not_ready.add(TopicIdPartition(identity, "t", 0))
        stage.elect(identity, 1)
        stage.partition().configure(replace(TIERED, remote_storage_enable=False))
        await stage.settle(100)
        assert stage.partition().is_leader

    on_stage(test)
