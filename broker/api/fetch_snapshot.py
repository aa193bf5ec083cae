"""FetchSnapshot (key 59), versions 0-1: a page of a snapshot of the metadata log, by byte position (KIP-630).

1 names the replica's directory and where the leader listens (KIP-853).
"""

from broker.api.serving.context import RequestContext
from broker.api.serving.quorum_peer import QuorumPeer
from broker.quorum.messages import FetchSnapshotResponse
from broker.quorum.wire.replication import decode_fetch_snapshot, encode_fetch_snapshot_response
from broker.quorum.wire.shape import WrongPartition
from protocol.messages import Message
from protocol.messages.fetch_snapshot import FetchSnapshotRequest


class FetchSnapshotHandler:
    """Answers FetchSnapshot."""

    def __init__(self, replica: QuorumPeer) -> None:
        self._replica = replica

    async def __call__(self, request: FetchSnapshotRequest, context: RequestContext) -> Message:
        try:
            asked = decode_fetch_snapshot(request)
        except WrongPartition as wrong:
            return wrong.response
        response = await self._replica.handle(asked)
        assert isinstance(response, FetchSnapshotResponse)
        return encode_fetch_snapshot_response(response, context.listener)
