"""Remote log metadata in memory: any number of brokers share one `RemoteMetadataLog` without losses.

All brokers apply an event when it is published, in order. `is_held` delays events like a slow metadata topic;
`not_ready` has partitions that are still loading.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Any

from protocol.ids import LeaderEpoch
from storage.tiered.catalog.metadata_cache import RemoteLogMetadataCache
from storage.tiered.errors import InvalidSegmentTransition, RemoteMetadataNotReady
from storage.tiered.segment_metadata import (
    PartitionDelete,
    PartitionDeleteState,
    RemoteSegment,
    SegmentState,
    SegmentUpdate,
    TopicIdPartition,
)

Event = RemoteSegment | SegmentUpdate | PartitionDelete
MakeFuture = Callable[[], "asyncio.Future[Any]"]


class RemoteMetadataLog:
    """The log that all brokers share. `events` are the applied events in order; `is_held`: later ones wait for
    `release`.

    `fail_next(error)` makes the next event fail without being applied; with `applies` it is applied all the same, like
    an event whose response is lost.
    """

    def __init__(self) -> None:
        self.caches: dict[TopicIdPartition, RemoteLogMetadataCache] = {}
        self.events: list[Event] = []
        self.observers: list[Callable[[Event], None]] = []
        """Called with each applied event."""
        self.is_held = False
        self._waiting: list[tuple[Event, asyncio.Future[None]]] = []
        self._failures: list[tuple[Exception, bool]] = []

    def cache(self, partition: TopicIdPartition) -> RemoteLogMetadataCache:
        """Return the metadata of a partition, assigned or not."""
        cache = self.caches.get(partition)
        if cache is None:
            cache = self.caches[partition] = RemoteLogMetadataCache(partition)
        return cache

    def fail_next(self, error: Exception, *, applies: bool = False) -> None:
        """Fail the next event; repeated calls fail as many events."""
        self._failures.append((error, applies))

    def publish(self, event: Event, done: "asyncio.Future[None]") -> None:
        """Apply an event, now or when no longer held, and settle `done`."""
        self._waiting.append((event, done))
        if not self.is_held:
            self.release()

    def release(self, count: int | None = None) -> None:
        """Apply waiting events: all, and stop holding; or only the first `count`."""
        if count is None:
            self.is_held = False
        for _ in range(len(self._waiting) if count is None else count):
            self._settle(*self._waiting.pop(0))

    @property
    def waiting(self) -> list[Event]:
        return [event for event, _ in self._waiting]

    def _settle(self, event: Event, done: "asyncio.Future[None]") -> None:
        failure, applies = self._failures.pop(0) if self._failures else (None, True)
        try:
            if applies:
                self._apply(event)
        except InvalidSegmentTransition as error:
            failure = error
        if done.done():
            return
        if failure is None:
            done.set_result(None)
        else:
            done.set_exception(failure)

    def _apply(self, event: Event) -> None:
        match event:
            case RemoteSegment():
                self.cache(event.id.partition).add(event)
            case SegmentUpdate():
                self.cache(event.id.partition).update(event)
            case PartitionDelete():
                self.cache(event.partition).delete_partition(event)
        self.events.append(event)
        for observer in self.observers:
            observer(event)


class MemoryRemoteMetadata:
    """One broker's RemoteLogMetadataManager over a shared log. `make_future` is the running loop's by default.

    Queries of partitions in `not_ready` fail; add partitions there, and remove them with `become_ready`.
    """

    def __init__(self, log: RemoteMetadataLog | None = None, *, make_future: MakeFuture | None = None) -> None:
        self.log = log or RemoteMetadataLog()
        self.leaders: set[TopicIdPartition] = set()
        self.followers: set[TopicIdPartition] = set()
        self.not_ready: set[TopicIdPartition] = set()
        self._make_future = make_future or (lambda: asyncio.get_running_loop().create_future())
        self._until_ready: dict[TopicIdPartition, list[asyncio.Future[None]]] = {}

    # ---- events

    def add(self, segment: RemoteSegment) -> Awaitable[None]:
        if segment.state is not SegmentState.COPY_STARTED:
            return self._refused(InvalidSegmentTransition(f"{segment.id} begins as {segment.state.name}"))
        return self._publish(segment.id.partition, segment)

    def update(self, update: SegmentUpdate) -> Awaitable[None]:
        return self._publish(update.id.partition, update)

    def delete_partition(self, event: PartitionDelete) -> Awaitable[None]:
        return self._publish(event.partition, event)

    def _publish(self, partition: TopicIdPartition, event: Event) -> Awaitable[None]:
        if not self.is_ready(partition):
            return self._refused(RemoteMetadataNotReady(f"{partition} is not ready"))
        done: asyncio.Future[None] = self._make_future()
        self.log.publish(event, done)
        return done

    def _refused(self, error: Exception) -> Awaitable[None]:
        done: asyncio.Future[None] = self._make_future()
        done.set_exception(error)
        return done

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
        return self._cache(partition).next_with_aborted(LeaderEpoch(epoch), offset)

    def _cache(self, partition: TopicIdPartition) -> RemoteLogMetadataCache:
        if not self.is_ready(partition):
            raise RemoteMetadataNotReady(f"{partition} is not ready")
        return self._shared(partition)

    def _shared(self, partition: TopicIdPartition) -> RemoteLogMetadataCache:
        return self.log.cache(partition)

    # ---- assignment

    def is_ready(self, partition: TopicIdPartition) -> bool:
        return self._is_assigned(partition) and partition not in self.not_ready

    def wait_until_ready(self, partition: TopicIdPartition) -> Awaitable[None]:
        ready: asyncio.Future[None] = self._make_future()
        self._until_ready.setdefault(partition, []).append(ready)
        self._tell(partition)
        return ready

    def become_ready(self, partition: TopicIdPartition) -> None:
        """Mark a partition as loaded."""
        self.not_ready.discard(partition)
        self._tell(partition)

    def assign(self, leaders: Iterable[TopicIdPartition], followers: Iterable[TopicIdPartition]) -> None:
        leading, following = set(leaders), set(followers)
        self.leaders = (self.leaders - following) | leading
        self.followers = (self.followers - leading) | following
        for partition in leading | following:
            self._tell(partition)

    def unassign(self, partitions: Iterable[TopicIdPartition]) -> None:
        gone = set(partitions)
        self.leaders -= gone
        self.followers -= gone

    def held(self) -> list[tuple[TopicIdPartition, PartitionDeleteState | None]]:
        """Return all partitions, as if this broker had to delete all of them."""
        caches = [cache for cache in self.log.caches.values() if len(cache)]
        return [(one.partition, None if one.deletion is None else one.deletion.state) for one in caches]

    async def close(self) -> None:
        """Do nothing: there are no resources."""

    def _is_assigned(self, partition: TopicIdPartition) -> bool:
        return partition in self.leaders or partition in self.followers

    def _tell(self, partition: TopicIdPartition) -> None:
        if self.is_ready(partition):
            for ready in self._until_ready.pop(partition, ()):
                if not ready.done():
                    ready.set_result(None)
