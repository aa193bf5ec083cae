"""The history of remote segments as somebody from outside reads and writes it: all events, in order, by partition.

A broker's view (`remote_metadata.py`) is of the partitions that it hosts, and is kept for it. A tool reads what was
published up to a moment of its own choosing, also of topics that are gone, and adds to it.
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
    """What the events so far say of a partition. `has_events` tells an empty partition from one never heard of."""

    def __init__(self, partition: TopicIdPartition) -> None:
        self.partition = partition
        self.segments = RemoteLogMetadataCache(partition)
        self.has_events = False
        self.is_deleted = False

    @property
    def is_being_deleted(self) -> bool:
        return self.is_deleted or self.segments.deletion is not None

    def apply(self, event: Event) -> None:
        """An event that may not follow those before it changes nothing, as on brokers."""
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
    """All of them, by what they are called and by their ids."""

    def __init__(self) -> None:
        self._by_partition: dict[TopicIdPartition, KnownPartition] = {}

    def apply(self, event: Event) -> None:
        self.get(partition_of(event)).apply(event)

    def get(self, partition: TopicIdPartition) -> KnownPartition:
        """One of which nothing is known yet is new."""
        known = self._by_partition.get(partition)
        if known is None:
            known = self._by_partition[partition] = KnownPartition(partition)
        return known

    def all(self) -> list[KnownPartition]:
        """Those that there were events of, by name and number."""
        known = (known for known in self._by_partition.values() if known.has_events)
        return sorted(known, key=lambda each: (each.partition.topic, each.partition.topic_id, each.partition.partition))


class MetadataJournal(Protocol):
    """Both may raise what the way to the metadata raises; then nothing is known of what was published."""

    def catch_up(self, partition: TopicIdPartition) -> KnownPartition:
        """With all events that were published before the call. The same object changes with later calls."""
        ...

    def catch_up_all(self) -> Iterable[KnownPartition]:
        """The same for all partitions that there were events of."""
        ...

    def publish(self, partition: TopicIdPartition, events: Sequence[Event]) -> None:
        """All of them, durably and in this order, as one batch: all or none of them."""
        ...
