"""Topics and their partitions by name and id, and the effect of records on them.

A delta costs what its records change; an image shares everything else with its base.
"""

from collections.abc import Iterator
from typing import NamedTuple

from immutables import Map

from broker.metadata.image.metadata_version import MetadataVersion
from broker.metadata.image.partition import PartitionRegistration
from broker.metadata.image.records import InvalidMetadata, VersionedRecord
from protocol.messages.metadata_records import (
    ClearElrRecord,
    PartitionChangeRecord,
    PartitionRecord,
    RemoveTopicRecord,
    TopicRecord,
)
from protocol.primitives import Uuid


class TopicImage(NamedTuple):
    """A topic. Partitions are numbered from 0 without gaps."""

    name: str
    id: Uuid
    partitions: Map[int, PartitionRegistration]

    @property
    def partition_count(self) -> int:
        return len(self.partitions)

    def partition(self, index: int) -> PartitionRegistration | None:
        return self.partitions.get(index)

    def in_order(self) -> list[tuple[int, PartitionRegistration]]:
        """Return (index, registration) by ascending index."""
        return sorted(self.partitions.items())  # indexes are unique, so registrations are never compared


class TopicsImage:
    """All topics; immutable, created by `TopicsDelta.apply`."""

    __slots__ = ("_by_id", "_by_name", "partition_count")

    def __init__(
        self,
        by_name: Map[str, TopicImage] = Map(),  # noqa: B008  immutable
        by_id: Map[Uuid, TopicImage] = Map(),  # noqa: B008
        partition_count: int = 0,
    ) -> None:
        self._by_name = by_name
        self._by_id = by_id
        self.partition_count = partition_count

    def by_name(self, name: str) -> TopicImage | None:
        return self._by_name.get(name)

    def by_id(self, topic_id: Uuid) -> TopicImage | None:
        return self._by_id.get(topic_id)

    def partition(self, topic_id: Uuid, index: int) -> PartitionRegistration | None:
        topic = self._by_id.get(topic_id)
        return None if topic is None else topic.partitions.get(index)

    def names(self) -> list[str]:
        """Return all topic names, sorted."""
        return sorted(self._by_name)

    def ids(self) -> Iterator[Uuid]:
        """Yield all topic ids in arbitrary order."""
        return iter(self._by_id)

    def __iter__(self) -> Iterator[TopicImage]:
        """Yield all topics in arbitrary order."""
        return iter(self._by_id.values())

    def __len__(self) -> int:
        return len(self._by_name)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, TopicsImage) and self._by_id == other._by_id and self._by_name == other._by_name

    def __hash__(self) -> int:
        return hash(self._by_id)

    def write(self, version: MetadataVersion) -> Iterator[VersionedRecord]:
        """Yield each topic followed by its partitions, by ascending topic id, in the same order on every node."""
        for topic_id in sorted(self._by_id):
            topic = self._by_id[topic_id]
            yield VersionedRecord(TopicRecord(name=topic.name, topic_id=topic.id), 0)
            for index, registration in topic.in_order():
                yield registration.to_record(topic_id, index, version)


class TopicDelta:
    """Changes of one topic. `before` is the topic in the base image, None for a topic created in this delta."""

    __slots__ = ("before", "changed_partitions", "id", "name")

    def __init__(self, name: str, topic_id: Uuid, before: TopicImage | None) -> None:
        self.name = name
        self.id = topic_id
        self.before = before
        self.changed_partitions: dict[int, PartitionRegistration] = {}

    @property
    def is_new(self) -> bool:
        return self.before is None

    def partition(self, index: int) -> PartitionRegistration | None:
        """Return the registration after the records so far."""
        changed = self.changed_partitions.get(index)
        if changed is None and self.before is not None:
            return self.before.partitions.get(index)
        return changed

    def apply(self) -> TopicImage:
        partitions: Map[int, PartitionRegistration] = self.before.partitions if self.before is not None else Map()
        return TopicImage(self.name, self.id, partitions.update(self.changed_partitions))


