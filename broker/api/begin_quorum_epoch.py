"""BeginQuorumEpoch (key 53), versions 0-1: a replica says that it leads.

1 names the replica that is told, and where the leader listens (KIP-853). Asked on controller listeners alone.
"""

from broker.api.serving.context import RequestContext
from broker.api.serving.quorum_peer import QuorumPeer
from broker.quorum.messages import BeginQuorumEpochResponse
from broker.quorum.wire.elections import decode_begin, encode_begin_response
from broker.quorum.wire.shape import WrongPartition
from protocol.messages import Message
from protocol.messages.begin_quorum_epoch import BeginQuorumEpochRequest


class BeginQuorumEpochHandler:
    """Answers BeginQuorumEpoch."""

    def __init__(self, replica: QuorumPeer) -> None:
        self._replica = replica

    async def __call__(self, request: BeginQuorumEpochRequest, context: RequestContext) -> Message:
        try:
            asked = decode_begin(request)
        except WrongPartition as wrong:
            return wrong.response
        response = await self._replica.handle(asked)
        assert isinstance(response, BeginQuorumEpochResponse)
        return encode_begin_response(response, context.listener)
