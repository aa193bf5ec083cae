"""The partitions that this node can serve fetches from."""

from broker.metadata.image.topic_image import TopicImage
from broker.runtime.partitions.metadata_topic import ClusterMetadataTopic, MetadataPartition
from broker.runtime.partitions.partition import Partition
from broker.runtime.partitions.reads import FetchTarget
from broker.runtime.partitions.registry import Partitions
from protocol.primitives import ZERO_UUID

Readable = Partition | MetadataPartition


class FetchSource:
    """The hosted partitions and, if this broker exposes it, the metadata log.

    A look-up tries the hosted partitions first. `metadata_topic` is None where clients cannot read
    `__cluster_metadata`.
    """

    __slots__ = ("_metadata_topic", "partitions")

    def __init__(self, partitions: Partitions, metadata_topic: ClusterMetadataTopic | None) -> None:
        self.partitions = partitions
        self._metadata_topic = metadata_topic

    def find(self, target: FetchTarget) -> Readable | None:
        """Return the partition of a target if this node serves it."""
        by_id = target.topic_id != ZERO_UUID
        hosted = self.partitions.by_id.get(target.topic_id) if by_id else self.partitions.by_name.get(target.topic)
        if hosted is not None:
            return hosted.partitions.get(target.index)
        if self._metadata_topic is not None and self._metadata_topic.matches(target.topic, target.topic_id):
            return self._metadata_topic.partition(self.partitions.image, target.index)
        return None

    def topic_image(self, target: FetchTarget) -> TopicImage | None:
        """Return the topic of a target as the cluster metadata describes it."""
        image = self.partitions.image
        by_id = target.topic_id != ZERO_UUID
        found = image.topics.by_id(target.topic_id) if by_id else image.topics.by_name(target.topic)
        special = self._metadata_topic
        if found is None and special is not None and special.matches(target.topic, target.topic_id):
            return special.topic(image)
        return found
