"""AllocateProducerIds (key 67), version 0: a broker asks for the next block of producer ids (KIP-730)."""

from collections.abc import Awaitable

from broker.api.serving.context import RequestContext
from broker.api.serving.controller_gateway import ControllerGateway
from broker.runtime.controller.channel import allocate_producer_ids
from protocol.messages.allocate_producer_ids import AllocateProducerIdsRequest, AllocateProducerIdsResponse


class AllocateProducerIdsHandler:
    """Answers AllocateProducerIds at the controller."""

    def __init__(self, controller: ControllerGateway) -> None:
        self._controller = controller

    def __call__(
        self, request: AllocateProducerIdsRequest, context: RequestContext
    ) -> Awaitable[AllocateProducerIdsResponse]:
        return self._controller.submit(allocate_producer_ids(request))
