"""Descriptions of topics, stored beside their segments for disaster recovery: partition count, replicas and configs.

The leader of partition 0 stores the description when it becomes leader and when the topic or its configs change, and
retries until another broker leads. See `storage.tiered.format.topic_object`.
"""

import asyncio
from collections.abc import Callable, Iterable
from functools import partial
from typing import Protocol

from broker.logs import EventLog
from broker.metadata.image.config_image import ResourceType
from broker.metadata.image.delta import MetadataDelta
from broker.metadata.image.metadata_image import MetadataImage
from broker.metadata.image.topic_image import TopicImage
from broker.runtime.loop.round_robin import RoundRobinScheduler
from broker.runtime.loop.thread_pool import PoolFull, WorkPool
from broker.runtime.partitions.partition import Partition
from broker.runtime.partitions.registry import Partitions
from broker.runtime.remote_log.settings import RemoteLogSettings
from protocol.ids import LeaderEpoch
from protocol.primitives import Uuid
from storage.tiered.format.topic_object import TopicDescription
from storage.tiered.segment_metadata import TopicIdPartition
from storage.tiered.stores.backoff import Failures

_AT_ONCE = 2
"""Number of descriptions written at once; the objects are small, and no request waits for them."""

_log = EventLog("broker.remote")


class DescribedTopics(Protocol):
    """A store of descriptions. Methods run off the loop or are quick; `on_topic` may raise anything."""

    def on_topic(self, topic: TopicDescription, leader_epoch: LeaderEpoch) -> bool:
        """Store a description if it has changed. Return False if a later leader has stored one."""
        ...

    def stop_leading(self, partition: TopicIdPartition) -> None:
        """Note that another broker leads; the stored description stays."""
        ...


class TopicDescriptions:
    """Stores descriptions of the topics that this broker leads; a metadata publisher and a PartitionListener.

    Add it as a publisher after `Partitions`. `run` runs the scheduler.
    """

    def __init__(
        self,
        kept: DescribedTopics,
        partitions: Partitions,
        cluster_id: str,
        pool: WorkPool,
        loop: asyncio.AbstractEventLoop,
        settings: Callable[[], RemoteLogSettings],
        random: Callable[[], float],
    ) -> None:
        self._kept = kept
        self._partitions = partitions
        self._cluster_id = cluster_id
        self._pool = pool
        self._settings = settings
        self._random = random
        self._scheduler = RoundRobinScheduler(loop, lambda: _AT_ONCE)
        self._led: dict[Uuid, _Description] = {}

    async def run(self) -> None:
        """Store descriptions until cancelled."""
        await self._scheduler.run()

    def on_metadata(self, delta: MetadataDelta, _image: MetadataImage) -> None:
        """Check the topics that have changed, or whose configs have."""
        if delta.topics is not None:
            for topic_id in (*delta.topics.deleted, *delta.topics.changed):
                self._check(topic_id)
        if delta.configs is not None:
            resources = delta.configs.changed_resources
            if any(resource.type == ResourceType.BROKER for resource in resources):  # topics may become tiered
                self._check_all(topic.id for topic in tuple(self._partitions.by_id.values()))
            else:
                names = (resource.name for resource in resources if resource.type == ResourceType.TOPIC)
                hosted = (self._partitions.by_name.get(name) for name in names)
                self._check_all(topic.id for topic in hosted if topic is not None)

    def on_hosted(self, partition: Partition) -> None:
        """See PartitionListener."""
        if partition.index == 0:
            self._check(partition.topic_id)

    def _check_all(self, topic_ids: Iterable[Uuid]) -> None:
        for topic_id in topic_ids:
            self._check(topic_id)

    def _check(self, topic_id: Uuid) -> None:
        partition = self.led(topic_id)
        if partition is not None:
            self._scheduler.schedule(self._led.setdefault(topic_id, _Description(topic_id, self)))
        elif (description := self._led.pop(topic_id, None)) is not None:
            self._scheduler.cancel(description)
            if description.kept_for is not None:
                self._kept.stop_leading(description.kept_for)

    def led(self, topic_id: Uuid) -> Partition | None:
        """Return partition 0 of a tiered topic if this broker leads it."""
        hosted = self._partitions.by_id.get(topic_id)
        partition = None if hosted is None else hosted.partitions.get(0)
        return partition if partition is not None and partition.is_leader and partition.log.is_tiered else None

    async def keep(self, topic_id: Uuid, leader_epoch: LeaderEpoch, failures: Failures) -> float | None:
        """Store the present description of a topic; return the milliseconds until the next attempt after a failure."""
        topic = self._partitions.image.topics.by_id(topic_id)
        if topic is None:
            return None
        try:
            await self._pool.submit(partial(self._kept.on_topic, self._described(topic), leader_epoch))
        except PoolFull:
            return failures.next_delay_ms(self._settings().backoff, self._random)
        except Exception as error:  # noqa: BLE001  a plug-in may raise anything; the error is logged
            _log.warning("could not store the description of a topic", topic=topic.name, reason=error)
            return failures.next_delay_ms(self._settings().backoff, self._random)
        failures.clear()
        return None

    def _described(self, topic: TopicImage) -> TopicDescription:
        image = self._partitions.image
        first = topic.partitions[0]
        return TopicDescription(
            topic=topic.name,
            topic_id=topic.id,
            partition_count=topic.partition_count,
            replication_factor=len(set(first.replicas) - set(first.removing_replicas)) or len(first.replicas),
            cluster_id=self._cluster_id,
            metadata_offset=image.offset,
            configs=dict(image.configs.topic(topic.name)),
        )


class _Description:
    """The task that stores the description of one topic."""

    def __init__(self, topic_id: Uuid, descriptions: TopicDescriptions) -> None:
        self._topic_id = topic_id
        self._descriptions = descriptions
        self._failures = Failures()
        self.kept_for: TopicIdPartition | None = None

    async def run_once(self) -> float | None:
        """See RecurringTask: store the description if this broker leads the topic."""
        partition = self._descriptions.led(self._topic_id)
        if partition is None:
            return None
        self.kept_for = TopicIdPartition(self._topic_id, partition.topic, 0)
        return await self._descriptions.keep(self._topic_id, partition.leader_epoch, self._failures)
