"""Description of a topic, stored with its segments: partition count, replication factor and configs.

Segments that survive their cluster do not tell of empty partitions, replicas or configs. The leader of partition 0
writes the object when the topic changed, under its leader epoch (see `epoch_stamped_objects.py`).
"""

import json
from collections.abc import Mapping
from dataclasses import field

from protocol.lazy_dataclass import lazy_dataclass
from protocol.primitives import Uuid, uuid_from_text, uuid_to_text
from storage.tiered.format.epoch_stamped_objects import EpochStampedObject
from storage.tiered.object_store import ObjectStore

TOPIC_STEM = "topic"

_VERSION = 1


@lazy_dataclass(frozen=True, slots=True, kw_only=True)
class TopicDescription:
    """Description of a topic. `configs` exclude defaults; `metadata_offset` is the offset of the described image."""

    topic: str
    topic_id: Uuid
    partition_count: int
    replication_factor: int
    cluster_id: str
    metadata_offset: int
    configs: Mapping[str, str] = field(default_factory=dict)


def encode_topic(topic: TopicDescription) -> bytes:
    document = {
        "version": _VERSION,
        "clusterId": topic.cluster_id,
        "topic": topic.topic,
        "topicId": uuid_to_text(topic.topic_id),
        "partitions": topic.partition_count,
        "replicationFactor": topic.replication_factor,
        "configs": dict(sorted(topic.configs.items())),
        "metadataOffset": topic.metadata_offset,
    }
    return json.dumps(document, separators=(",", ":"), ensure_ascii=False).encode()


def decode_topic(content: bytes) -> TopicDescription:
    """Decode a topic object. Raises ValueError."""
    document = json.loads(content)
    if not isinstance(document, dict) or document.get("version") != _VERSION:
        raise ValueError("not a topic object, or an object of an unknown version")
    try:
        topic = TopicDescription(
            topic=str(document["topic"]),
            topic_id=uuid_from_text(document["topicId"]),
            partition_count=int(document["partitions"]),
            replication_factor=int(document["replicationFactor"]),
            cluster_id=str(document["clusterId"]),
            metadata_offset=int(document["metadataOffset"]),
            configs={str(key): str(value) for key, value in document["configs"].items()},
        )
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"the topic object lacks {error}") from error
    if topic.partition_count < 1 or topic.replication_factor < 1:
        raise ValueError(
            f"a topic cannot have {topic.partition_count} partitions and {topic.replication_factor} replicas"
        )
    return topic


def topic_object(store: ObjectStore, directory: str) -> EpochStampedObject:
    """Return the object; `directory` is the key prefix of the topic, with a trailing slash."""
    return EpochStampedObject(store, directory + TOPIC_STEM)


def read_topic(store: ObjectStore, directory: str) -> TopicDescription | None:
    """Return the newest description, None if there is none. Raises ObjectStoreError, ValueError."""
    found = topic_object(store, directory).read()
    return None if found is None else decode_topic(found.content)


class TopicWriter:
    """Writer of the leader of partition 0, for one leader epoch. Blocks; used by one thread at a time."""

    def __init__(self, store: ObjectStore, directory: str, *, leader_epoch: int) -> None:
        self._object = topic_object(store, directory)
        self._leader_epoch = leader_epoch
        self._written: TopicDescription | None = None
        self._is_deposed = False

    def write(self, topic: TopicDescription) -> bool:
        """Store a changed description; return whether the store holds it now.

        False forever after a later leader has written. Raises ObjectStoreError; the next call retries.
        """
        if self._is_deposed or self._says_so_already(topic):
            return not self._is_deposed
        epochs = self._object.epochs() if self._written is None else []
        self._is_deposed = bool(epochs) and epochs[-1] > self._leader_epoch
        if self._is_deposed:
            return False
        self._object.write(self._leader_epoch, encode_topic(topic))
        if epochs:
            self._object.remove_before(self._leader_epoch)
        self._written = topic
        return True

    def _says_so_already(self, topic: TopicDescription) -> bool:
        written = self._written
        if written is None:
            return False
        return _facts(written) == _facts(topic) or written.metadata_offset > topic.metadata_offset


def _facts(topic: TopicDescription) -> tuple[object, ...]:
    return topic.topic, topic.topic_id, topic.partition_count, topic.replication_factor, dict(topic.configs)
