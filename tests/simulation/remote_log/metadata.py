"""The remote metadata as each broker knows them: a copy of its own, which follows the shared log."""

import asyncio
from collections.abc import Awaitable, Iterable
from dataclasses import replace
from typing import Final, TypeVar

from protocol.ids import LeaderEpoch
from protocol.primitives import Uuid
from storage.tiered.catalog.metadata_cache import RemoteLogMetadataCache
from storage.tiered.segment_metadata import RemoteSegment, SegmentState, SegmentUpdate, TopicIdPartition
from tests.support.fakes.memory_remote_metadata import Event, MemoryRemoteMetadata, RemoteMetadataLog
from tests.support.harnesses.remote_log_harness import TOPIC, TOPIC_ID

PARTITION: Final = TopicIdPartition(TOPIC_ID, TOPIC, 0)

C = TypeVar("C", bound=RemoteLogMetadataCache)


class BrokerMetadata(MemoryRemoteMetadata):
    """One broker's RemoteLogMetadataManager, with the events of its process: two leaders at once share no cache."""

    def __init__(self, log: RemoteMetadataLog) -> None:
        super().__init__(log)
        self.is_dead = False
        """Whether the process is dead: nothing is published any more."""
        self._known = fill(_RememberingCache(), log.cache(PARTITION).segments())
        log.observers.append(self._apply)

    def close_now(self) -> None:
        """Stop following the log: the process is dead."""
        if self._apply in self.log.observers:
            self.log.observers.remove(self._apply)

    def segments_now(self) -> list[RemoteSegment]:
        """Return all segments that the process knows."""
        return self._known.segments()

    def _apply(self, event: Event) -> None:
        match event:
            case RemoteSegment():
                self._known.add(event)
            case SegmentUpdate():
                self._known.update(event)

    def _publish(self, partition: TopicIdPartition, event: Event) -> Awaitable[None]:
        if self.is_dead:
            never: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            return never
        return super()._publish(partition, event)

    def _shared(self, partition: TopicIdPartition) -> RemoteLogMetadataCache:
        return self._known


class _RememberingCache(RemoteLogMetadataCache):
    """Metadata that remember the results of look-ups up to the next event: most steps of a history have none."""

    def __init__(self) -> None:
        super().__init__(PARTITION)
        self._found: dict[object, RemoteSegment | None] = {}
        self._lists: dict[object, list[RemoteSegment]] = {}

    def add(self, segment: RemoteSegment) -> None:
        self._forget()
        super().add(segment)

    def update(self, update: SegmentUpdate) -> None:
        self._forget()
        super().update(update)

    def _forget(self) -> None:
        self._found.clear()
        self._lists.clear()

    def get(self, segment_id: Uuid) -> RemoteSegment | None:
        if segment_id not in self._found:
            self._found[segment_id] = super().get(segment_id)
        return self._found[segment_id]

    def segment_for(self, epoch: LeaderEpoch, offset: int) -> RemoteSegment | None:
        if (epoch, offset) not in self._found:
            self._found[epoch, offset] = super().segment_for(epoch, offset)
        return self._found[epoch, offset]

    def segments(self, epoch: LeaderEpoch | None = None) -> list[RemoteSegment]:
        if epoch not in self._lists:
            self._lists[epoch] = super().segments(epoch)
        return list(self._lists[epoch])

    def newest(self) -> list[RemoteSegment]:
        if "newest" not in self._lists:
            self._lists["newest"] = super().newest()
        return list(self._lists["newest"])

    def unfinished(self) -> list[RemoteSegment]:
        if "unfinished" not in self._lists:
            self._lists["unfinished"] = super().unfinished()
        return list(self._lists["unfinished"])


def cache_of(segments: Iterable[RemoteSegment]) -> RemoteLogMetadataCache:
    """Return new metadata of these segments."""
    return fill(RemoteLogMetadataCache(PARTITION), segments)


def fill(cache: C, segments: Iterable[RemoteSegment]) -> C:
    """Add segments to metadata."""
    for segment in segments:
        cache.add(replace(segment, state=SegmentState.COPY_STARTED, custom_metadata=None))
        if segment.state is not SegmentState.COPY_STARTED:
            update = (segment.event_timestamp_ms, segment.broker_id, segment.custom_metadata)
            cache.update(SegmentUpdate(segment.id, segment.state, *update))
    return cache
