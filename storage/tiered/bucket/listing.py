"""Bucket listing by partition and segment, from object keys alone.

A listing is sorted, so the objects of one partition are adjacent and only one partition is held in memory. Manifests
are not read here.
"""

from collections.abc import Iterator
from dataclasses import field

from protocol.lazy_dataclass import lazy_dataclass
from protocol.primitives import Uuid
from storage.tiered.format.epoch_stamped_objects import epoch_in_key, newest
from storage.tiered.format.log_start_object import LOG_START_STEM
from storage.tiered.format.object_keys import ObjectKeys, ObjectSuffix
from storage.tiered.format.topic_object import TOPIC_STEM
from storage.tiered.object_store import ObjectInfo, ObjectStore
from storage.tiered.segment_metadata import RemoteSegmentId, TopicIdPartition

DELETION_ORDER = (ObjectSuffix.MANIFEST, ObjectSuffix.INDEXES, ObjectSuffix.LOG)
"""A manifest marks a segment as complete, so it is deleted first."""


@lazy_dataclass(slots=True)
class StoredSegment:
    """Objects of one attempt to copy a segment."""

    id: RemoteSegmentId
    start_offset: int
    objects: dict[ObjectSuffix, ObjectInfo] = field(default_factory=dict)

    @property
    def is_complete(self) -> bool:
        """Whether the segment can be read: the copy finished, and no object is missing."""
        return len(self.objects) == len(ObjectSuffix)

    @property
    def has_records(self) -> bool:
        """Whether the copy finished, as the manifest proves, and the log is there.

        A manifest without the log is left from a request that took effect after the segment was deleted.
        """
        return ObjectSuffix.MANIFEST in self.objects and ObjectSuffix.LOG in self.objects

    @property
    def size_bytes(self) -> int:
        return sum(info.size for info in self.objects.values())

    @property
    def modified_ms(self) -> int:
        """Modification time of the newest object."""
        return max(info.modified_ms for info in self.objects.values())

    @property
    def keys(self) -> list[str]:
        """Object keys in deletion order."""
        return [self.objects[suffix].key for suffix in DELETION_ORDER if suffix in self.objects]


@lazy_dataclass(slots=True)
class StoredPartition:
    """A partition's `segments` by start offset, `log_starts` objects, and `others` with unrecognized names."""

    partition: TopicIdPartition
    segments: list[StoredSegment] = field(default_factory=list)
    log_starts: list[ObjectInfo] = field(default_factory=list)
    others: list[ObjectInfo] = field(default_factory=list)

    @property
    def size_bytes(self) -> int:
        return sum(segment.size_bytes for segment in self.segments)


@lazy_dataclass(slots=True)
class StoredTopic:
    """Objects that describe one topic; they follow its partitions in a listing."""

    topic: str
    topic_id: Uuid
    objects: list[ObjectInfo] = field(default_factory=list)

    @property
    def newest(self) -> ObjectInfo:
        return max(self.objects)


@lazy_dataclass(slots=True)
class UnrecognizedObject:
    """An object outside the layout. Its owner is unknown, so it is never deleted."""

    object: ObjectInfo


def walk(
    store: ObjectStore, keys: ObjectKeys, topic: str | None = None
) -> Iterator[StoredPartition | StoredTopic | UnrecognizedObject]:
    """Yield everything under the prefix of `keys`, or only the objects of one topic name. Raises ObjectStoreError.

    Each yielded partition or topic has been listed completely.
    """
    found: StoredPartition | StoredTopic | None = None
    for info in store.list(keys.prefix if topic is None else f"{keys.prefix}{topic}-"):
        place = _place(keys, info)
        if isinstance(place, UnrecognizedObject):
            yield place
            continue
        if topic is not None and _topic_of(place) != topic:
            continue
        if found is None or _identity(found) != _identity(place):
            if found is not None:
                yield found
            found = place
        _put(keys, found, info)
    if found is not None:
        yield found


def newest_log_start(keys: ObjectKeys, stored: StoredPartition) -> ObjectInfo | None:
    """Return the log start object of the highest leader epoch."""
    return newest(keys.partition(stored.partition) + LOG_START_STEM, stored.log_starts)


def newest_log_start_epoch(keys: ObjectKeys, stored: StoredPartition) -> int:
    """Return the highest leader epoch with a log start object, damaged or not; -1 if there is none."""
    stem = keys.partition(stored.partition) + LOG_START_STEM
    return max((epoch for info in stored.log_starts if (epoch := epoch_in_key(stem, info.key)) is not None), default=-1)


def topic_directory(keys: ObjectKeys, topic: str, topic_id: Uuid) -> str:
    """Return the common prefix of all objects of a topic, with a trailing slash."""
    return keys.partition(TopicIdPartition(topic_id, topic, 0)).removesuffix("0/")


def _place(keys: ObjectKeys, info: ObjectInfo) -> StoredPartition | StoredTopic | UnrecognizedObject:
    partition = keys.parse_partition(info.key)
    if partition is not None:
        return StoredPartition(partition)
    # A topic description lies in the directory that holds the partition directories.
    directory, _, _ = info.key.rpartition("/")
    parent = keys.parse_partition(f"{directory}/0/")
    if parent is None or epoch_in_key(f"{directory}/{TOPIC_STEM}", info.key) is None:
        return UnrecognizedObject(info)
    return StoredTopic(parent.topic, parent.topic_id)


def _topic_of(place: StoredPartition | StoredTopic) -> str:
    return place.topic if isinstance(place, StoredTopic) else place.partition.topic


def _identity(place: StoredPartition | StoredTopic) -> object:
    return (place.topic, place.topic_id) if isinstance(place, StoredTopic) else place.partition


def _put(keys: ObjectKeys, place: StoredPartition | StoredTopic, info: ObjectInfo) -> None:
    if isinstance(place, StoredTopic):
        place.objects.append(info)
        return
    parsed = keys.parse(info.key)
    if parsed is not None:
        last = place.segments[-1] if place.segments else None
        if last is None or (last.id, last.start_offset) != (parsed.id, parsed.start_offset):
            last = StoredSegment(parsed.id, parsed.start_offset)
            place.segments.append(last)
        last.objects[parsed.suffix] = info
    elif epoch_in_key(keys.partition(place.partition) + LOG_START_STEM, info.key) is not None:
        place.log_starts.append(info)
    else:
        place.others.append(info)
