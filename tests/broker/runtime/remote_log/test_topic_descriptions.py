"""Topic descriptions stored by the leader of partition 0 (`broker.runtime.remote_log.topic_descriptions`)."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace

from broker.metadata.image.config_image import ResourceType
from broker.metadata.image.delta import MetadataDelta
from broker.metadata.image.loader import RecordBatch
from broker.metadata.image.records import MetadataRecord
from broker.runtime.remote_log.settings import RemoteLogSettings
from broker.runtime.remote_log.topic_descriptions import TopicDescriptions
from protocol.ids import LeaderEpoch
from protocol.messages.metadata_records import ConfigRecord, PartitionRecord
from storage.config import LogConfig
from storage.tiered.errors import StoreUnavailable
from storage.tiered.format.topic_object import TopicDescription
from storage.tiered.segment_metadata import TopicIdPartition
from tests.support.fakes.fast_forward_loop import run_fast
from tests.support.fakes.shared_remote_storage import DelayedPool
from tests.support.harnesses.data_plane import DataPlane

TIERED = LogConfig(remote_storage_enable=True)
OTHER = 2


class Kept:
    """DescribedTopics in memory."""

    def __init__(self) -> None:
        self.described: list[tuple[TopicDescription, int]] = []
        self.stopped: list[TopicIdPartition] = []
        self.failures: list[Exception] = []

    def on_topic(self, topic: TopicDescription, leader_epoch: int) -> bool:
        if self.failures:
            raise self.failures.pop()
        self.described.append((topic, leader_epoch))
        return True

    def stop_leading(self, partition: TopicIdPartition) -> None:
        self.stopped.append(partition)


class Harness(DataPlane):
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
            batch = RecordBatch(first, first + len(records) - 1, LeaderEpoch(1), 0, list(records))
            for record in batch.records:
                delta.replay(record)
            self.descriptions.on_metadata(delta, self.image)

    async def settle(self, seconds: float = 1.0) -> list[tuple[TopicDescription, int]]:
        """Return the descriptions stored since the last call."""
        await asyncio.sleep(seconds)
        described, self.kept.described = self.kept.described, []
        return described


def with_harness(test: Callable[[Harness], Awaitable[None]]) -> None:
    async def run() -> None:
        harness = Harness()
        running = asyncio.ensure_future(harness.descriptions.run())
        try:
            await test(harness)
        finally:
            running.cancel()

    run_fast(run())


def test_topic_is_described_when_led() -> None:
    async def test(harness: Harness) -> None:
        identity = harness.create_topic(partitions=3, replicas=(1, OTHER), config=TIERED)
        [(described, epoch)] = await harness.settle()
        assert (described.topic, described.topic_id, described.partition_count, described.replication_factor) == (
            "t",
            identity,
            3,
            2,
        )
        assert (described.cluster_id, described.configs, described.metadata_offset) == (
            "cluster",
            {},
            harness.image.offset,
        )
        assert epoch == 0
        harness.elect(identity, OTHER)
        assert await harness.settle() == []
        assert harness.kept.stopped == [TopicIdPartition(identity, "t", 0)]
        harness.elect(identity, 1)
        [(_, epoch)] = await harness.settle()
        assert epoch == 2

    with_harness(test)


def test_changed_topic_is_described_again() -> None:
    async def test(harness: Harness) -> None:
        identity = harness.create_topic(config=TIERED)
        await harness.settle()
        harness.apply(ConfigRecord(ResourceType.TOPIC, "t", "retention.ms", "5"))
        [(described, _)] = await harness.settle()
        assert described.configs == {"retention.ms": "5"}
        harness.apply(
            PartitionRecord(
                partition_id=1, topic_id=identity, replicas=[OTHER], isr=[OTHER], leader=OTHER, leader_epoch=0
            )
        )
        [(described, _)] = await harness.settle()
        assert described.partition_count == 2

    with_harness(test)


def test_other_topics_are_not_described() -> None:
    async def test(harness: Harness) -> None:
        harness.create_topic("here", config=LogConfig())
        harness.create_topic("there", replicas=(1, OTHER), leader=OTHER, config=TIERED)
        assert await harness.settle() == []

    with_harness(test)


def test_failed_description_is_retried_until_another_broker_leads() -> None:
    async def test(harness: Harness) -> None:
        harness.kept.failures = [StoreUnavailable("down"), RuntimeError("?")]
        identity = harness.create_topic(replicas=(1, OTHER), config=TIERED)
        assert len(await harness.settle(10)) == 1
        harness.kept.failures = [StoreUnavailable("down")] * 10_000
        harness.elect(identity, 1)
        await harness.settle(100)
        harness.elect(identity, OTHER)
        await harness.settle()
        left = len(harness.kept.failures)
        await harness.settle(100)
        assert len(harness.kept.failures) == left < 10_000

    with_harness(test)


def test_deleted_topic_is_no_longer_described() -> None:
    async def test(harness: Harness) -> None:
        identity = harness.create_topic(config=TIERED)
        await harness.settle()
        harness.delete_topic(identity)
        assert await harness.settle() == []
        assert harness.kept.stopped == [TopicIdPartition(identity, "t", 0)]

    with_harness(test)


def test_topic_is_described_when_it_becomes_tiered() -> None:
    async def test(harness: Harness) -> None:
        harness.create_topic(config=replace(TIERED, remote_storage_enable=False))
        assert await harness.settle() == []
        harness.configs["t"] = TIERED
        harness.apply(ConfigRecord(ResourceType.TOPIC, "t", "remote.storage.enable", "true"))
        assert len(await harness.settle()) == 1

    with_harness(test)
