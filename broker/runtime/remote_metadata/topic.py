"""The RemoteLogMetadataManager that stores remote metadata in the topic `__remote_log_metadata`, as Kafka does.

The manager joins the parts, each in a file of its own: reader, publisher, topic creation, pruning, and snapshots on
disk. It owns the assignment of user partitions, which determines the partitions of the topic to read, and follows the
cluster metadata for their leaders.

Everything in a partition of the topic is kept, for all user partitions in it: see
`storage/tiered/catalog/materialized_metadata.py`. Queries require a user partition that is assigned and ready.
"""

import asyncio
from collections.abc import Awaitable, Iterable, Sequence
from functools import partial
from typing import Final, Protocol

from broker.logs import EventLog
from broker.metadata.image.config_image import ConfigResource, ResourceType
from broker.metadata.image.delta import MetadataDelta
from broker.metadata.image.metadata_image import MetadataImage
from broker.metadata.image.topic_image import TopicImage
from broker.runtime.loop.waiters import Deadlines, Loop
from broker.runtime.remote_metadata.client import MetadataTopicClient
from broker.runtime.remote_metadata.pruning import LedMetadataLogs, RemoteMetadataPruning
from broker.runtime.remote_metadata.publisher import RemoteMetadataPublisher
from broker.runtime.remote_metadata.reader import MetadataLeader, RemoteMetadataReader
from broker.runtime.remote_metadata.settings import TOPIC, RemoteMetadataSettings
from broker.runtime.remote_metadata.snapshots import MetadataSnapshots, Restored
from broker.runtime.remote_metadata.tail import NO_EPOCH, RemoteMetadataPartition
from broker.runtime.remote_metadata.topic_configs import ignored_configs
from protocol.errors import KafkaError
from protocol.ids import LeaderEpoch
from storage.tiered.catalog.materialized_metadata import MaterializedMetadata
from storage.tiered.catalog.metadata_cache import RemoteLogMetadataCache
from storage.tiered.catalog.metadata_partitioner import metadata_partition
from storage.tiered.catalog.metadata_records import MetadataEvent, encode_event, partition_of
from storage.tiered.catalog.segment_state import check_deletion, check_segment, check_update
from storage.tiered.errors import InvalidSegmentTransition, RemoteMetadataNotReady
from storage.tiered.segment_metadata import (
    PartitionDelete,
    PartitionDeleteState,
    RemoteSegment,
    SegmentState,
    SegmentUpdate,
    TopicIdPartition,
)

_log: Final = EventLog("broker.tiered.metadata")


class MetadataTopicProvider(Protocol):
    """Creates the metadata topic if necessary, such as `MetadataTopicCreation`."""

    def ensure(self) -> None: ...

    def close(self) -> None: ...


