"""Vote (key 52), versions 0-2: a replica stands for election, or asks whether it would win.

1+ names both replicas by directory and says where the leader listens (KIP-853); 2 has pre-votes (KIP-996). Asked on
controller listeners alone. An answer that grants is given when the vote is on the disk.
"""

from broker.api.serving.context import RequestContext
from broker.api.serving.quorum_peer import QuorumPeer
from broker.quorum.messages import VoteResponse
from broker.quorum.wire.elections import decode_vote, encode_vote_response
from broker.quorum.wire.shape import WrongPartition
from protocol.messages import Message
from protocol.messages.vote import VoteRequest


class VoteHandler:
    """Answers Vote."""

    def __init__(self, replica: QuorumPeer) -> None:
        self._replica = replica

    async def __call__(self, request: VoteRequest, context: RequestContext) -> Message:
        try:
            asked = decode_vote(request)
        except WrongPartition as wrong:
            return wrong.response
        response = await self._replica.handle(asked)
        assert isinstance(response, VoteResponse)
        return encode_vote_response(response, context.listener)
