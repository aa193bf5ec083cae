"""DescribeShareGroupOffsets (key 90), versions 0-1: start offsets and lags of share groups (KIP-932).

1+ has the lag (KIP-1226).
"""

from broker.api.serving.context import RequestContext
from broker.runtime.coordinators.share_group_coordinator import ShareGroupCoordinator
from protocol.messages.describe_share_group_offsets import (
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsResponse,
)


class DescribeShareGroupOffsetsHandler:
    """Answers DescribeShareGroupOffsets."""

    def __init__(self, groups: ShareGroupCoordinator) -> None:
        self._groups = groups

    async def __call__(
        self, request: DescribeShareGroupOffsetsRequest, context: RequestContext
    ) -> DescribeShareGroupOffsetsResponse:
        groups = [await self._groups.describe_offsets(each) for each in request.groups]
        return DescribeShareGroupOffsetsResponse(groups=groups)