class TopicRemoteMetadata:
    """Implements RemoteLogMetadataManager. Add it as a metadata publisher after the cache and the partitions.

    The first assignment of a partition creates the topic.
    """

    def __init__(
        self,
        client: MetadataTopicClient,
        creation: MetadataTopicProvider,
        snapshots: MetadataSnapshots,
        led: LedMetadataLogs,
        loop: Loop,
        deadlines: Deadlines,
        settings: RemoteMetadataSettings,
    ) -> None:
        self._client = client
        self._creation = creation
        self._snapshots = snapshots
        self._loop = loop
        self._deadlines = deadlines
        self._settings = settings
        self._publisher = RemoteMetadataPublisher(client, loop, deadlines, settings)
        self._reader = RemoteMetadataReader(client, loop, deadlines, settings, self)
        self._led = led
        self._pruning = RemoteMetadataPruning(led, settings, self._tail_of, self._set_needed)
        self._seen: TopicImage | None = None
        self._topic: TopicImage | None = None  # the same, unless its partition count is wrong
        self._assigned: dict[TopicIdPartition, None] = {}  # ordered, so that a seed determines a simulation
        self._wanted: set[int] = set()  # metadata partitions to be pruned
        self._held: set[int] = set()  # metadata partitions that this broker leads, for `held`
        self._tails: dict[int, RemoteMetadataPartition] = {}
        self._until_ready: dict[TopicIdPartition, list[asyncio.Future[None]]] = {}
        self._is_closed = False
        self._begin_saving()
        self._begin_pruning()

    # ---- events

    def add(self, segment: RemoteSegment) -> Awaitable[None]:
        if segment.state is not SegmentState.COPY_STARTED:
            return self._refused(InvalidSegmentTransition(f"{segment.id} begins as {segment.state.name}"))
        return self._publish(segment)

    def update(self, update: SegmentUpdate) -> Awaitable[None]:
        if update.state is SegmentState.COPY_STARTED:
            return self._refused(InvalidSegmentTransition(f"{update.id} cannot return to COPY_STARTED"))
        return self._publish(update)

    def delete_partition(self, event: PartitionDelete) -> Awaitable[None]:
        return self._publish(event)

    def _publish(self, event: MetadataEvent) -> Awaitable[None]:
        try:
            _check(self._cache(partition_of(event)), event)
            return self._publisher.publish(self._number(partition_of(event)), encode_event(event))
        except (RemoteMetadataNotReady, InvalidSegmentTransition) as error:
            return self._refused(error)

    def _refused(self, error: Exception) -> Awaitable[None]:
        refused: asyncio.Future[None] = self._loop.create_future()
        refused.set_exception(error)
        return refused

    # ---- queries

    def segment_for(self, partition: TopicIdPartition, epoch: LeaderEpoch, offset: int) -> RemoteSegment | None:
        return self._cache(partition).segment_for(epoch, offset)

    def highest_offset(self, partition: TopicIdPartition, epoch: LeaderEpoch) -> int | None:
        return self._cache(partition).highest_offset(epoch)

    def segments(self, partition: TopicIdPartition, epoch: LeaderEpoch | None = None) -> Sequence[RemoteSegment]:
        return self._cache(partition).segments(epoch)

    def known(self, partition: TopicIdPartition) -> RemoteLogMetadataCache:
        return self._cache(partition)

    def next_with_aborted(self, partition: TopicIdPartition, epoch: LeaderEpoch, offset: int) -> RemoteSegment | None:
        return self._cache(partition).next_with_aborted(epoch, offset)

    def is_ready(self, partition: TopicIdPartition) -> bool:
        tail = self._tail_of(self._number(partition)) if self._topic is not None else None
        return tail is not None and tail.is_ready(partition)

    def wait_until_ready(self, partition: TopicIdPartition) -> Awaitable[None]:
        """Wait without a limit, also for a later assignment."""
        ready: asyncio.Future[None] = self._loop.create_future()
        if self.is_ready(partition):
            ready.set_result(None)
        else:
            self._until_ready.setdefault(partition, []).append(ready)
        return ready

    def removals(self) -> list[PartitionDelete]:
        """Return the removals of partitions that are in progress, as far as the partitions read here have them."""
        caches = [cache for tail in self._tails.values() for cache in tail.metadata]
        return [cache.deletion for cache in caches if cache.deletion is not None]

    def held(self) -> list[tuple[TopicIdPartition, PartitionDeleteState | None]]:
        """Return every partition with remote data in the metadata partitions that this broker leads, with its removal.

        Metadata partitions that are not read yet are left out, and read from now on.
        """
        led = set(self._led.led())
        for number in self._held - led:
            self._held.discard(number)
            self._maybe_close(number)
        self._held |= led
        if self._topic is None:
            return []
        tails = [self._open(number) for number in sorted(led)]
        caches = [cache for tail in tails if self._is_read_whole(tail) for cache in tail.metadata]
        return [(cache.partition, None if cache.deletion is None else cache.deletion.state) for cache in caches]

    def _is_read_whole(self, tail: RemoteMetadataPartition) -> bool:
        """Whether a metadata partition has been read to its end once; later records are read soon."""
        log = self._led.log(tail.partition)
        try:
            end = None if log is None else log.end_offset
        except KafkaError:  # another broker leads it now
            return False
        if end is not None and tail.is_open and tail.next_offset >= end:
            tail.was_at_end = True
        return end is not None and tail.was_at_end

    def _cache(self, partition: TopicIdPartition) -> RemoteLogMetadataCache:
        if not self.is_ready(partition):
            raise RemoteMetadataNotReady(f"the remote metadata of {partition} have not been read yet")
        return self._tails[self._number(partition)].metadata.cache(partition)

    # ---- assignment

    def ensure_topic(self) -> None:
        """Create the topic although no partition is assigned yet."""
        self._creation.ensure()

    def assign(self, leaders: Iterable[TopicIdPartition], followers: Iterable[TopicIdPartition]) -> None:
        new = [one for one in dict.fromkeys((*leaders, *followers)) if one not in self._assigned]
        self._assigned |= dict.fromkeys(new)
        if self._topic is not None:
            for partition in new:
                self._open(self._number(partition)).assign(partition)
            self._reader.wake()
        elif new:
            self._creation.ensure()

    def unassign(self, partitions: Iterable[TopicIdPartition]) -> None:
        for partition in partitions:
            if partition not in self._assigned:
                continue
            del self._assigned[partition]
            if self._topic is not None:
                number = self._number(partition)
                self._tails[number].unassign(partition)
                self._maybe_close(number)

    def _set_needed(self, number: int, needed: bool) -> None:
        if needed:
            self._wanted.add(number)
            if self._topic is not None:
                self._open(number)
        else:
            self._wanted.discard(number)
            self._maybe_close(number)

    def _number(self, partition: TopicIdPartition) -> int:
        return metadata_partition(partition, self._settings.topic_num_partitions)

    def _tail_of(self, number: int) -> RemoteMetadataPartition | None:
        return self._tails.get(number)

    def _open(self, number: int) -> RemoteMetadataPartition:
        """Return the state of a metadata partition; begin to read it, from its snapshot if there is one."""
        tail = self._tails.get(number)
        if tail is None:
            assert self._topic is not None
            tail = self._tails[number] = RemoteMetadataPartition(number)
            self._reader.add(tail)
            self._snapshots.load(number, self._topic.id).add_done_callback(partial(self._on_loaded, tail))
        return tail

    def _on_loaded(self, tail: RemoteMetadataPartition, loaded: "asyncio.Future[Restored | None]") -> None:
        if self._tails.get(tail.partition) is not tail or loaded.cancelled():
            return
        restored = loaded.result()
        if restored is None:
            tail.begin(MaterializedMetadata(), 0, NO_EPOCH)
        else:
            position, metadata = restored
            tail.begin(metadata, position.next_offset, position.leader_epoch)
            tail.saved_offset = position.next_offset
        self._reader.wake()

    def _maybe_close(self, number: int) -> None:
        tail = self._tails.get(number)
        if tail is not None and not tail.is_needed and number not in self._wanted | self._held:
            self._save(tail)
            del self._tails[number]
            self._reader.remove(number)

    # ---- cluster metadata

    def on_metadata(self, delta: MetadataDelta, image: MetadataImage) -> None:
        """Follow the leaders of the topic's partitions, and report configs of the topic that have no effect."""
        if delta.configs is not None and ConfigResource(ResourceType.TOPIC, TOPIC) in delta.configs.changed_resources:
            for key, value in ignored_configs(image.configs.topic(TOPIC)).items():
                _log.warning(
                    "A config of the metadata topic has no effect: brokers keep the metadata of all live segments",
                    topic=TOPIC,
                    key=key,
                    value=value,
                )
        topic = image.topics.by_name(TOPIC)
        if topic is not self._seen:
            self._seen = topic
            self._on_topic(topic)

    def _on_topic(self, topic: TopicImage | None) -> None:
        if topic is not None and topic.partition_count != self._settings.topic_num_partitions:
            _log.error(
                "The metadata topic cannot be used: its partition count differs from the configured one",
                key="remote.log.metadata.topic.num.partitions",
                configured=self._settings.topic_num_partitions,
                partitions=topic.partition_count,
            )
            topic = None
        if self._topic is not None and (topic is None or topic.id != self._topic.id):
            self._forget_topic()
        is_new, self._topic = self._topic is None, topic
        if topic is None:
            return
        leaders = {
            number: MetadataLeader(registration.leader, registration.leader_epoch)
            for number, registration in topic.partitions.items()
            if registration.has_leader
        }
        if is_new:
            for partition in self._assigned:
                self._open(self._number(partition)).assign(partition)
            for number in self._wanted | self._held:
                self._open(number)
        self._reader.set_leaders(leaders)
        self._publisher.set_leaders(leaders)

    def _forget_topic(self) -> None:
        """Drop all remote metadata after the topic was deleted."""
        _log.error("The metadata topic was deleted", topic=TOPIC)
        for number in self._tails:
            self._reader.remove(number)
        self._tails.clear()
        self._reader.set_leaders({})
        self._publisher.set_leaders({})

    # ---- reader callbacks

    def on_value(self, value: bytes, error: Exception | None) -> None:
        self._publisher.on_value(value, error)

    def on_ready(self, partitions: Sequence[TopicIdPartition]) -> None:
        for partition in partitions:
            for ready in self._until_ready.pop(partition, ()):
                if not ready.done():
                    ready.set_result(None)

    def on_progress(self, tail: RemoteMetadataPartition) -> None:
        self._pruning.on_progress(tail)

    # ---- pruning and snapshots

    def _begin_pruning(self) -> None:
        self._pruning_timer = self._deadlines.after_ms(self._settings.prune_interval_ms, self._prune)

    def _prune(self) -> None:
        if self._topic is not None:
            self._pruning.check()
        self._begin_pruning()

    def _begin_saving(self) -> None:
        self._saving_timer = self._deadlines.after_ms(self._settings.snapshot_interval_ms, self._save_next)

    def _save_next(self, numbers: Sequence[int] | None = None) -> None:
        """Write one snapshot after another, each in a turn of the loop."""
        rest = list(self._tails if numbers is None else numbers)
        while rest and not self._is_closed:
            tail = self._tails.get(rest.pop())
            saving = None if tail is None else self._save(tail)
            if saving is not None:
                saving.add_done_callback(lambda _: self._save_next(rest))
                return
        if not self._is_closed:
            self._begin_saving()

    def _save(self, tail: RemoteMetadataPartition) -> "asyncio.Future[bool] | None":
        if self._topic is None:
            return None
        offset, generation = tail.next_offset, tail.generation
        saving = self._snapshots.save(tail, self._topic.id)

        def note(saved: "asyncio.Future[bool]") -> None:
            if not saved.cancelled() and saved.result() and tail.generation == generation:
                tail.saved_offset = offset

        if saving is not None:
            saving.add_done_callback(note)
        return saving

    async def close(self) -> None:
        """Stop publishing and reading, and write snapshots."""
        self._is_closed = True
        self._saving_timer.cancel()
        self._pruning_timer.cancel()
        self._creation.close()
        self._publisher.close()
        self._reader.close()
        self._client.close()
        for tail in tuple(self._tails.values()):
            saving = self._save(tail)
            if saving is not None:
                await saving


def _check(cache: RemoteLogMetadataCache, event: MetadataEvent) -> None:
    """Check that an event would be applied now. Raises InvalidSegmentTransition."""
    if isinstance(event, PartitionDelete):
        check_deletion(cache.partition, None if cache.deletion is None else cache.deletion.state, event.state)
        return
    known = cache.get(event.id.id)
    present = None if known is None else known.state
    if isinstance(event, SegmentUpdate):
        check_update(present, event)
    else:
        check_segment(event.id, present, event.state)
