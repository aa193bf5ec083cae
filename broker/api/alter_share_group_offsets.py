"""AlterShareGroupOffsets (key 91), version 0: start offsets of a share group without members (KIP-932)."""

from broker.api.serving.context import RequestContext
from broker.runtime.coordinators.share_group_coordinator import ShareGroupCoordinator
from protocol.messages.alter_share_group_offsets import AlterShareGroupOffsetsRequest, AlterShareGroupOffsetsResponse


class AlterShareGroupOffsetsHandler:
    """Answers AlterShareGroupOffsets."""

    def __init__(self, groups: ShareGroupCoordinator) -> None:
        self._groups = groups

    async def __call__(
        self, request: AlterShareGroupOffsetsRequest, context: RequestContext
    ) -> AlterShareGroupOffsetsResponse:
        return await self._groups.alter_offsets(request)