class TopicsDelta:
    """Changes of topics on top of an image.

    `changed` has, by topic id, created topics (`is_new`) and topics with new or changed partitions. `deleted` has the
    deleted topics of the base image. A topic created and deleted within the delta is in neither.
    """

    def __init__(self, image: TopicsImage) -> None:
        self._image = image
        self.changed: dict[Uuid, TopicDelta] = {}
        self.deleted: dict[Uuid, TopicImage] = {}
        self._created_ids: dict[str, Uuid] = {}

    @property
    def base(self) -> TopicsImage:
        """The image below these changes."""
        return self._image

    def create_topic(self, record: TopicRecord) -> None:
        """Create a topic. Raises InvalidMetadata if an existing topic has the name or id."""
        holder = self._image.by_name(record.name)
        if record.name in self._created_ids or (holder is not None and holder.id not in self.deleted):
            raise InvalidMetadata(f'a record creates topic "{record.name}", which exists')
        if record.topic_id in self.changed or self._image.by_id(record.topic_id) is not None:
            raise InvalidMetadata(f'a record creates topic "{record.name}" with an id that is in use')
        self.changed[record.topic_id] = TopicDelta(record.name, record.topic_id, None)
        self._created_ids[record.name] = record.topic_id

    def add_partition(self, record: PartitionRecord) -> None:
        topic = self._topic(record.topic_id)
        topic.changed_partitions[record.partition_id] = PartitionRegistration.from_record(record)

    def change_partition(self, record: PartitionChangeRecord) -> None:
        topic = self._topic(record.topic_id)
        before = topic.partition(record.partition_id)
        if before is None:
            raise InvalidMetadata(
                f'a record changes partition {record.partition_id} of topic "{topic.name}", which does not exist'
            )
        topic.changed_partitions[record.partition_id] = before.merge(record)

    def remove_topic(self, record: RemoveTopicRecord) -> str:
        """Remove a topic; return its name, so that its configs can be removed as well."""
        topic = self._topic(record.topic_id)
        del self.changed[record.topic_id]
        if topic.before is None:
            del self._created_ids[topic.name]
        else:
            self.deleted[record.topic_id] = topic.before
        return topic.name

    def clear_elr(self, record: ClearElrRecord) -> None:
        """Clear the ELR of one topic, or of all topics if the record names none (KIP-966)."""
        if record.topic_name:
            holder = self._image.by_name(record.topic_name)
            topic_id = self._created_ids.get(record.topic_name, None if holder is None else holder.id)
            if topic_id is None:
                raise InvalidMetadata(f'a record clears the ELR of topic "{record.topic_name}", which does not exist')
            self._clear_elr_of(topic_id)
            return
        for topic_id in [
            *(topic.id for topic in self._image if topic.id not in self.deleted),
            *self._created_ids.values(),
        ]:
            self._clear_elr_of(topic_id)

    def apply(self) -> TopicsImage:
        names, ids = self._image._by_name.mutate(), self._image._by_id.mutate()
        count = self._image.partition_count
        for topic_id, gone in self.deleted.items():
            del ids[topic_id]
            del names[gone.name]
            count -= len(gone.partitions)
        for topic_id, delta in self.changed.items():
            topic = delta.apply()
            ids[topic_id] = names[topic.name] = topic
            count += len(topic.partitions) - (0 if delta.before is None else len(delta.before.partitions))
        return TopicsImage(names.finish(), ids.finish(), count)

    def _topic(self, topic_id: Uuid) -> TopicDelta:
        delta = self.changed.get(topic_id)
        if delta is None:
            before = None if topic_id in self.deleted else self._image.by_id(topic_id)
            if before is None:
                raise InvalidMetadata("a record names a topic id that does not exist")
            delta = self.changed[topic_id] = TopicDelta(before.name, topic_id, before)
        return delta

    def _clear_elr_of(self, topic_id: Uuid) -> None:
        """Clear the ELR of partitions that have one, so that clearing a million partitions is affordable."""
        known = self.changed.get(topic_id)
        before = self._image.by_id(topic_id) if known is None else known.before
        candidates = set() if before is None else {i for i, each in before.partitions.items() if each.has_elr}
        if known is not None:
            candidates.update(known.changed_partitions)
        for index in sorted(candidates):
            topic = self._topic(topic_id)
            registration = topic.partition(index)
            if registration is not None and registration.has_elr:
                topic.changed_partitions[index] = registration.without_elr()
