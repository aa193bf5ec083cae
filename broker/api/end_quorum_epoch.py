"""EndQuorumEpoch (key 54), versions 0-1: the leader leads no more, and says who should stand first.

1 names successors by directory too, and where the leader listened (KIP-853). Asked on controller listeners alone.
"""

from broker.api.serving.context import RequestContext
from broker.api.serving.quorum_peer import QuorumPeer
from broker.quorum.messages import EndQuorumEpochResponse
from broker.quorum.wire.elections import decode_end, encode_end_response
from broker.quorum.wire.shape import WrongPartition
from protocol.messages import Message
from protocol.messages.end_quorum_epoch import EndQuorumEpochRequest


class EndQuorumEpochHandler:
    """Answers EndQuorumEpoch."""

    def __init__(self, replica: QuorumPeer) -> None:
        self._replica = replica

    async def __call__(self, request: EndQuorumEpochRequest, context: RequestContext) -> Message:
        try:
            asked = decode_end(request)
        except WrongPartition as wrong:
            return wrong.response
        response = await self._replica.handle(asked)
        assert isinstance(response, EndQuorumEpochResponse)
        return encode_end_response(response, context.listener)
