"""AlterPartitionReassignments (key 45), versions 0-1: move replicas to other brokers, or take a move back (KIP-455).

Version 1 can forbid that the number of replicas changes on the way (KIP-860).
"""

from collections.abc import Awaitable

from broker.api.serving.context import RequestContext
from broker.api.serving.controller_gateway import ControllerGateway
from protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
)


class AlterPartitionReassignmentsHandler:
    """Answers AlterPartitionReassignments."""

    def __init__(self, controller: ControllerGateway) -> None:
        self._controller = controller

    def __call__(
        self, request: AlterPartitionReassignmentsRequest, context: RequestContext
    ) -> Awaitable[AlterPartitionReassignmentsResponse]:
        return self._controller.submit(lambda controller, _now: controller.alter_reassignments(request))
