"""UpdateRaftVoter (key 82), version 0: a voter says where it listens and which kraft.version it supports (KIP-853).

Asked on controller listeners alone. Answered before the change is committed: the voter's own fetches commit it.
"""

from broker.api.serving.context import RequestContext
from broker.api.serving.quorum_peer import QuorumPeer
from broker.quorum.messages import ChangeVotersResponse
from broker.quorum.wire.membership import decode_update, encode_update_response
from protocol.messages.update_raft_voter import UpdateRaftVoterRequest, UpdateRaftVoterResponse


class UpdateRaftVoterHandler:
    """Answers UpdateRaftVoter."""

    def __init__(self, replica: QuorumPeer) -> None:
        self._replica = replica

    async def __call__(self, request: UpdateRaftVoterRequest, context: RequestContext) -> UpdateRaftVoterResponse:
        response = await self._replica.handle(decode_update(request))
        assert isinstance(response, ChangeVotersResponse)
        return encode_update_response(response, context.listener)
