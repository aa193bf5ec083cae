"""DeleteTopics (key 20), versions 1-6: by name, 6+ by name or id (KIP-516); one result per topic."""

from collections import Counter
from collections.abc import Iterable
from functools import partial
from typing import Final

from broker.api.pipeline.permission import CLUSTER_RESOURCE_NAME, DELETE_CLUSTER, DELETE_TOPIC, DESCRIBE_TOPIC
from broker.api.serving.context import RequestContext
from broker.api.serving.controller_gateway import ControllerGateway
from broker.api.serving.mutation_quota import mutation_quota, throttle
from broker.metadata.controller.controller import Controller
from broker.metadata.controller.result import CommandResult, map_response
from broker.metadata.image.topic_image import TopicsImage
from broker.metadata.image.topic_names import CLUSTER_METADATA_TOPIC
from protocol.errors import ErrorCode, KafkaError
from protocol.messages.delete_topics import (
    DeletableTopicResult,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)
from protocol.primitives import METADATA_TOPIC_ID, ZERO_UUID, Uuid

_TOPIC_IDS_FROM: Final = 6
_DELETION_DISABLED_FROM: Final = 3
_STRICT_QUOTA_FROM: Final = 5


class DeleteTopicsHandler:
    """Answers DeleteTopics. `enabled` is `delete.topic.enable`."""

    def __init__(self, controller: ControllerGateway, *, enabled: bool) -> None:
        self._controller = controller
        self._enabled = enabled

    async def __call__(self, request: DeleteTopicsRequest, context: RequestContext) -> DeleteTopicsResponse:
        if not self._enabled:
            has_code = context.api_version >= _DELETION_DISABLED_FROM
            raise KafkaError(ErrorCode.TOPIC_DELETION_DISABLED if has_code else ErrorCode.INVALID_REQUEST)
        asked = request.topics
        if context.api_version < _TOPIC_IDS_FROM:
            asked = [DeleteTopicState(name=name) for name in request.topic_names]
        response = await self._controller.submit(partial(_delete, asked, context))
        throttle(context, response.throttle_time_ms)
        return response


def _delete(
    asked: Iterable[DeleteTopicState], context: RequestContext, controller: Controller, now_ms: int
) -> CommandResult[DeleteTopicsResponse]:
    """Resolve the topics in the controller's own image, and delete the valid ones."""
    quota = mutation_quota(controller, context, strict_from=_STRICT_QUOTA_FROM, now_ms=now_ms)
    refused: list[DeletableTopicResult] = []
    ids: list[Uuid] = []
    may_delete_all = context.allows(DELETE_CLUSTER, CLUSTER_RESOURCE_NAME)
    for state in _well_formed(asked, refused):
        if not may_delete_all and (unauthorized := _unauthorized(state, controller.image.topics, context)) is not None:
            refused.append(unauthorized)
            continue
        topic_id = _resolve(state, controller.image.topics, refused)
        if topic_id is not None:
            ids.append(topic_id)
    repeated = {topic_id for topic_id, count in Counter(ids).items() if count > 1}
    for each in sorted(repeated):
        topic = controller.image.topics.by_id(each)
        assert topic is not None
        refused.append(_refusal(topic.name, each, ErrorCode.INVALID_REQUEST, "a topic is named twice"))
    result = controller.delete_topics([topic_id for topic_id in ids if topic_id not in repeated], quota=quota)
    return map_response(result, lambda results: DeleteTopicsResponse(quota.throttle_ms, [*refused, *results.values()]))


def _well_formed(asked: Iterable[DeleteTopicState], refused: list[DeletableTopicResult]) -> list[DeleteTopicState]:
    """Return the states that name a topic by name or by id, once; append errors for the others to `refused`."""
    accepted = []
    counts = Counter((state.name, state.topic_id) for state in asked)
    for (name, topic_id), count in counts.items():
        if name is not None and topic_id != ZERO_UUID:
            fault = "a topic must be given by name or by id, not by both"
        elif name is None and topic_id == ZERO_UUID:
            fault = "neither a topic's name nor its id is given"
        elif count > 1:
            fault = "a topic is named twice"
        else:
            accepted.append(DeleteTopicState(name, topic_id))
            continue
        refused.append(_refusal(name, topic_id, ErrorCode.INVALID_REQUEST, fault))
    return accepted


def _unauthorized(state: DeleteTopicState, topics: TopicsImage, context: RequestContext) -> DeletableTopicResult | None:
    """Return the error of a topic that the principal may not delete.

    Without permission to describe a topic, its name stays hidden, and whether a topic of that name exists.
    """
    code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
    if state.name is not None:
        exists = topics.by_name(state.name) is not None or state.name == CLUSTER_METADATA_TOPIC
        may = context.allows(DESCRIBE_TOPIC, state.name) and (not exists or context.allows(DELETE_TOPIC, state.name))
        return None if may else _refusal(state.name, ZERO_UUID, code, code.message)
    topic = topics.by_id(state.topic_id)
    if topic is None or context.allows(DELETE_TOPIC, topic.name):
        return None
    shown = topic.name if context.allows(DESCRIBE_TOPIC, topic.name) else None
    return _refusal(shown, topic.id, code, code.message)


def _resolve(state: DeleteTopicState, topics: TopicsImage, refused: list[DeletableTopicResult]) -> Uuid | None:
    if state.name == CLUSTER_METADATA_TOPIC or state.topic_id == METADATA_TOPIC_ID:
        sentence = f"{CLUSTER_METADATA_TOPIC} is the cluster's own and cannot be deleted"
        refused.append(_refusal(state.name, state.topic_id, ErrorCode.INVALID_REQUEST, sentence))
        return None
    if state.name is not None:
        topic, code = topics.by_name(state.name), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    else:
        topic, code = topics.by_id(state.topic_id), ErrorCode.UNKNOWN_TOPIC_ID
    if topic is None:
        refused.append(_refusal(state.name, state.topic_id, code, code.message))
        return None
    return topic.id


def _refusal(name: str | None, topic_id: Uuid, code: ErrorCode, sentence: str) -> DeletableTopicResult:
    return DeletableTopicResult(name=name, topic_id=topic_id, error_code=code, error_message=sentence)
