"""ListPartitionReassignments (key 46), version 0: which partitions are on the move, and how (KIP-455)."""

from collections.abc import Awaitable

from broker.api.serving.context import RequestContext
from broker.api.serving.controller_gateway import ControllerGateway
from protocol.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
)


class ListPartitionReassignmentsHandler:
    """Answers ListPartitionReassignments, from the active controller: it alone knows the latest state."""

    def __init__(self, controller: ControllerGateway) -> None:
        self._controller = controller

    def __call__(
        self, request: ListPartitionReassignmentsRequest, context: RequestContext
    ) -> Awaitable[ListPartitionReassignmentsResponse]:
        return self._controller.submit(lambda controller, _now: controller.list_reassignments(request))
