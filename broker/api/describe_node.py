"""DescribeNode (key 10002, not in Kafka), version 0: load, disks and led partitions of the node that answers.

The console asks every broker of a cluster. Kafka has no request for these figures: its tools read them over JMX.
"""

from collections.abc import Awaitable
from typing import Protocol

from broker.api.serving.context import RequestContext
from protocol.messages.describe_node import DescribeNodeRequest, DescribeNodeResponse


class NodeDescription(Protocol):
    """The state of this node."""

    def describe(self, request: DescribeNodeRequest) -> Awaitable[DescribeNodeResponse]:
        """Return the parts of the state that `request` names."""
        ...


class DescribeNodeHandler:
    """Answers DescribeNode."""

    def __init__(self, node: NodeDescription) -> None:
        self._node = node

    async def __call__(self, request: DescribeNodeRequest, context: RequestContext) -> DescribeNodeResponse:
        return await self._node.describe(request)
