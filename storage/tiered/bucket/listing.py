"""What is in a bucket, by partition and segment, as far as the names of objects tell.

A listing comes sorted, so that the objects of one partition come one after another, and only those of one are held at
a time. What a manifest says is not read here.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field

from protocol.primitives import Uuid
from storage.tiered.format.epoch_stamped_objects import epoch_in_key, newest
from storage.tiered.format.log_start_object import LOG_START_STEM
from storage.tiered.format.object_keys import ObjectKeys, ObjectSuffix
from storage.tiered.format.topic_object import TOPIC_STEM
from storage.tiered.object_store import ObjectInfo, ObjectStore
from storage.tiered.segment_metadata import RemoteSegmentId, TopicIdPartition

DELETION_ORDER = (ObjectSuffix.MANIFEST, ObjectSuffix.INDEXES, ObjectSuffix.LOG)
"""The manifest says that a segment is whole, so that it goes first."""


@dataclass(slots=True)
class StoredSegment:
    """The objects of one attempt to copy a segment."""

    id: RemoteSegmentId
    start_offset: int
    objects: dict[ObjectSuffix, ObjectInfo] = field(default_factory=dict)

    @property
    def is_complete(self) -> bool:
        """Whether it has a manifest, which is written last: whether the copy came to its end."""
        return ObjectSuffix.MANIFEST in self.objects

    @property
    def is_whole(self) -> bool:
        return len(self.objects) == len(ObjectSuffix)

    @property
    def size_bytes(self) -> int:
        return sum(info.size for info in self.objects.values())

    @property
    def modified_ms(self) -> int:
        """Of the newest object."""
        return max(info.modified_ms for info in self.objects.values())

    @property
    def keys(self) -> list[str]:
        """In the order in which they are to be deleted."""
        return [self.objects[suffix].key for suffix in DELETION_ORDER if suffix in self.objects]


@dataclass(slots=True)
class StoredPartition:
    """`segments` by start offset; `log_starts` are the objects that say it; `others` have names that mean nothing."""

    partition: TopicIdPartition
    segments: list[StoredSegment] = field(default_factory=list)
    log_starts: list[ObjectInfo] = field(default_factory=list)
    others: list[ObjectInfo] = field(default_factory=list)

    @property
    def size_bytes(self) -> int:
        return sum(segment.size_bytes for segment in self.segments)


@dataclass(slots=True)
class StoredTopic:
    """The objects that describe one topic; they come after its partitions."""

    topic: str
    topic_id: Uuid
    objects: list[ObjectInfo] = field(default_factory=list)

    @property
    def newest(self) -> ObjectInfo:
        return max(self.objects)


@dataclass(slots=True)
class UnrecognizedObject:
    """An object that has no place in the layout. Nobody knows whose it is, so that nobody removes it."""

    object: ObjectInfo


def walk(
    store: ObjectStore, keys: ObjectKeys, topic: str | None = None
) -> Iterator[StoredPartition | StoredTopic | UnrecognizedObject]:
    """All that lies under the prefix of `keys`, or only what belongs to one name of a topic. Raises ObjectStoreError.

    What is given has been listed to its end before it is given.
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
    """The object whose log start offset counts."""
    return newest(keys.partition(stored.partition) + LOG_START_STEM, stored.log_starts)


def topic_directory(keys: ObjectKeys, topic: str, topic_id: Uuid) -> str:
    """What the keys of all objects of a topic begin with, and no others; it ends in a slash."""
    return keys.partition(TopicIdPartition(topic_id, topic, 0)).removesuffix("0/")


def _place(keys: ObjectKeys, info: ObjectInfo) -> StoredPartition | StoredTopic | UnrecognizedObject:
    partition = keys.parse_partition(info.key)
    if partition is not None:
        return StoredPartition(partition)
    # The description of a topic lies where partition 0 would have its directory.
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
