"""The remote metadata as each broker knows them: a copy of its own, which follows the shared log."""

import asyncio
from collections.abc import Awaitable, Iterable
from dataclasses import replace
from typing import Final

from protocol.ids import LeaderEpoch
from storage.tiered.catalog.metadata_cache import RemoteLogMetadataCache
from storage.tiered.segment_metadata import RemoteSegment, SegmentState, SegmentUpdate, TopicIdPartition
from tests.support.fakes.memory_remote_metadata import Event, MemoryRemoteMetadata, RemoteMetadataLog
from tests.support.harnesses.remote_log_harness import TOPIC, TOPIC_ID

PARTITION: Final = TopicIdPartition(TOPIC_ID, TOPIC, 0)


class BrokerMetadata(MemoryRemoteMetadata):
    """One broker's RemoteLogMetadataManager, with the events of its process: two leaders at once share no cache."""

    def __init__(self, log: RemoteMetadataLog) -> None:
        super().__init__(log)
        self.is_dead = False
        """Whether the process is dead: nothing is published any more."""
        self._known = cache_of(log.cache(PARTITION).segments())
        self._found: dict[tuple[LeaderEpoch, int], RemoteSegment | None] = {}
        self._segments: list[RemoteSegment] | None = None
        """Results of look-ups since the last event, which most events of a history do not change."""
        log.observers.append(self._apply)

    def close_now(self) -> None:
        """Stop following the log: the process is dead."""
        if self._apply in self.log.observers:
            self.log.observers.remove(self._apply)

    def segments_now(self) -> list[RemoteSegment]:
        """Return all segments that the process knows."""
        if self._segments is None:
            self._segments = self._known.segments()
        return self._segments

    def segment_for(self, partition: TopicIdPartition, epoch: LeaderEpoch, offset: int) -> RemoteSegment | None:
        known = self._cache(partition)
        if (epoch, offset) not in self._found:
            self._found[epoch, offset] = known.segment_for(epoch, offset)
        return self._found[epoch, offset]

    def _apply(self, event: Event) -> None:
        self._found.clear()
        self._segments = None
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


def cache_of(segments: Iterable[RemoteSegment]) -> RemoteLogMetadataCache:
    """Return new metadata of these segments."""
    cache = RemoteLogMetadataCache(PARTITION)
    for segment in segments:
        cache.add(replace(segment, state=SegmentState.COPY_STARTED, custom_metadata=None))
        if segment.state is not SegmentState.COPY_STARTED:
            update = (segment.event_timestamp_ms, segment.broker_id, segment.custom_metadata)
            cache.update(SegmentUpdate(segment.id, segment.state, *update))
    return cache
