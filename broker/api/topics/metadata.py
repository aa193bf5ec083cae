"""Metadata (key 3), versions 0-13: brokers, topics and partition leaders; creates topics on first use.

Version 1 distinguishes "all topics" (null) from "none" (empty); 4 lets the client forbid creation; 8 requests
authorized operations; 10 returns topic ids, and 12 accepts them in requests; 13 has a top-level error, which only a
broker of another cluster returns.
"""

from collections.abc import Iterable, Sequence
from typing import Final, Protocol

from broker.api.pipeline.permission import CLUSTER_RESOURCE_NAME, CREATE_CLUSTER, CREATE_TOPIC, DESCRIBE_TOPIC
from broker.api.serving.authorized_operations import NOT_REQUESTED, cluster_operations, topic_operations
from broker.api.serving.context import RequestContext
from broker.api.serving.metadata_source import (
    ControllerSource,
    MetadataSource,
    leader_endpoint,
    offline_replicas,
    visible_controller,
)
from broker.metadata.image.metadata_image import MetadataImage
from broker.metadata.image.partition import NO_LEADER, PartitionRegistration
from broker.metadata.image.topic_image import TopicImage
from broker.metadata.image.topic_names import invalid_name_reason, is_internal
from broker.runtime.partitions.metadata_topic import ClusterMetadataTopic
from protocol.errors import ErrorCode, KafkaError
from protocol.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from protocol.primitives import ZERO_UUID, Uuid

_NULL_MEANS_ALL: Final = 1
_TELLS_LISTENER_NOT_FOUND: Final = 6
_CLUSTER_OPERATIONS_VERSIONS: Final = range(8, 11)
_BY_ID: Final = 12


class AutoTopicCreator(Protocol):
    """Creates topics that clients asked for by name, some time after the call."""

    def request_topic(self, name: str) -> None: ...


class MetadataHandler:
    """Answers Metadata from the published image. `creator` is None where auto.create.topics.enable is off.

    `metadata_topic` (None where clients may not read it) is described only to clients that name it: a subscription to a
    pattern or to all topics does not include it.
    """

    def __init__(
        self,
        metadata: MetadataSource,
        controller: ControllerSource,
        *,
        cluster_id: str,
        creator: AutoTopicCreator | None,
        metadata_topic: ClusterMetadataTopic | None = None,
    ) -> None:
        self._metadata = metadata
        self._controller = controller
        self._cluster_id = cluster_id
        self._creator = creator
        self._metadata_topic = metadata_topic

    def __call__(self, request: MetadataRequest, context: RequestContext) -> MetadataResponse:
        version, listener, image = context.api_version, context.listener, self._metadata.image
        tells_operations = request.include_cluster_authorized_operations and version in _CLUSTER_OPERATIONS_VERSIONS
        return MetadataResponse(
            brokers=[
                MetadataResponseBroker(broker.id, *broker.endpoints[listener][:2], rack=broker.rack)
                for broker in image.brokers.alive(listener)
            ],
            cluster_id=self._cluster_id,
            controller_id=visible_controller(image.brokers, listener, self._controller.controller_id),
            topics=self._topics(request, image, _View(image, request, context)),
            cluster_authorized_operations=cluster_operations(context) if tells_operations else NOT_REQUESTED,
        )

    def _topics(self, request: MetadataRequest, image: MetadataImage, view: "_View") -> list[MetadataResponseTopic]:
        if request.topics is None or (view.version < _NULL_MEANS_ALL and not request.topics):
            topics = sorted(image.topics, key=lambda topic: topic.name)
            return [view.topic(topic) for topic in topics if view.context.allows(DESCRIBE_TOPIC, topic.name)]
        _check_identification(request.topics, view.version)
        ids = [topic.topic_id for topic in request.topics if topic.topic_id != ZERO_UUID]
        if ids:
            return [self._by_id(topic_id, image, view) for topic_id in dict.fromkeys(ids)]
        names = dict.fromkeys(topic.name or "" for topic in request.topics)
        may_create = request.allow_auto_topic_creation and self._creator is not None
        return [self._by_name(name, image, view, may_create) for name in names]

    def _by_id(self, topic_id: Uuid, image: MetadataImage, view: "_View") -> MetadataResponseTopic:
        """Return the entry of a topic; without permission it has the id and no name, since ids are no secrets."""
        topic = image.topics.by_id(topic_id) or self._metadata_log(None, topic_id, image)
        if topic is None:
            return MetadataResponseTopic(ErrorCode.UNKNOWN_TOPIC_ID, name=None, topic_id=topic_id)
        if not view.context.allows(DESCRIBE_TOPIC, topic.name):
            return MetadataResponseTopic(ErrorCode.TOPIC_AUTHORIZATION_FAILED, name=None, topic_id=topic_id)
        return view.topic(topic)

    def _by_name(self, name: str, image: MetadataImage, view: "_View", may_create: bool) -> MetadataResponseTopic:
        """Return the entry of a topic; without permission to describe it, whether it exists stays hidden."""
        if not view.context.allows(DESCRIBE_TOPIC, name):
            return MetadataResponseTopic(ErrorCode.TOPIC_AUTHORIZATION_FAILED, name=name)
        topic = image.topics.by_name(name) or self._metadata_log(name, ZERO_UUID, image)
        if topic is not None:
            return view.topic(topic)
        if may_create and not _allows_creation(view.context, name):
            return MetadataResponseTopic(ErrorCode.TOPIC_AUTHORIZATION_FAILED, name=name, is_internal=is_internal(name))
        if invalid_name_reason(name) is not None:
            return view.missing(ErrorCode.INVALID_TOPIC_EXCEPTION, name)
        if may_create and self._creator is not None:
            self._creator.request_topic(name)  # the client retries until the topic exists
        return view.missing(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, name)

    def _metadata_log(self, name: str | None, topic_id: Uuid, image: MetadataImage) -> TopicImage | None:
        if self._metadata_topic is None or not self._metadata_topic.matches(name, topic_id):
            return None
        return self._metadata_topic.topic(image)


