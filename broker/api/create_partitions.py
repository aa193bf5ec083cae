"""CreatePartitions (key 37), versions 0-3: give topics more partitions (KIP-195), each topic with its own answer."""

from collections import Counter

from broker.api.context import RequestContext
from broker.api.controller_gateway import ControllerGateway
from protocol.errors import ErrorCode
from protocol.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopicResult,
)


class CreatePartitionsHandler:
    """Answers CreatePartitions."""

    def __init__(self, controller: ControllerGateway) -> None:
        self._controller = controller

    async def __call__(self, request: CreatePartitionsRequest, context: RequestContext) -> CreatePartitionsResponse:
        counts = Counter(topic.name for topic in request.topics)
        accepted = [topic for topic in request.topics if counts[topic.name] == 1]
        asked = CreatePartitionsRequest(accepted, request.timeout_ms, request.validate_only)
        response = await self._controller.submit(lambda controller, _now: controller.create_partitions(asked))
        response.results += [
            CreatePartitionsTopicResult(
                name, ErrorCode.INVALID_REQUEST, f"topic '{name}' is named {count} times in the request"
            )
            for name, count in counts.items()
            if count > 1
        ]
        return response
