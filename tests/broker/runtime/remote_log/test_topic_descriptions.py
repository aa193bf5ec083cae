"""What a topic is, kept beside its segments by whoever leads its first partition."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace

from broker.metadata.image.config_image import ResourceType
from broker.metadata.image.delta import MetadataDelta
from broker.metadata.image.loader import RecordBatch
from broker.metadata.image.records import MetadataRecord
from broker.runtime.remote_log.settings import RemoteLogSettings
from broker.runtime.remote_log.topic_descriptions import TopicDescriptions
from protocol.messages.metadata_records import ConfigRecord, PartitionRecord
from storage.config import LogConfig
from storage.tiered.errors import StoreUnavailable
from storage.tiered.format.topic_object import TopicDescription
from storage.tiered.segment_metadata import TopicIdPartition
from tests.support.data_plane import DataPlane
from tests.support.fast_forward_loop import run_fast
from tests.support.shared_remote_storage import DelayedPool

TIERED = LogConfig(remote_storage_enable=True)
OTHER = 2


class Kept:
    """DescribedTopics in memory."""

    def __init__(self) -> None:
        self.told: list[tuple[TopicDescription, int]] = []
        self.stopped: list[TopicIdPartition] = []
        self.failures: list[Exception] = []

    def on_topic(self, topic: TopicDescription, leader_epoch: int) -> bool:
        if self.failures:
            raise self.failures.pop()
        self.told.append((topic, leader_epoch))
        return True

    def stop_leading(self, partition: TopicIdPartition) -> None:
        self.stopped.append(partition)


class Stage(DataPlane):
    def __init__(self) -> None:
        super().__init__()
        self.kept = Kept()
        self.descriptions = TopicDescriptions(
            self.kept,
            self.partitions,
            "cluster",
            DelayedPool(lambda: 0.01),
            asyncio.get_running_loop(),
            RemoteLogSettings,
            lambda: 0.5,
        )
        self.partitions.roles.add_listener(self.descriptions)
        self.register_broker(OTHER)

    def apply(self, *records: MetadataRecord) -> None:
        before = self.image
        super().apply(*records)
        if hasattr(self, "descriptions"):
            delta = MetadataDelta(before)
            first = before.offset + 1
            batch = RecordBatch(first, first + len(records) - 1, 1, 0, list(records))
            for record in batch.records:
                delta.replay(record)
            self.descriptions.on_metadata(delta, self.image)

    async def settle(self, seconds: float = 1.0) -> list[tuple[TopicDescription, int]]:
        """What was kept since the last look."""
        await asyncio.sleep(seconds)
        told, self.kept.told = self.kept.told, []
        return told


def on_stage(test: Callable[[Stage], Awaitable[None]]) -> None:
    async def run() -> None:
        stage = Stage()
        running = asyncio.ensure_future(stage.descriptions.run())
        try:
            await test(stage)
        finally:
            running.cancel()

    run_fast(run())


def test_a_topic_is_described_when_it_is_led() -> None:
    async def test(stage: Stage) -> None:
        identity = stage.create_topic(partitions=3, replicas=(1, OTHER), config=TIERED)
        [(told, epoch)] = await stage.settle()
        assert (told.topic, told.topic_id, told.partition_count, told.replication_factor) == ("t", identity, 3, 2)
        assert (told.cluster_id, told.configs, told.metadata_offset) == ("cluster", {}, stage.image.offset)
        assert epoch == 0
        stage.elect(identity, OTHER)
        assert await stage.settle() == []
        assert stage.kept.stopped == [TopicIdPartition(identity, "t", 0)]
        stage.elect(identity, 1)
        [(_, epoch)] = await stage.settle()
        assert epoch == 2

    on_stage(test)


def test_a_change_is_told() -> None:
    async def test(stage: Stage) -> None:
        identity = stage.create_topic(config=TIERED)
        await stage.settle()
        stage.apply(ConfigRecord(ResourceType.TOPIC, "t", "retention.ms", "5"))
        [(told, _)] = await stage.settle()
        assert told.configs == {"retention.ms": "5"}
        stage.apply(
            PartitionRecord(
                partition_id=1, topic_id=identity, replicas=[OTHER], isr=[OTHER], leader=OTHER, leader_epoch=0
            )
        )
        [(told, _)] = await stage.settle()
        assert told.partition_count == 2

    on_stage(test)


def test_others_need_no_description() -> None:
    async def test(stage: Stage) -> None:
        stage.create_topic("here", config=LogConfig())
        stage.create_topic("there", replicas=(1, OTHER), leader=OTHER, config=TIERED)
        assert await stage.settle() == []

    on_stage(test)


def test_what_fails_is_tried_again_until_another_leads() -> None:
    async def test(stage: Stage) -> None:
        stage.kept.failures = [StoreUnavailable("down"), RuntimeError("?")]
        identity = stage.create_topic(replicas=(1, OTHER), config=TIERED)
        assert len(await stage.settle(10)) == 1
        stage.kept.failures = [StoreUnavailable("down")] * 10_000
        stage.elect(identity, 1)
        await stage.settle(100)
        stage.elect(identity, OTHER)
        await stage.settle()
        left = len(stage.kept.failures)
        await stage.settle(100)
        assert len(stage.kept.failures) == left < 10_000

    on_stage(test)


def test_a_topic_that_is_deleted_is_described_no_more() -> None:
    async def test(stage: Stage) -> None:
        identity = stage.create_topic(config=TIERED)
        await stage.settle()
        stage.delete_topic(identity)
        assert await stage.settle() == []
        assert stage.kept.stopped == [TopicIdPartition(identity, "t", 0)]

    on_stage(test)


def test_a_topic_is_described_once_it_is_tiered() -> None:
    async def test(stage: Stage) -> None:
        stage.create_topic(config=replace(TIERED, remote_storage_enable=False))
        assert await stage.settle() == []
        stage.configs["t"] = TIERED
        stage.apply(ConfigRecord(ResourceType.TOPIC, "t", "remote.storage.enable", "true"))
        assert len(await stage.settle()) == 1

    on_stage(test)
