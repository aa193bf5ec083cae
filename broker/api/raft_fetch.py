"""Fetch (key 1), versions 12-18, as replicas of the metadata log use it on controller listeners.

13+ topics by id; 16+ where the leader listens; 17+ the replica's directory (KIP-853); 18 the high watermark that it
knows (KIP-1166). Who has all there is waits in the quorum's core until there is more, at most as long as it asked for;
records are views of the log. Of what clients use Fetch for, nothing is served here.
"""

from broker.api.serving.context import RequestContext
from broker.api.serving.quorum_peer import QuorumPeer
from broker.quorum.messages import FetchResponse
from broker.quorum.wire.replication import decode_fetch, encode_fetch_response
from broker.quorum.wire.shape import WrongPartition
from protocol.messages import Message
from protocol.messages.fetch import FetchRequest


class RaftFetchHandler:
    """Answers Fetch of other replicas."""

    def __init__(self, replica: QuorumPeer) -> None:
        self._replica = replica

    async def __call__(self, request: FetchRequest, context: RequestContext) -> Message:
        try:
            asked = decode_fetch(request, context.api_version)
        except WrongPartition as wrong:
            return wrong.response
        response = await self._replica.handle(asked)
        assert isinstance(response, FetchResponse)
        return encode_fetch_response(response, context.listener)
