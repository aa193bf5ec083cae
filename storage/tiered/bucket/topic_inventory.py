"""Inventory of a bucket topic by topic, as recovery needs it."""

from collections import defaultdict
from collections.abc import Iterator
from itertools import groupby

from protocol.primitives import Uuid
from storage.tiered.bucket.inventory import BucketReader, PartitionInventory
from storage.tiered.bucket.listing import StoredPartition, StoredTopic, UnrecognizedObject, topic_directory, walk
from storage.tiered.bucket.recovery_plan import TopicInventory
from storage.tiered.format.epoch_stamped_objects import epoch_in_key, newest
from storage.tiered.format.object_keys import ObjectKeys
from storage.tiered.format.topic_object import TOPIC_STEM, TopicDescription, decode_topic
from storage.tiered.object_store import ObjectStore


def incarnations(store: ObjectStore, keys: ObjectKeys, topic: str | None = None) -> dict[str, set[Uuid]]:
    """Return the topic ids in the bucket by topic name. Reads keys only. Raises ObjectStoreError."""
    found: defaultdict[str, set[Uuid]] = defaultdict(set)
    for name, topic_id in map(_identity, _places(store, keys, topic)):
        found[name].add(topic_id)
    return dict(found)


def topics_in(
    store: ObjectStore, keys: ObjectKeys, reader: BucketReader, topic: str | None = None
) -> Iterator[TopicInventory]:
    """Yield the inventory of every topic id, or of one topic. Raises ObjectStoreError, RetriableRemoteStorageError."""
    for (name, topic_id), found in groupby(_places(store, keys, topic), key=_identity):
        partitions: dict[int, PartitionInventory] = {}
        stored: StoredTopic | None = None
        for each in found:
            if isinstance(each, StoredTopic):
                stored = each
            else:
                partitions[each.partition.partition] = reader.inventory(each)
        description, epoch = (None, -1) if stored is None else _described(stored, keys, reader)
        yield TopicInventory(
            topic=name, topic_id=topic_id, partitions=partitions, description=description, description_epoch=epoch
        )


def _places(store: ObjectStore, keys: ObjectKeys, topic: str | None) -> Iterator[StoredPartition | StoredTopic]:
    return (found for found in walk(store, keys, topic) if not isinstance(found, UnrecognizedObject))


def _identity(found: StoredPartition | StoredTopic) -> tuple[str, Uuid]:
    if isinstance(found, StoredTopic):
        return found.topic, found.topic_id
    return found.partition.topic, found.partition.topic_id


def _described(stored: StoredTopic, keys: ObjectKeys, reader: BucketReader) -> tuple[TopicDescription | None, int]:
    """Return the newest description, None if unreadable, and the epoch in its key."""
    stem = topic_directory(keys, stored.topic, stored.topic_id) + TOPIC_STEM
    info = newest(stem, stored.objects)
    if info is None:
        return None, -1
    epoch = epoch_in_key(stem, info.key)
    try:
        return decode_topic(reader.content(info)), -1 if epoch is None else epoch
    except ValueError:
        return None, -1 if epoch is None else epoch
