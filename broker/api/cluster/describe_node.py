"""DescribeNode (key 10002, not in Kafka), version 0: load, disks and led partitions of the node that answers.

The console asks every broker of a cluster. Kafka has no request for these figures: its tools read them over JMX.
The route needs DESCRIBE on the cluster. Topics and a share group that the principal may not describe are left out.
"""

from collections.abc import Awaitable
from typing import Protocol

from broker.api.pipeline.permission import DESCRIBE_GROUP, DESCRIBE_TOPIC
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
        request.topics = [each for each in request.topics if context.allows(DESCRIBE_TOPIC, each.name)]
        if request.share_group is not None and not context.allows(DESCRIBE_GROUP, request.share_group):
            request.share_group = None
        return await self._node.describe(request)
