"""RestoreTopics (key 10001, our own), version 0: topics come back under the ids that they had.

Objects in remote storage lie under topic ids, and so do the records that tell of them. A topic that CreateTopics makes
anew has a new id and finds none of them; copying every object to another name costs as much as the data are large, and
records of the new id that point to objects of the old would have two histories of ids from then on. So the topic gets
its old id back, leader epochs above all that its segments have seen, and the cluster hands out no producer id that
they may know. An Apache Kafka controller does not know the request and says so, where it would ignore a tagged field
of CreateTopics and create something else.
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
    """Raises KafkaError for the whole request."""
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
