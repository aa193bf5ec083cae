"""Folding the records of a snapshot into an image.

Topics equal to those of the base image are shared: a lagging replica that loads a snapshot must not hold everything
twice, and publishers must not be notified of unchanged topics.
"""

from collections.abc import Mapping, Sequence
from typing import Final

from immutables import Map

from broker.metadata.image.delta import MetadataDelta
from broker.metadata.image.features import SUPPORTED_FEATURES, VersionRange
from broker.metadata.image.metadata_image import EMPTY_IMAGE, MetadataImage, Provenance
from broker.metadata.image.partition import PartitionRegistration
from broker.metadata.image.records import FRAME_VERSION, InvalidMetadata, MetadataRecord, decode_record
from broker.metadata.image.topic_image import TopicImage, TopicsImage
from broker.metadata.snapshot.topic_frames import PARTITION_KEY, PartitionFrameReader
from protocol.messages.metadata_records import (
    AbortTransactionRecord,
    BeginTransactionRecord,
    ClearElrRecord,
    EndTransactionRecord,
    PartitionChangeRecord,
    PartitionRecord,
    RemoveTopicRecord,
    TopicRecord,
)
from protocol.primitives import Uuid

_PARTITION: Final = bytes((FRAME_VERSION, PARTITION_KEY))  # the prefix of a PartitionRecord's frame


class SnapshotFold:
    """Folds records, about a thousand at a time; `finish` returns the image.

    `base` is the image before the snapshot. `supported` is as in `MetadataLoader`.
    """

    def __init__(
        self, base: MetadataImage, *, supported: Mapping[str, VersionRange] | None = SUPPORTED_FEATURES
    ) -> None:
        self._supported = supported
        self._image = EMPTY_IMAGE  # without topics
        self._topics = _TopicsFold(base.topics)
        self._partitions = PartitionFrameReader()

    def add(self, frames: Sequence[bytes]) -> None:
        """Fold the frames of a data batch, or of a part of it.

        Raises DecodeError for malformed records, InvalidMetadata for records that contradict each other or cannot occur
        in a snapshot, UnsupportedFeatureLevel for an unsupported level.
        """
        delta = MetadataDelta(self._image)
        read, add_partition = self._partitions.read, self._topics.add_partition
        for frame in frames:
            partition = read(frame) if frame.startswith(_PARTITION) else None
            if partition is not None:
                add_partition(*partition)
            else:
                self._add_record(decode_record(frame), delta)
        if delta.features is not None and self._supported is not None:
            delta.features.check(self._supported)
        if not delta.is_empty:
            self._image = delta.apply(Provenance())

    def finish(self, provenance: Provenance) -> MetadataImage:
        """Return the image at `provenance`. Call once, after all records."""
        return self._image._replace(provenance=provenance, topics=self._topics.finish())

    def _add_record(self, record: MetadataRecord, delta: MetadataDelta) -> None:
        match record:
            case TopicRecord():
                self._topics.begin_topic(record.topic_id, record.name)
            case PartitionRecord():
                registration = PartitionRegistration.from_record(record)
                self._topics.add_partition(record.topic_id, record.partition_id, registration)
            case (
                BeginTransactionRecord()
                | EndTransactionRecord()
                | AbortTransactionRecord()
                | PartitionChangeRecord()
                | RemoveTopicRecord()
                | ClearElrRecord()
            ):
                raise InvalidMetadata(f"a {type(record).__name__} has no place in a snapshot")
            case _:
                delta.replay(record)


class _TopicsFold:
    """Folds topics, each followed by its partitions; one topic is open at a time."""

    def __init__(self, base: TopicsImage) -> None:
        self._base = base
        self._names = Map[str, TopicImage]().mutate()
        self._ids = Map[Uuid, TopicImage]().mutate()
        self._partition_count = 0
        self._id: Uuid | None = None
        self._name = ""
        self._partitions: dict[int, PartitionRegistration] = {}

    def begin_topic(self, topic_id: Uuid, name: str) -> None:
        self._close()
        if name in self._names or topic_id in self._ids:
            raise InvalidMetadata(f"a snapshot holds topic {name} twice")
        self._id, self._name, self._partitions = topic_id, name, {}

    def add_partition(self, topic_id: Uuid, index: int, registration: PartitionRegistration) -> None:
        if topic_id != self._id:
            self._open_again(topic_id)
        self._partitions[index] = registration

    def finish(self) -> TopicsImage:
        self._close()
        return TopicsImage(self._names.finish(), self._ids.finish(), self._partition_count)

    def _open_again(self, topic_id: Uuid) -> None:
        """Reopen a topic: writers keep partitions together, but separated ones are valid."""
        self._close()
        if topic_id not in self._ids:
            raise InvalidMetadata("a snapshot holds a partition of a topic that it does not contain")
        topic = self._ids.pop(topic_id)
        del self._names[topic.name]
        self._partition_count -= topic.partition_count
        self._id, self._name, self._partitions = topic.id, topic.name, dict(topic.partitions)

    def _close(self) -> None:
        if self._id is None:
            return
        topic = TopicImage(self._name, self._id, Map(self._partitions))
        before = self._base.by_id(self._id)
        if before is not None and before == topic:
            topic = before
        self._ids[topic.id] = self._names[topic.name] = topic
        self._partition_count += len(self._partitions)
        self._id = None
