"""Topics that groups may commit offsets of: existing ones, and `__cluster_metadata` where clients may read it."""

from collections.abc import Callable

from broker.metadata.image.metadata_image import MetadataImage
from broker.metadata.image.topic_image import TopicImage
from broker.runtime.partitions.metadata_topic import ClusterMetadataTopic
from protocol.primitives import Uuid


class OffsetTopics:
    """Looks topics up in the latest image; `metadata_topic` is None where clients may not read it."""

    def __init__(self, image: Callable[[], MetadataImage], metadata_topic: ClusterMetadataTopic | None) -> None:
        self._image = image
        self._metadata_topic = metadata_topic

    def by_name(self, name: str) -> TopicImage | None:
        image = self._image()
        if self._metadata_topic is not None and self._metadata_topic.matches(name):
            return self._metadata_topic.topic(image)
        return image.topics.by_name(name)

    def by_id(self, topic_id: Uuid) -> TopicImage | None:
        image = self._image()
        if self._metadata_topic is not None and self._metadata_topic.matches(None, topic_id):
            return self._metadata_topic.topic(image)
        return image.topics.by_id(topic_id)
