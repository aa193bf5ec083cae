"""The topics of a metadata image, as consumer groups see them."""

from collections.abc import Sequence
from typing import Final

from broker.groups.consumer.topics import SubscribableTopic
from broker.metadata.image.metadata_image import MetadataImage
from broker.metadata.image.topic_image import TopicDelta, TopicImage
from protocol.primitives import Uuid

_NO_RACKS: Final = frozenset[str]()


class ImageTopics:
    """Implements `TopicsView` over one image."""

    __slots__ = ("_image",)

    def __init__(self, image: MetadataImage) -> None:
        self._image = image

    @property
    def offset(self) -> int:
        return self._image.offset

    def describe(self, name: str) -> SubscribableTopic | None:
        """Return the topic; None for a missing one."""
        topic = self._image.topics.by_name(name)
        return None if topic is None else SubscribableTopic(name, topic.id, self._racks(topic))

    def name_of(self, topic_id: Uuid) -> str | None:
        """Return the name of the topic with that id."""
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
