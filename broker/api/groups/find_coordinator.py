"""FindCoordinator (key 10), versions 0-6: the broker that coordinates a group, a transactional id or a share partition.

0-3 one key, 4+ several (KIP-699), 6+ share partitions (KIP-932).

The coordinator is the leader of the partition of an internal topic that the key hashes to; the response names its
endpoint of the request's listener. The first request creates the internal topic. The response is
COORDINATOR_NOT_AVAILABLE until the partition has a leader, and the client retries.
"""

from collections.abc import Callable, Mapping
from enum import IntEnum
from typing import NamedTuple

from broker.api.pipeline.permission import (
    CLUSTER_ACTION,
    CLUSTER_RESOURCE_NAME,
    DESCRIBE_GROUP,
    DESCRIBE_TRANSACTIONAL_ID,
)
from broker.api.serving.access import require, require_group, require_transactional_id
from broker.api.serving.context import RequestContext
from broker.coordination.partitioner import partition_for
from broker.coordination.share_partition_key import parse_coordinator_key
from broker.metadata.image.cluster_image import BrokerRegistration
from broker.metadata.image.metadata_image import MetadataImage
from protocol.errors import ErrorCode, KafkaError
from protocol.messages.find_coordinator import Coordinator, FindCoordinatorRequest, FindCoordinatorResponse

KEY_LIST_FROM = 4
SHARE_PARTITIONS_FROM = 6
NO_NODE_ID = -1
NO_PORT = -1


class CoordinatorType(IntEnum):
    """Types of coordinators that a key can belong to."""

    GROUP = 0
    TRANSACTION = 1
    SHARE = 2


class CoordinatorNode(NamedTuple):
    """A broker's endpoint of one listener."""

    id: int
    host: str
    port: int


class FindCoordinatorHandler:
    """Answers FindCoordinator.

    `topics` names the internal topic of each coordinator type that this broker serves; any other type is
    INVALID_REQUEST. `create_topic` requests the creation of an internal topic without waiting for it, and is called
    again for as long as the topic is missing.
    """

    def __init__(
        self,
        image: Callable[[], MetadataImage],
        topics: Mapping[CoordinatorType, str],
        create_topic: Callable[[str], None],
    ) -> None:
        self._image = image
        self._topics = topics
        self._create_topic = create_topic

    def __call__(self, request: FindCoordinatorRequest, context: RequestContext) -> FindCoordinatorResponse:
        if context.api_version >= KEY_LIST_FROM:
            keys = request.coordinator_keys
            return FindCoordinatorResponse(coordinators=[self._find(request.key_type, key, context) for key in keys])
        found = self._find(request.key_type, request.key, context)
        return FindCoordinatorResponse(
            error_code=found.error_code,
            error_message=ErrorCode(found.error_code).message if found.error_code else ErrorCode.NONE.name,
            node_id=found.node_id,
            host=found.host,
            port=found.port,
        )

    def _find(self, key_type: int, key: str, context: RequestContext) -> Coordinator:
        try:
            _check_access(key_type, key, context)
            if key_type == CoordinatorType.SHARE:
                _check_share_partition(key, context.api_version)
            node = self._coordinator_or_raise(key_type, key, context.listener)
        except KafkaError as error:
            return Coordinator(key=key, node_id=NO_NODE_ID, port=NO_PORT, error_code=error.code)
        return Coordinator(key=key, node_id=node.id, host=node.host, port=node.port)

    def _coordinator_or_raise(self, key_type: int, key: str, listener: str) -> CoordinatorNode:
        image = self._image()
        name = {int(each): topic for each, topic in self._topics.items()}.get(key_type)
        if name is None:
            raise KafkaError(ErrorCode.INVALID_REQUEST)
        topic = image.topics.by_name(name)
        if topic is None:
            self._create_topic(name)
            raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        partition = topic.partition(partition_for(key, topic.partition_count))
        return _node(None if partition is None else image.brokers.get(partition.leader), listener)


def _check_access(key_type: int, key: str, context: RequestContext) -> None:
    if key_type == CoordinatorType.GROUP:
        require_group(context, DESCRIBE_GROUP, key)
    elif key_type == CoordinatorType.TRANSACTION:
        require_transactional_id(context, DESCRIBE_TRANSACTIONAL_ID, key)
    elif key_type == CoordinatorType.SHARE:
        require(context, CLUSTER_ACTION, CLUSTER_RESOURCE_NAME, ErrorCode.CLUSTER_AUTHORIZATION_FAILED)


def _check_share_partition(key: str, api_version: int) -> None:
    try:
        parse_coordinator_key(key)
    except ValueError as error:
        raise KafkaError(ErrorCode.INVALID_REQUEST, str(error)) from error
    if api_version < SHARE_PARTITIONS_FROM:
        raise KafkaError(ErrorCode.INVALID_REQUEST)


def _node(broker: BrokerRegistration | None, listener: str) -> CoordinatorNode:
    endpoint = None if broker is None or broker.fenced else broker.endpoints.get(listener)
    if broker is None or endpoint is None:
        raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE)
    return CoordinatorNode(broker.id, endpoint.host, endpoint.port)
