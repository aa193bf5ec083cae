"""RemoveRaftVoter (key 81), version 0: let a voter be one no more (KIP-853)."""

from broker.api.serving.context import RequestContext
from broker.api.serving.quorum_peer import QuorumPeer
from broker.quorum.messages import ChangeVotersResponse
from broker.quorum.wire.membership import decode_remove, encode_remove_response
from protocol.messages.remove_raft_voter import RemoveRaftVoterRequest, RemoveRaftVoterResponse


class RemoveRaftVoterHandler:
    """Answers RemoveRaftVoter."""

    def __init__(self, replica: QuorumPeer) -> None:
        self._replica = replica

    async def __call__(self, request: RemoveRaftVoterRequest, context: RequestContext) -> RemoveRaftVoterResponse:
        response = await self._replica.handle(decode_remove(request))
        assert isinstance(response, ChangeVotersResponse)
        return encode_remove_response(response)
