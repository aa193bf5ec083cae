"""AlterPartition (key 56), versions 2-3: a leader asks for another in-sync set (KIP-497).

3 names the broker epoch of each member, so that one from an earlier life cannot slip in (KIP-903).
"""

from collections.abc import Awaitable

from broker.api.serving.context import RequestContext
from broker.api.serving.controller_gateway import ControllerGateway
from protocol.messages.alter_partition import AlterPartitionRequest, AlterPartitionResponse


class AlterPartitionHandler:
    """Answers AlterPartition at the controller."""

    def __init__(self, controller: ControllerGateway) -> None:
        self._controller = controller

    def __call__(self, request: AlterPartitionRequest, context: RequestContext) -> Awaitable[AlterPartitionResponse]:
        return self._controller.submit(lambda controller, _now: controller.alter_partitions(request))
