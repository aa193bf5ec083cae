"""What one partition of the metadata topic says of all partitions that it tells of: the result of reading it in order.

It keeps all of them, not only those that somebody here asks about: a partition that moves to this broker is known at
once, what is left of a deleted topic can be removed by whoever is there, and the records can be written anew.
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
    """Caches by partition; one that knows nothing is dropped when nobody else holds it any more."""

    __slots__ = ("_caches", "_empty")

    def __init__(self, caches: Iterable[RemoteLogMetadataCache] = ()) -> None:
        self._caches = {cache.partition: cache for cache in caches}
        self._empty: WeakValueDictionary[TopicIdPartition, RemoteLogMetadataCache] = WeakValueDictionary()

    def __iter__(self) -> Iterator[RemoteLogMetadataCache]:
        return iter(self._caches.values())

    def cache(self, partition: TopicIdPartition) -> RemoteLogMetadataCache:
        """What is known of a partition, which must not be changed. Whoever holds on to an empty one has the one that
        will know of what comes.
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
        """The next event. Raises InvalidSegmentTransition for one that does not count."""
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

    # ---- saying it again

    def partitions(self) -> list[TopicIdPartition]:
        """All there is something to say of."""
        return list(self._caches)

    def retold(self, partition: TopicIdPartition, first_row: int, count: int) -> tuple[list[MetadataEvent], int | None]:
        """The same of `count` rows of segments, the first with the partition's removal; and the row to go on from."""
        cache = self.cache(partition)
        page = cache.page(first_row, count)
        events: list[MetadataEvent] = [cache.deletion] if cache.deletion is not None and not first_row else []
        for _, segment in page.segments:
            events += _retold(segment)
        return events, page.next_row

    @property
    def records_needed(self) -> int:
        """How many records at most say all that is known."""
        return sum(2 * len(cache) + (cache.deletion is not None) for cache in self)


def _retold(segment: RemoteSegment) -> Iterator[MetadataEvent]:
    last = SegmentUpdate(
        segment.id, segment.state, segment.event_timestamp_ms, segment.broker_id, segment.custom_metadata
    )
    yield segment.updated(last._replace(state=SegmentState.COPY_STARTED))
    if segment.state is not SegmentState.COPY_STARTED:
        yield last
