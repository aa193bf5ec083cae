"""The remote metadata as each broker knows them: a copy of its own, which follows the shared log."""

import asyncio
from collections.abc import Awaitable, Iterable
from dataclasses import replace
from typing import Final

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
        log.observers.append(self._apply)

    def close_now(self) -> None:
        """Stop following the log: the process is dead."""
        if self._apply in self.log.observers:
            self.log.observers.remove(self._apply)

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


def cache_of(segments: Iterable[RemoteSegment]) -> RemoteLogMetadataCache:
    """Return new metadata of these segments."""
    cache = RemoteLogMetadataCache(PARTITION)
    for segment in segments:
        cache.add(replace(segment, state=SegmentState.COPY_STARTED, custom_metadata=None))
        if segment.state is not SegmentState.COPY_STARTED:
            update = (segment.event_timestamp_ms, segment.broker_id, segment.custom_metadata)
            cache.update(SegmentUpdate(segment.id, segment.state, *update))
    return cache
