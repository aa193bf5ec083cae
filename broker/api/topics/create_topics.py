"""CreateTopics (key 19), versions 2-7: 5+ returns the configs in effect, 7 the topic's id.

Checks that need no metadata are made here, all others by the controller. Each topic has its own result.
"""

from collections import Counter
from functools import partial
from typing import Final

from broker.api.pipeline.permission import (
    CLUSTER_RESOURCE_NAME,
    CREATE_CLUSTER,
    CREATE_TOPIC,
    DESCRIBE_CONFIGS_OF_TOPIC,
)
from broker.api.serving.context import RequestContext
from broker.api.serving.controller_gateway import ControllerGateway
from broker.api.serving.mutation_quota import mutation_quota, throttle
from broker.metadata.controller.controller import Controller
from broker.metadata.controller.result import CommandResult, map_response
from broker.metadata.image.topic_names import CLUSTER_METADATA_TOPIC
from protocol.errors import ErrorCode, KafkaError
from protocol.messages.create_topics import CreatableTopicResult, CreateTopicsRequest, CreateTopicsResponse

_STRICT_QUOTA_FROM: Final = 6


class CreateTopicsHandler:
    """Answers CreateTopics."""

    def __init__(self, controller: ControllerGateway) -> None:
        self._controller = controller

    async def __call__(self, request: CreateTopicsRequest, context: RequestContext) -> CreateTopicsResponse:
        refused = _refused(request, context)
        accepted = [topic for topic in request.topics if topic.name not in refused]
        asked = CreateTopicsRequest(accepted, request.timeout_ms, request.validate_only)
        try:
            response = await self._controller.submit(partial(_create, asked, context))
        except KafkaError as error:
            response = CreateTopicsResponse(
                topics=[_refusal(topic.name, error.code, error.message) for topic in accepted]
            )
        response.topics += refused.values()
        throttle(context, response.throttle_time_ms)
        return response


def _create(
    asked: CreateTopicsRequest, context: RequestContext, controller: Controller, now_ms: int
) -> CommandResult[CreateTopicsResponse]:
    quota = mutation_quota(controller, context, strict_from=_STRICT_QUOTA_FROM, now_ms=now_ms)

    def throttled(response: CreateTopicsResponse) -> CreateTopicsResponse:
        response.throttle_time_ms = quota.throttle_ms
        return response

    return map_response(
        controller.create_topics(asked, may_describe=partial(context.allows, DESCRIBE_CONFIGS_OF_TOPIC), quota=quota),
        throttled,
    )


def _refused(request: CreateTopicsRequest, context: RequestContext) -> dict[str, CreatableTopicResult]:
    may_create_all = context.allows(CREATE_CLUSTER, CLUSTER_RESOURCE_NAME)
    counts = Counter(topic.name for topic in request.topics)
    refused: dict[str, CreatableTopicResult] = {}
    for name, count in counts.items():
        if name == CLUSTER_METADATA_TOPIC:
            refused[name] = _refusal(
                name, ErrorCode.INVALID_REQUEST, f"{name} is the cluster's own and cannot be created"
            )
        elif count > 1:
            refused[name] = _refusal(
                name, ErrorCode.INVALID_REQUEST, f"topic '{name}' is named {count} times in the request"
            )
        elif not may_create_all and not context.allows(CREATE_TOPIC, name):
            refused[name] = _refusal(name, ErrorCode.TOPIC_AUTHORIZATION_FAILED, "Authorization failed.")
    return refused


def _refusal(name: str, code: ErrorCode, sentence: str) -> CreatableTopicResult:
    return CreatableTopicResult(name=name, error_code=code, error_message=sentence)
