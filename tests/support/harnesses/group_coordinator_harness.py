"""A group coordinator on memory logs and the test's own event loop, for tests of API handlers."""

import asyncio
from collections.abc import Awaitable, Mapping
from typing import TypeVar, cast

from broker.api.serving.context import RequestContext
from broker.clock import SystemClock
from broker.groups.config import GroupConfig
from broker.groups.consumer.environment import ConsumerGroupEnvironment
from broker.groups.replay import GROUP_FOLD
from broker.groups.shard import GroupShard
from broker.groups.streams.environment import StreamsGroupEnvironment, StreamsGroupSettings
from broker.metadata.image.delta import MetadataDelta
from broker.metadata.image.metadata_image import EMPTY_IMAGE, MetadataImage, Provenance
from broker.net.request import ConnectionInfo, Request
from broker.runtime.coordinators.cluster_topics import ImageTopics
from broker.runtime.coordinators.consumer_group_coordinator import ConsumerGroupCoordinator
from broker.runtime.coordinators.group_coordinator import GROUP_METADATA_TOPIC, GroupCoordinator
from broker.runtime.coordinators.hosted_shard import WriteLimits
from broker.runtime.coordinators.offset_transactions import OffsetTransactions
from broker.runtime.coordinators.shard_loader import ShardLoader
from broker.runtime.coordinators.shard_runtime import ShardRuntime
from broker.runtime.coordinators.share_group_coordinator import ShareGroupCoordinator
from broker.runtime.coordinators.share_state_client import ShareStateClient
from broker.runtime.coordinators.streams_group_coordinator import StreamsGroupCoordinator
from protocol.headers import RequestHeader
from protocol.ids import BrokerId, LeaderEpoch
from protocol.messages.metadata_records import (
    BrokerEndpoint,
    PartitionRecord,
    RegisterBrokerRecord,
    RemoveTopicRecord,
    TopicRecord,
)
from protocol.primitives import Uuid
from tests.support.fakes.runtimes import make_runtime
from tests.support.fakes.shard_log import MemoryShardLog

R = TypeVar("R")

BROKER_ID = 1
LISTENER = "PLAINTEXT"
PARTITIONS = 2


def topic_id_of(name: str) -> Uuid:
    """Return the id that topics of that name have in the tests."""
    return Uuid(name.encode().rjust(16, b"-")[:16])


def context(
    version: int, *, client_id: str = "client", host: str = "127.0.0.1", listener: str = LISTENER
) -> RequestContext:
    """Return a request context."""
    connection = ConnectionInfo("connection", listener, host, 50_000)
    request = Request(RequestHeader(0, version, 1, client_id), memoryview(b""), connection, 0)
    return RequestContext(version, client_id, connection, request)


async def answered(response: R | Awaitable[R]) -> R:
    """Return the response of a handler that may answer at once or later."""
    return await response if isinstance(response, Awaitable) else response


class GroupCoordinatorHarness:
    """The coordinator of node 1, which leads all of `__consumer_offsets`; topics t and u have two partitions each."""

    def __init__(self, *, elected: bool = True, linger_ms: int = 0) -> None:
        loop = asyncio.get_running_loop()
        clock = SystemClock()
        config = GroupConfig(group_initial_rebalance_delay_ms=0, group_coordinator_append_linger_ms=linger_ms)
        self.logs = [MemoryShardLog() for _ in range(PARTITIONS)]
        self.image = EMPTY_IMAGE
        self._ids = iter(range(1, 1_000))
        self._runtime = self.process = make_runtime(loop, clock=clock)
        self.serves_consumer_groups = True
        self.serves_streams_groups = True
        environment = ConsumerGroupEnvironment(topics=lambda: ImageTopics(self.image))
        streams = StreamsGroupEnvironment(
            topics=lambda: ImageTopics(self.image),
            settings=lambda _: StreamsGroupSettings(initial_rebalance_delay_ms=0),
        )
        self.runtime = ShardRuntime[GroupShard](
            self._runtime,
            GROUP_METADATA_TOPIC,
            lambda: GroupShard(config, clock, lambda: str(next(self._ids)), environment, streams),
            self.logs.__getitem__,
            WriteLimits(linger_ms, config.offsets_commit_timeout_ms),
            ShardLoader(clock, 1 << 20, GROUP_FOLD),
        )
        consumer_groups = ConsumerGroupCoordinator(
            self._runtime,
            self.runtime,
            lambda: PARTITIONS,
            self.current_image,
            lambda: self.serves_consumer_groups,
        )
        self.groups = GroupCoordinator(
            self.runtime,
            config,
            lambda: PARTITIONS,
            BrokerId(BROKER_ID),
            loop,
            cast(OffsetTransactions, None),  # see tests/broker/api/transactions/test_txn_offset_commit.py
            consumer_groups,
            StreamsGroupCoordinator(self.runtime, lambda: PARTITIONS, lambda: self.serves_streams_groups),
        )
        self.share_groups = ShareGroupCoordinator(
            self._runtime,
            self.runtime,
            lambda: PARTITIONS,
            self.current_image,
            lambda: True,
            cast(ShareStateClient, None),  # see tests/integration/test_share_groups.py
        )
        self.register_broker(BROKER_ID)
        self.create_topics(t=2, u=2)
        if elected:
            self.create_topics(**{GROUP_METADATA_TOPIC: PARTITIONS})

    def close(self) -> None:
        self.groups.close()
        self._runtime.deadlines.close()

    def current_image(self) -> MetadataImage:
        """Return the metadata image that handlers see."""
        return self.image

    def register_broker(self, broker_id: int, *, fenced: bool = False) -> None:
        endpoints = [BrokerEndpoint(LISTENER, f"host-{broker_id}", 9092), BrokerEndpoint("OTHER", "other", 9999)]
        self._apply(RegisterBrokerRecord(broker_id=broker_id, end_points=endpoints, fenced=fenced))

    def create_topics(self, **partition_counts: int) -> None:
        for name, count in partition_counts.items():
            leaders = {index: (BROKER_ID, 0) for index in range(count)}
            self._apply(TopicRecord(name, topic_id_of(name)), *_partitions(name, leaders))

    def delete_topic(self, name: str) -> None:
        self._apply(RemoveTopicRecord(topic_id_of(name)))

    def lead(self, name: str, leaders: Mapping[int, tuple[int, int]]) -> None:
        """Change leaders: partition -> (broker, epoch)."""
        self._apply(*_partitions(name, leaders))

    def _apply(self, *records: RegisterBrokerRecord | TopicRecord | PartitionRecord | RemoveTopicRecord) -> None:
        delta = MetadataDelta(self.image)
        delta.replay_all(records)
        self.image = delta.apply(Provenance(self.image.offset + 1, LeaderEpoch(1), 0))
        self.groups.on_metadata(delta, self.image)


def _partitions(name: str, leaders: Mapping[int, tuple[int, int]]) -> list[PartitionRecord]:
    return [
        PartitionRecord(
            partition_id=index,
            topic_id=topic_id_of(name),
            replicas=[1, 2],
            isr=[leader],
            leader=leader,
            leader_epoch=epoch,
        )
        for index, (leader, epoch) in leaders.items()
    ]