class _View:
    """Topics of one image as a client of one listener and version sees them."""

    def __init__(self, image: MetadataImage, request: MetadataRequest, context: RequestContext) -> None:
        self._brokers = image.brokers
        self._listener = context.listener
        self._tells_operations = request.include_topic_authorized_operations
        self.version = context.api_version
        self.context = context

    def missing(self, code: ErrorCode, name: str) -> MetadataResponseTopic:
        """Return the entry of a missing topic, with authorized operations, as in Kafka."""
        return MetadataResponseTopic(
            code, name=name, is_internal=is_internal(name), topic_authorized_operations=self._operations(name)
        )

    def _operations(self, name: str) -> int:
        return topic_operations(self.context, name) if self._tells_operations else NOT_REQUESTED

    def topic(self, topic: TopicImage) -> MetadataResponseTopic:
        return MetadataResponseTopic(
            name=topic.name,
            topic_id=topic.id,
            is_internal=is_internal(topic.name),
            partitions=[self._partition(index, partition) for index, partition in topic.in_order()],
            topic_authorized_operations=self._operations(topic.name),
        )

    def _partition(self, index: int, partition: PartitionRegistration) -> MetadataResponsePartition:
        error = self._leader_error(partition.leader)
        replicas, isr = self._visible(partition.replicas), self._visible(partition.isr)
        if error is ErrorCode.NONE and (len(replicas), len(isr)) != (len(partition.replicas), len(partition.isr)):
            error = ErrorCode.REPLICA_NOT_AVAILABLE
        has_leader = leader_endpoint(self._brokers, partition.leader, self._listener) is not None
        return MetadataResponsePartition(
            error_code=error,
            partition_index=index,
            leader_id=partition.leader if has_leader else NO_LEADER,
            leader_epoch=partition.leader_epoch,
            replica_nodes=replicas,
            isr_nodes=isr,
            offline_replicas=offline_replicas(partition, self._brokers, self._listener),
        )

    def _leader_error(self, leader: int) -> ErrorCode:
        if leader_endpoint(self._brokers, leader, self._listener) is not None:
            return ErrorCode.NONE
        if leader in self._brokers and self.version >= _TELLS_LISTENER_NOT_FOUND:
            return ErrorCode.LISTENER_NOT_FOUND
        return ErrorCode.LEADER_NOT_AVAILABLE

    def _visible(self, replicas: Sequence[int]) -> list[int]:
        """Return all replicas; in version 0, whose clients ignore unknown brokers, those with an endpoint."""
        if self.version > 0:
            return list(replicas)
        return [each for each in replicas if leader_endpoint(self._brokers, each, self._listener) is not None]


def _allows_creation(context: RequestContext, name: str) -> bool:
    return context.allows(CREATE_CLUSTER, CLUSTER_RESOURCE_NAME) or context.allows(CREATE_TOPIC, name)


def _check_identification(topics: Iterable[MetadataRequestTopic], version: int) -> None:
    """Check topic ids, which exist from version 10 and work from version 12. Raises KafkaError INVALID_REQUEST."""
    for topic in topics:
        if topic.name is None and (version < _BY_ID or topic.topic_id == ZERO_UUID):
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"version {version} cannot request a topic without its name")
        if topic.topic_id != ZERO_UUID and version < _BY_ID:
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"version {version} cannot request topics by id")
