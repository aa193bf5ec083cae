"""RestoreTopics (key 10001, not in Kafka), version 0: restore topics under their former ids.

Remote objects and the remote log metadata are stored under topic ids. A topic that CreateTopics creates has a new id
and finds none of them. Copying every object to another name would cost as much as the data are large, and metadata
records of the new id that point to objects of the old one would mix two histories of ids. So the topic gets its former
id, leader epochs above those of its segments, and the cluster allocates no producer id that the segments may contain.
An Apache Kafka controller refuses the unknown request, where it would ignore a tagged field of CreateTopics and create
something else.
"""

from functools import partial

from broker.api.serving.context import RequestContext
from broker.api.serving.controller_gateway import ControllerGateway
from broker.metadata.controller.controller import Controller
from broker.metadata.controller.result import ControllerResult
from broker.metadata.image.topic_names import CLUSTER_METADATA_TOPIC
from protocol.errors import ErrorCode, KafkaError
from protocol.messages.restore_topics import RestoreTopicsRequest, RestoreTopicsResponse


class RestoreTopicsHandler:
    """Answers RestoreTopics."""

    def __init__(self, controller: ControllerGateway) -> None:
        self._controller = controller

    async def __call__(self, request: RestoreTopicsRequest, context: RequestContext) -> RestoreTopicsResponse:
        _check(request)
        return await self._controller.submit(partial(_restore, request))


def _check(request: RestoreTopicsRequest) -> None:
    """Raise KafkaError for the whole request if a topic is invalid."""
    names = {topic.name for topic in request.topics}
    if len(names) != len(request.topics) or len({topic.topic_id for topic in request.topics}) != len(request.topics):
        raise KafkaError(ErrorCode.INVALID_REQUEST, "a topic is named twice")
    if CLUSTER_METADATA_TOPIC in names:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"{CLUSTER_METADATA_TOPIC} is the cluster's own")
    if any(not topic.leader_epochs for topic in request.topics):
        raise KafkaError(ErrorCode.INVALID_PARTITIONS, "a topic has no partitions")


def _restore(
    request: RestoreTopicsRequest, controller: Controller, now_ms: int
) -> ControllerResult[RestoreTopicsResponse]:
    return controller.restore_topics(request)
