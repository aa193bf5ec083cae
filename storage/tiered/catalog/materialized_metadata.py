"""State of one partition of the metadata topic: the result of reading its events in order.

All partitions in it are kept, not only the ones this broker hosts. So a partition that moves here is known at once,
remote segments of deleted topics can be removed by any broker, and the records can be written again.
"""

from collections.abc import Iterable, Iterator
from weakref import WeakValueDictionary

from storage.tiered.catalog.metadata_cache import RemoteLogMetadataCache
from storage.tiered.catalog.metadata_records import MetadataEvent, partition_of
from storage.tiered.segment_metadata import (
    PartitionDelete,
    RemoteSegment,
    SegmentState,
    SegmentUpdate,
    TopicIdPartition,
)


class MaterializedMetadata:
    """Caches by partition; an empty cache is dropped when no caller holds it."""

    __slots__ = ("_caches", "_empty")

    def __init__(self, caches: Iterable[RemoteLogMetadataCache] = ()) -> None:
        self._caches = {cache.partition: cache for cache in caches}
        self._empty: WeakValueDictionary[TopicIdPartition, RemoteLogMetadataCache] = WeakValueDictionary()

    def __iter__(self) -> Iterator[RemoteLogMetadataCache]:
        return iter(self._caches.values())

    def cache(self, partition: TopicIdPartition) -> RemoteLogMetadataCache:
        """Return the cache of a partition, read-only for the caller. A caller that holds an empty cache sees later
        events in it.
        """
        known = self._caches.get(partition)
        if known is None:
            known = self._empty.get(partition)
        if known is None:
            known = self._empty[partition] = RemoteLogMetadataCache(partition)
        return known

    @property
    def segment_count(self) -> int:
        return sum(map(len, self._caches.values()))

    def apply(self, event: MetadataEvent) -> None:
        """Apply the next event. Raises InvalidSegmentTransition for an event that must be ignored."""
        partition = partition_of(event)
        cache = self.cache(partition)
        match event:
            case RemoteSegment():
                cache.add(event)
            case SegmentUpdate():
                cache.update(event)
            case PartitionDelete():
                cache.delete_partition(event)
        if cache.is_empty:
            self._caches.pop(partition, None)
            self._empty[partition] = cache
        elif partition not in self._caches:
            self._caches[partition] = cache
            self._empty.pop(partition, None)

    # ---- repeating events

    def partitions(self) -> list[TopicIdPartition]:
        """Return all partitions with any metadata."""
        return list(self._caches)

    def current_events(
        self, partition: TopicIdPartition, first_row: int, count: int
    ) -> tuple[list[MetadataEvent], int | None]:
        """Return events for `count` rows of segments, the first page with the partition's deletion, and the next row.

        The events lead an empty reader, Ottla or Kafka, to the present state, and change nothing for an up-to-date one.
        Kafka requires a segment to begin in COPY_STARTED, and takes custom metadata from the last event alone.
        """
        cache = self.cache(partition)
        page = cache.page(first_row, count)
        events: list[MetadataEvent] = [cache.deletion] if cache.deletion is not None and not first_row else []
        for _, segment in page.segments:
            events += _events_of(segment)
        return events, page.next_row

    @property
    def records_needed(self) -> int:
        """Maximum number of records that express the present state."""
        return sum(2 * len(cache) + (cache.deletion is not None) for cache in self)


def _events_of(segment: RemoteSegment) -> Iterator[MetadataEvent]:
    last = SegmentUpdate(
        segment.id, segment.state, segment.event_timestamp_ms, segment.broker_id, segment.custom_metadata
    )
    yield segment.updated(last._replace(state=SegmentState.COPY_STARTED))
    if segment.state is not SegmentState.COPY_STARTED:
        yield last
