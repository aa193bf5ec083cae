"""Event history of remote segments for tools: all events, in order, by partition.

A broker's view (`remote_metadata.py`) covers the partitions it hosts. A tool reads everything published up to a moment
of its choice, including deleted topics, and may publish events.
"""

from collections.abc import Iterable, Sequence
from typing import Protocol

from storage.tiered.catalog.metadata_cache import RemoteLogMetadataCache
from storage.tiered.catalog.metadata_records import MetadataEvent as Event
from storage.tiered.catalog.metadata_records import partition_of
from storage.tiered.errors import InvalidSegmentTransition
from storage.tiered.segment_metadata import (
    PartitionDelete,
    PartitionDeleteState,
    RemoteSegment,
    SegmentUpdate,
    TopicIdPartition,
)

__all__ = ["Event", "KnownPartition", "KnownPartitions", "MetadataJournal"]


class KnownPartition:
    """Metadata of a partition after the events so far. `has_events` is False for a partition without any event."""

    def __init__(self, partition: TopicIdPartition) -> None:
        self.partition = partition
        self.segments = RemoteLogMetadataCache(partition)
        self.has_events = False
        self.is_deleted = False

    @property
    def is_being_deleted(self) -> bool:
        return self.is_deleted or self.segments.deletion is not None

    def apply(self, event: Event) -> None:
        """Apply an event; an invalid transition changes nothing, as on brokers."""
        self.has_events = True
        try:
            match event:
                case RemoteSegment():
                    self.segments.add(event)
                case SegmentUpdate():
                    self.segments.update(event)
                case PartitionDelete():
                    self.segments.delete_partition(event)
                    self.is_deleted = event.state is PartitionDeleteState.FINISHED
        except InvalidSegmentTransition:
            return


class KnownPartitions:
    """Partitions by topic id, name and number."""

    def __init__(self) -> None:
        self._by_partition: dict[TopicIdPartition, KnownPartition] = {}

    def apply(self, event: Event) -> None:
        self.get(partition_of(event)).apply(event)

    def get(self, partition: TopicIdPartition) -> KnownPartition:
        """Return a partition; create an empty one if it is unknown."""
        known = self._by_partition.get(partition)
        if known is None:
            known = self._by_partition[partition] = KnownPartition(partition)
        return known

    def all(self) -> list[KnownPartition]:
        """Return the partitions with events, by name and number."""
        known = (known for known in self._by_partition.values() if known.has_events)
        return sorted(known, key=lambda each: (each.partition.topic, each.partition.topic_id, each.partition.partition))


class MetadataJournal(Protocol):
    """Access to the metadata topic. Methods raise its errors; then it is unknown which events were published."""

    def catch_up(self, partition: TopicIdPartition) -> KnownPartition:
        """Return a partition with all events published before the call. Later calls update the same object."""
        ...

    def catch_up_all(self) -> Iterable[KnownPartition]:
        """Return all partitions with events, up to date."""
        ...

    def publish(self, partition: TopicIdPartition, events: Sequence[Event]) -> None:
        """Publish the events durably, in order, as one batch: all or none."""
        ...
