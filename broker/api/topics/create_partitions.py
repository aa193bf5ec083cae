"""CreatePartitions (key 37), versions 0-3: add partitions to topics (KIP-195); one result per topic."""

from collections import Counter
from functools import partial
from typing import Final

from broker.api.pipeline.permission import ALTER_TOPIC
from broker.api.serving.context import RequestContext
from broker.api.serving.controller_gateway import ControllerGateway
from broker.api.serving.mutation_quota import mutation_quota, throttle
from broker.metadata.controller.controller import Controller
from broker.metadata.controller.result import ControllerResult
from protocol.errors import ErrorCode
from protocol.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopicResult,
)

_STRICT_QUOTA_FROM: Final = 3


class CreatePartitionsHandler:
    """Answers CreatePartitions."""

    def __init__(self, controller: ControllerGateway) -> None:
        self._controller = controller

    async def __call__(self, request: CreatePartitionsRequest, context: RequestContext) -> CreatePartitionsResponse:
        counts = Counter(topic.name for topic in request.topics)
        refused = {name for name in counts if counts[name] == 1 and not context.allows(ALTER_TOPIC, name)}
        accepted = [topic for topic in request.topics if counts[topic.name] == 1 and topic.name not in refused]
        asked = CreatePartitionsRequest(accepted, request.timeout_ms, request.validate_only)
        response = await self._controller.submit(partial(_create, asked, context))
        response.results += [
            CreatePartitionsTopicResult(
                name, ErrorCode.INVALID_REQUEST, f"topic '{name}' is named {count} times in the request"
            )
            for name, count in counts.items()
            if count > 1
        ]
        response.results += [
            CreatePartitionsTopicResult(name, ErrorCode.TOPIC_AUTHORIZATION_FAILED, None) for name in refused
        ]
        throttle(context, response.throttle_time_ms)
        return response


def _create(
    asked: CreatePartitionsRequest, context: RequestContext, controller: Controller, now_ms: int
) -> ControllerResult[CreatePartitionsResponse]:
    quota = mutation_quota(controller, context, strict_from=_STRICT_QUOTA_FROM, now_ms=now_ms)
    result = controller.create_partitions(asked, quota=quota)
    result.response.throttle_time_ms = quota.throttle_ms
    return result
