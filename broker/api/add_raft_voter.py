"""AddRaftVoter (key 80), versions 0-1: make an observer a voter (KIP-853).

1 may ask to be answered before the change is committed (KIP-1186). How long its sender waits is not looked at: a change
that the quorum does not take within its own time is answered with REQUEST_TIMED_OUT, and may still happen.
"""

from broker.api.serving.context import RequestContext
from broker.api.serving.quorum_peer import QuorumPeer
from broker.quorum.messages import ChangeVotersResponse
from broker.quorum.wire.membership import decode_add, encode_add_response
from protocol.messages.add_raft_voter import AddRaftVoterRequest, AddRaftVoterResponse


class AddRaftVoterHandler:
    """Answers AddRaftVoter."""

    def __init__(self, replica: QuorumPeer) -> None:
        self._replica = replica

    async def __call__(self, request: AddRaftVoterRequest, context: RequestContext) -> AddRaftVoterResponse:
        response = await self._replica.handle(decode_add(request))
        assert isinstance(response, ChangeVotersResponse)
        return encode_add_response(response)
