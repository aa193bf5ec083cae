"""The topics of a metadata image, as consumer groups see them."""

from collections.abc import Sequence
from typing import Final

from broker.groups.consumer.topics import SubscribableTopic
from broker.metadata.image.metadata_image import MetadataImage
from broker.metadata.image.topic_image import TopicDelta, TopicImage
from broker.metadata.image.topic_names import CLUSTER_METADATA_TOPIC
from protocol.primitives import METADATA_TOPIC_ID, Uuid

_NO_RACKS: Final = frozenset[str]()
_METADATA_TOPIC: Final = SubscribableTopic(CLUSTER_METADATA_TOPIC, METADATA_TOPIC_ID, (_NO_RACKS,))


class ImageTopics:
    """Implements `TopicsView` over one image; `has_metadata_topic` where clients may read `__cluster_metadata`."""

    __slots__ = ("_has_metadata_topic", "_image")

    def __init__(self, image: MetadataImage, *, has_metadata_topic: bool = False) -> None:
        self._image = image
        self._has_metadata_topic = has_metadata_topic

    @property
    def offset(self) -> int:
        return self._image.offset

    def describe(self, name: str) -> SubscribableTopic | None:
        """Return the topic; None for a missing one."""
        if name == CLUSTER_METADATA_TOPIC and self._has_metadata_topic:
            return _METADATA_TOPIC
        topic = self._image.topics.by_name(name)
        return None if topic is None else SubscribableTopic(name, topic.id, self._racks(topic))

    def name_of(self, topic_id: Uuid) -> str | None:
        """Return the name of the topic with that id."""
        if topic_id == METADATA_TOPIC_ID and self._has_metadata_topic:
            return CLUSTER_METADATA_TOPIC
        topic = self._image.topics.by_id(topic_id)
        return None if topic is None else topic.name

    def _racks(self, topic: TopicImage) -> Sequence[frozenset[str]]:
        racks: dict[int, str] = {broker.id: broker.rack for broker in self._image.brokers.all() if broker.rack}
        if not racks:
            return (_NO_RACKS,) * topic.partition_count
        return tuple(
            frozenset(racks[replica] for replica in registration.replicas if replica in racks)
            for _, registration in topic.in_order()
        )


def matters_to_assignments(topic: TopicDelta) -> bool:
    """Whether the topic is new, or has other partitions or replicas; a change of leaders alone does not matter."""
    if topic.before is None:
        return True
    former = topic.before.partitions
    return any(
        index not in former or former[index].replicas != registration.replicas
        for index, registration in topic.changed_partitions.items()
    )
